#pragma once

#include "command_line.hpp"
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <mutex>
#include <optional>

namespace tool {

/// Says on standard error that no server answers while the lock is waited for, once. Else a wait without limit would be
/// silent for as long as the server is down.
class OutageNotice final : public redlatch::Observer {
public:
    explicit OutageNotice(const Settings& settings) : settings_(&settings) {}

    /// The wait is over: nothing is said any more.
    void end();

    void error(const redlatch::Error& event) override;
    void reconnected(const Reconnected& event) override;

private:
    /// Shorter ones, such as a failover, are no news.
    static constexpr std::chrono::seconds told_after{3};

    const Settings* settings_;
    std::mutex mutex_;
    std::optional<std::chrono::steady_clock::time_point> began_;
    bool is_told_ = false;
};

}  // namespace tool
