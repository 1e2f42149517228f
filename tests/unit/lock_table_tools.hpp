#pragma once

#include "service_tools.hpp"
#include <redlatch/core/lock_table.hpp>
#include <redlatch/policy/reentrant.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {

inline constexpr detail::LockOwner me = detail::LockOwner::thread(detail::ThreadSerial{1});
inline constexpr detail::LockOwner other = detail::LockOwner::thread(detail::ThreadSerial{2});

inline const int some_handle = 0;
inline const int other_handle = 0;

inline const detail::PolicyTraits& nesting() {
    static const detail::PolicyTraits traits = detail::traits_of<Reentrant>();
    return traits;
}

/// What is asked for, with what the tests change first.
struct Wish {
    std::string key = "key";
    detail::PolicyTraits traits = detail::traits_of<Simple>();
    Wait wait = Wait::unlimited();
    detail::LockOwner owner = me;
    std::uint64_t id = 1;
    const void* through = &some_handle;
    bool watched = false;
    // Other than a hold's in these tests: then the lock is released between two of them.
    Lease lease = std::chrono::hours{2};
    Drift drift{.factor = 0, .floor = std::chrono::milliseconds{0}};
    unsigned local_handoffs = 0;
    bool others_poll = false;
    Replicas replicas = Replicas::none();
    bool owns_itself = false;
    std::chrono::milliseconds min_hold{0};
    detail::ClaimTerms claim{};
    std::string own_entry{};
    bool joins = false;
    std::chrono::milliseconds lock_delay{0};
    std::chrono::milliseconds try_for{0};  // of a single try

    detail::Acquisition acquisition() const {
        return {id, through, watched, claim.weight == detail::ClaimTerms::reader};
    }
    detail::HoldTerms terms() const {
        detail::HoldTerms terms =
            terms_of({.key = key, .traits = traits, .lease = lease, .drift = drift});
        terms.replicas = replicas;
        terms.min_hold = min_hold;
        terms.lock_delay = lock_delay;
        terms.claim = claim;
        terms.own_entry = own_entry;
        terms.joins = joins;
        return terms;
    }
};

/// An operation that asks for a lock, with what the table has said to it last.
class Asker : public detail::LockTable::Waiter {
public:
    Asker(const Wish& wish, detail::TimePoint now)
        : terms_(wish.terms()),
          request{.terms = terms_,
                  .owner = wish.owns_itself ? detail::LockOwner::acquisition(wish.id) : wish.owner,
                  .caller = wish.owner,
                  .wait = wish.wait,
                  .deadline = detail::saturating_add(
                      now, std::max(wish.wait.duration(), Clock::duration::zero())),
                  .acquisition = wish.acquisition(),
                  .handoffs = {.in_row = wish.local_handoffs, .others_poll = wish.others_poll},
                  .try_by = detail::saturating_add(now, wish.try_for),
                  .asked_at = now} {}

private:
    const detail::HoldTerms terms_;

public:
    const detail::AcquireRequest request;
    bool stop_requested = false;
    detail::LockTable::Admission said{detail::LockTable::Outcome::queued};

    detail::LockTable::Turn turn() const { return said.turn; }
};

/// A lock table with a clock that stands still unless a test moves it.
class Locks {
public:
    using Outcome = detail::LockTable::Outcome;
    using Kind = detail::LockTable::Ending::Kind;

    detail::LockTable table{1};
    detail::TimePoint now{std::chrono::seconds{1000}};

    Asker& enter(const Wish& wish = {}) {
        askers_.push_back(std::make_unique<Asker>(wish, now));
        Asker& asker = *askers_.back();
        asker.said = table.enter(asker.request, asker, now, asker.stop_requested);
        return asker;
    }
    Outcome resume(Asker& asker) {
        asker.said = table.resume(asker, now, asker.stop_requested);
        return asker.said.outcome;
    }

    /// What one is told who does not wait, and leaves again.
    Outcome ask(Wish wish) {
        wish.wait = Wait::none();
        const Asker& asker = enter(wish);
        if (asker.turn()) table.end_turn(asker.turn());
        return asker.said.outcome;
    }

    std::shared_ptr<detail::Hold> taken(HoldRecipe recipe = {}) const {
        recipe.owner = recipe.owner == detail::this_thread() ? me : recipe.owner;
        auto hold = asked_hold(std::move(recipe));
        hold->taken(now);
        return hold;
    }

    /// Takes the lock, as if the server had given it to `hold`.
    void take(const std::shared_ptr<detail::Hold>& hold, const Wish& wish = {}) {
        const Asker& asker = enter(wish);
        ASSERT_EQ(asker.said.outcome, Outcome::turn);
        finish(asker, hold);
    }
    bool finish(const Asker& asker, const std::shared_ptr<detail::Hold>& hold) {
        hold->nest.push_back(asker.request.acquisition);
        return table.finish(asker.turn(), hold, false, now).kept;
    }

    /// Ends the innermost acquisition and, where it was the last, frees the lock.
    Kind unlock(const std::string& key = "key", detail::LockOwner owner = me) {
        return carry_out(table.end_innermost(key, owner));
    }
    Kind end(const detail::Hold& hold, std::uint64_t id) {
        return carry_out(table.end_acquisition(hold, id));
    }
    void free(detail::Hold& hold) {
        hold.advance(detail::Phase::releasing, detail::Phase::released);
        table.released(hold);
    }
    void lose(const std::shared_ptr<detail::Hold>& hold) {
        hold->advance(detail::Phase::held, detail::Phase::lost);
        table.lost(hold);
    }

    /// Whom all that has happened since the last look wakes.
    std::vector<const detail::LockTable::Waiter*> woken() {
        std::vector<const detail::LockTable::Waiter*> all;
        while (const auto* waiter = table.take_woken()) all.push_back(waiter);
        return all;
    }

    /// Moves the clock to where a waiter has slept enough.
    void sleep(const Asker& asker) { now = std::max(now, asker.said.wake_at); }

private:
    Kind carry_out(detail::LockTable::Ending ending) {
        table.conclude(ending, now);
        if (ending.kind == Kind::last) free(*ending.hold);
        return ending.kind;
    }

    std::vector<std::unique_ptr<Asker>> askers_;
};

using Woken = std::vector<const detail::LockTable::Waiter*>;

}  // namespace redlatch::test
