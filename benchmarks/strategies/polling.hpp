#pragma once

#include "raw_lock.hpp"
#include "strategies/strategy.hpp"

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>

namespace redlatch::bench {

/// By hand: SET NX PX again and again, with a random pause of 10 to 50 ms after each refusal.
class PollingContender final : public Contender {
public:
    PollingContender(const Place& place, unsigned seed)
        : lock_(place.uri, place.key, raw_lease_ms), random_(seed) {}

    void lock() override {
        while (!lock_.try_lock()) std::this_thread::sleep_for(pause_(random_) * unit);
    }

    void unlock() override {
        if (!lock_.unlock()) throw std::runtime_error{"polling: not released"};
    }

private:
    static constexpr std::chrono::microseconds unit{1};

    RawLock lock_;
    std::minstd_rand random_;
    std::uniform_int_distribution<int> pause_{10'000, 50'000};
};

}  // namespace redlatch::bench
