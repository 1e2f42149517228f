#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/net/dialer.hpp>
#include <redlatch/policy/reentrant.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace redlatch::test {

/// What a hold is made of, with what the tests change first. No drift: validity is the lease.
struct HoldRecipe {
    std::string key = "key";
    detail::PolicyTraits traits = detail::traits_of<Simple>();
    Lease lease = std::chrono::hours{1};
    Drift drift{.factor = 0, .floor = std::chrono::milliseconds{0}};
    std::chrono::milliseconds lock_delay{0};
    std::chrono::milliseconds max_hold = std::chrono::milliseconds::max();
    detail::LockOwner owner = detail::this_thread();
    std::string token = "token";
    std::chrono::milliseconds min_hold{0};
    bool joins = false;
};

inline detail::HoldTerms terms_of(const HoldRecipe& recipe) {
    return {.keys = std::make_shared<const detail::LockKeys>(recipe.key),
            .traits = recipe.traits,
            .lease = recipe.lease,
            .drift = recipe.drift,
            .lock_delay = recipe.lock_delay,
            .max_hold = recipe.max_hold,
            .min_hold = recipe.min_hold,
            .joins = recipe.joins};
}

/// A hold that is still asked for.
inline std::shared_ptr<detail::Hold> asked_hold(HoldRecipe recipe = {}) {
    return std::make_shared<detail::Hold>(terms_of(recipe), detail::Token{std::move(recipe.token)},
                                          recipe.owner);
}

/// A hold whose validity is running.
inline std::shared_ptr<detail::Hold> taken_hold(HoldRecipe recipe = {}) {
    auto hold = asked_hold(std::move(recipe));
    hold->taken(Clock::now());
    return hold;
}

/// A hold that may pass on without a command however slow the machine is: as if it were taken later than now.
inline std::shared_ptr<detail::Hold> hold_with_recent_news(HoldRecipe recipe = {}) {
    auto hold = asked_hold(std::move(recipe));
    hold->taken(Clock::now() + std::chrono::hours{1});
    return hold;
}

/// A hold whose validity has ended already.
inline std::shared_ptr<detail::Hold> run_out_hold(HoldRecipe recipe = {}) {
    auto hold = asked_hold(std::move(recipe));
    hold->taken(Clock::now() - 2 * Clock::duration{hold->terms().lease.duration()});
    return hold;
}

/// Counts the attempts to connect, and refuses them.
class RefusingDialer final : public detail::Dialer {
public:
    explicit RefusingDialer(std::atomic<int>& asked) : asked_(&asked) {}

    Expected<detail::Connection, detail::Fault> open(const detail::Limit&) override {
        ++*asked_;
        return Unexpected{detail::io_fault("refused")};
    }
    std::string name() const override { return "nowhere"; }

private:
    std::atomic<int>* asked_;
};

/// A thread that is none of the test's.
inline detail::LockOwner another_thread() {
    return detail::LockOwner::thread(detail::ThreadSerial{1'000'000});
}

}  // namespace redlatch::test
