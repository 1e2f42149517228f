#pragma once

#include "command_line.hpp"
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// Says on standard error that no server answers while the lock is waited for, once. Else a wait without limit would be
/// silent for as long as the server is down. While the lock is held it remembers what went wrong. Passes on what is
/// wrong with how a server is set up.
class ServerNotices final : public redlatch::Observer {
public:
    explicit ServerNotices(const Settings& settings) : settings_(&settings) {}

    /// The wait is over: nothing is said of outages any more. Who has not acquired the lock need not hear warnings: on
    /// all machines but one that is so at each tick.
    void end(bool is_acquired);

    /// What went wrong since the lock was renewed last: why it may have been lost.
    std::optional<redlatch::Error> last_error() const;

    void wait_began(const WaitBegan& event) override;
    void renewed(const Renewed& event) override;
    void error(const redlatch::Error& event) override;
    void reconnected(const Reconnected& event) override;
    void warning(const Warning& event) override;

private:
    /// Shorter ones, such as a failover, are no news.
    static constexpr std::chrono::seconds told_after{3};

    std::vector<std::string> warnings_at_end(bool is_acquired);
    /// Remembers it. Whether it is the one that is told.
    bool is_to_be_told(const redlatch::Error& event);
    /// Keeps it until the lock is acquired, where it is not to be told before.
    bool is_kept(const std::string& warning);

    const Settings* settings_;
    mutable std::mutex mutex_;
    std::optional<std::chrono::steady_clock::time_point> began_;
    std::optional<redlatch::Error> last_error_;
    bool is_told_ = false;
    bool is_acquired_ = false;
    std::vector<std::string> warnings_;  // until the lock is acquired
};

}  // namespace tool
