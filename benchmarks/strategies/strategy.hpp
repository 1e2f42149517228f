#pragma once

#include "support/raw_redis.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace redlatch::bench {

/// Where the lock is.
struct Place {
    std::string uri;
    std::string key;
};

/// A lock as one thread sees it. Both calls throw if they did not work.
class Contender {
public:
    Contender() = default;
    Contender(const Contender&) = delete;
    Contender& operator=(const Contender&) = delete;
    virtual ~Contender() = default;
    virtual void lock() = 0;
    virtual void unlock() = 0;
};

/// A lock as one process sees it: what its threads share.
class Side {
public:
    Side() = default;
    Side(const Side&) = delete;
    Side& operator=(const Side&) = delete;
    virtual ~Side() = default;

    /// For one thread; `seed` is different for each.
    virtual std::unique_ptr<Contender> contender(unsigned seed) = 0;
};

/// How threads of several processes take turns.
struct Strategy {
    std::string name;

    /// Called in each process, before it has threads.
    std::function<std::unique_ptr<Side>(const Place&)> side;

    /// What somebody has to do once before and after: a token that is handed on has to come from
    /// somewhere. `take_down` returns what is wrong, or nothing.
    std::function<void(test::RawRedis&, const std::string& key)> set_up = [](test::RawRedis&,
                                                                             const std::string&) {};
    std::function<std::string(test::RawRedis&, const std::string& key)> take_down =
        [](test::RawRedis&, const std::string&) { return std::string{}; };
};

/// A side whose threads share nothing but the place.
template <class OneContender>
class SeparateSide final : public Side {
public:
    explicit SeparateSide(Place place) : place_(std::move(place)) {}
    std::unique_ptr<Contender> contender(unsigned seed) override {
        return std::make_unique<OneContender>(place_, seed);
    }

private:
    Place place_;
};

/// Strategies that wait in the server wait at most this long before they say that they are stuck.
inline constexpr std::chrono::seconds raw_patience{60};

/// As long as redlatch's own.
inline constexpr std::int64_t raw_lease_ms = 30'000;

}  // namespace redlatch::bench
