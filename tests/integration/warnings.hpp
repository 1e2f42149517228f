#pragma once

#include <redlatch/redlatch.hpp>

#include <mutex>
#include <vector>

namespace redlatch::test {

/// Remembers warnings.
class Warnings : public Observer {
public:
    void warning(const Warning& warning) override {
        const std::lock_guard lock{mutex_};
        all_.push_back(warning);
    }
    std::vector<Warning> all() {
        const std::lock_guard lock{mutex_};
        return all_;
    }

private:
    std::mutex mutex_;
    std::vector<Warning> all_;
};

}  // namespace redlatch::test
