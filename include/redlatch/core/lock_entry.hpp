#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/acquire_request.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/lock_owner.hpp>
#include <redlatch/core/lock_waiter.hpp>
#include <redlatch/error.hpp>
#include <redlatch/recycled_memory.hpp>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The state of one lock inside this process, and the rules about it that need nothing else: which of its holds
/// counts, what a request gets, and whether a hold may pass to the waiter in front. Of a shared lock, each reader has
/// an entry of its own. Guarded by the lock table's mutex.
struct LockEntry {
    /// A server that has not answered for so long is silent to those who wait behind.
    static constexpr std::chrono::milliseconds silent_after{200};

    KeyType key_type{};
    std::shared_ptr<Hold> current{};  // acquired, and not over as far as is known
    // With acquisitions not yet returned: lost, or displaced as `keep` says, and then maybe not over.
    std::vector<std::shared_ptr<Hold>> past{};
    bool contended = false;                   // somebody has its turn at the server
    LockWaiter* contender = nullptr;          // that one, while it pauses
    TimePoint recheck_at = TimePoint::max();  // it should ask the server again
    std::optional<QueuePlace> queue_place{};  // under which it waits at the server, if it does
    std::optional<Grant> grant{};             // a message for that queue_place
    std::shared_ptr<const Error> fault{};     // what it, or one before, met instead of an answer
    bool told_of_tries = false;               // it has said how its own tries went, or has the lock
    TimePoint unanswered_since{};   // when the first turn, or the release, without an answer began
    bool has_single_tries = false;  // somebody waits for its answer only
    IntrusiveList<LockWaiter> nesting{};  // who pauses before it nests once more
    IntrusiveList<LockWaiter> queue{};
    Handoffs handoffs{};
    std::string claimant{};  // the last token that was announced, of a lock with claims
    std::shared_ptr<const LockKeys> crowd_of{};  // where readers wait for one claim: their lock

    bool free() const noexcept { return current == nullptr && !contended; }
    bool is_idle() const noexcept { return free() && queue.empty(); }
    bool unused() const noexcept { return is_idle() && past.empty() && nesting.empty(); }

    // ---- What a request gets

    /// The answer to a request that has just come.
    LockOutcome outcome_of(const AcquireRequest& request, TimePoint now) const {
        const HoldTerms& terms = request.terms;
        if (is_idle()) return LockOutcome::turn;
        if (key_type != terms.traits.key_type) return LockOutcome::wrong_key_type;
        if (current != nullptr && current->valid(now)) {
            const LockOwner holder = current->owner();
            // A nested hold has the fencing token of the outer one.
            const bool has_fence = current->terms().traits.fenced || !terms.traits.fenced;
            // A reader that would write waits for itself.
            const bool upgrades = current->reads() && !request.acquisition.reads;
            const bool nests = terms.traits.reentrant && has_fence && !upgrades;
            if (holder == request.owner && nests) return LockOutcome::nested;
            if (holder == request.caller && request.wait.is_unlimited()) {
                return LockOutcome::deadlock;
            }
        }
        const bool waits = !request.wait.is_none() || ((queue.empty() || is_unanswered(now)) &&
                                                       now < end_of_single_try(request, now));
        return waits ? LockOutcome::queued : LockOutcome::busy;
    }

    /// Until when it waits behind others of this process.
    TimePoint end_of_wait(const AcquireRequest& request, TimePoint now) const {
        return request.wait.is_none() ? end_of_single_try(request, now) : request.deadline;
    }

    /// Nobody of this process has the lock, and the server has not said yet whether somebody else has: it has answered
    /// neither the try of the one before, nor a release for as long as the lease lasted.
    bool is_unanswered(TimePoint now) const noexcept {
        if (current != nullptr) return outlasts_lease(now);
        if (contended) return !told_of_tries;
        return !queue.empty() &&
               (!told_of_tries || fault != nullptr);  // the next one is about to ask
    }

    /// Whether a wait that ends now has met a silent server. A server that is far away may not have answered
    /// a try that has just been sent: then the wait has met others.
    bool meets_silence(const AcquireRequest& request, TimePoint now) const noexcept {
        if (!is_unanswered(now)) return false;
        if (request.wait.is_none()) return true;
        if (current == nullptr && !contended) return false;
        TimePoint since = unanswered_since;
        if (current != nullptr) since = std::max(since, current->valid_until());
        return now >= saturating_add(since, silent_after);
    }

    /// When the present hold ends, for which each waiter in the queue wakes by itself. So hardly any has to be woken
    /// when it becomes the one in front.
    TimePoint end_to_watch(TimePoint now) const {
        const bool runs = current != nullptr && current->valid(now);
        return runs ? current->valid_until() : TimePoint::max();
    }

    /// Whether that owner holds it.
    bool is_held_by(LockOwner owner, TimePoint now) const {
        return current != nullptr && current->valid(now) && current->owner() == owner;
    }

    /// Whether somebody wants to write, or does.
    bool has_writer() const {
        const bool writes = current != nullptr && !current->reads();
        return writes || contended || !queue.empty();
    }

    /// Whether the waiter in front would oversleep its turn. A hold that is being released wakes it when it is over.
    bool has_to_wake_front() const {
        if (queue.empty()) return false;
        const LockWaiter& front = *queue.front();
        if (current == nullptr) return true;
        const bool waits_for_end =
            !front.request_->wait.is_none() && front.wake_at_ <= current->valid_until();
        return current->in(Phase::held) && !waits_for_end;
    }

    /// Whether the waiter waits for no longer than the answer to another one's try.
    void note_if_single_try(LockWaiter& waiter, TimePoint now) noexcept {
        waiter.waits_for_answer_ = waiter.request_->wait.is_none() && is_unanswered(now);
        has_single_tries = has_single_tries || waiter.waits_for_answer_;
    }

    void leave_queue(LockWaiter& waiter) noexcept {
        queue.remove(waiter);
        waiter.name_ = nullptr;
    }

    // ---- Its holds

    /// The server has given the lock to `hold` after whatever was held here before, as a rule. Only an adopted hold and
    /// the contender beside it may come in the wrong order. Of two, the one that was refreshed later becomes the
    /// current one, unless its validity is over. The other one goes to `past`, and still counts as held.
    void keep(std::shared_ptr<Hold> hold, TimePoint now) {
        const bool is_older = current != nullptr && current->valid(now) &&
                              (!hold->valid(now) || hold->refreshed_at() < current->refreshed_at());
        if (is_older || hold->in(Phase::lost)) {  // lost: a service was faster
            past.push_back(std::move(hold));
            return;
        }
        if (current != nullptr && !current->nest.empty()) past.push_back(std::move(current));
        current = std::move(hold);
    }

    bool has(const Hold& hold) const noexcept {
        const auto is_it = [&hold](const auto& other) { return other.get() == &hold; };
        return is_it(current) || std::any_of(past.begin(), past.end(), is_it);
    }

    /// What `owner` holds, or held until it was lost; null for nothing.
    std::shared_ptr<Hold> hold_of(LockOwner owner) const {
        if (current != nullptr && current->owner() == owner) return current;
        const auto last = std::find_if(past.rbegin(), past.rend(), [owner](const auto& hold) {
            return hold->owner() == owner;
        });
        return last == past.rend() ? nullptr : *last;
    }

    /// The hold of that token; null for none. One that was adopted may be past, and not know it yet.
    std::shared_ptr<Hold> held_by(std::string_view token) const {
        const auto is_it = [token](const std::shared_ptr<Hold>& hold) {
            return hold->token().bytes == token;
        };
        if (current != nullptr && is_it(current)) return current;
        const auto found = std::find_if(past.begin(), past.end(), is_it);
        return found != past.end() && (*found)->in(Phase::held) ? *found : nullptr;
    }

    /// Whether an owner uses the token: it holds the lock, or lost it and may still be at work in its
    /// `lock_delay`.
    bool is_used(std::string_view token) const {
        if (held_by(token) != nullptr) return true;
        return std::any_of(past.begin(), past.end(), [token](const auto& hold) {
            return hold->token().bytes == token && hold->has_lock_delay();
        });
    }

    /// A hold past its validity blocks nobody here any longer. The caller declares it lost at once.
    std::shared_ptr<Hold> take_expired(TimePoint now) {
        if (current == nullptr || !current->in(Phase::held)) return nullptr;
        if (current->valid(now)) return nullptr;
        past.push_back(current);
        return std::exchange(current, take_displaced(now));
    }

    /// The current hold is over. Of the holds that it displaced and that are still held, the last becomes the
    /// current one; it may have expired. Answers that the server gave a contender beside an adopted hold are
    /// still true.
    void vacate() noexcept {
        current = take_displaced(TimePoint::min());
        if (!contended) begin_to_ask();
    }

    /// Nobody knows any more whether somebody else has the lock.
    void begin_to_ask() noexcept {
        told_of_tries = false;
        unanswered_since = {};
    }

    // ---- The next one on the same lease

    /// Whether the waiter in front may go on with the lock of `hold`: the server cannot tell their terms apart, and the
    /// limit of hand-offs allows it. Not where somebody contends beside an adopted hold: the contender came before
    /// the waiter.
    bool can_hand_off(const Hold& hold) const {
        if (!hold.terms().traits.can_move || queue.empty() || contended) return false;
        const AcquireRequest& next = *queue.front()->request_;
        if (next.terms.replicas != Replicas::none()) return false;  // it has to ask them
        if (hold.weight() != next.terms.claim.weight) return false;
        return hold.terms().same_at_server(next.terms) && handoffs.allowed(next.handoffs);
    }

    /// Whether it may do so without a command.
    bool passes_silently(const Hold& hold, TimePoint now) const {
        const HoldTerms& terms = hold.terms();
        if (terms.traits.fenced) return false;  // the next one needs a number of its own
        // The next one's limit forbids a pass while others wait. Only a command tells whether they do.
        if (queue.front()->request_->handoffs.in_row == 0) return false;
        if (now < hold.kept_until()) return false;
        // One that was extended lasts longer at the server than the next one asks for.
        const TimePoint end = detail::valid_until(hold.refreshed_at(), terms.lease, terms.drift);
        if (hold.valid_until() > end || hold.may_be_prolonged || hold.extended) return false;
        return now < hold.valid_until() &&
               may_pass_silently(hold.refreshed_at(), handoffs.news(), now, terms.lease);
    }

    /// The waiter in front holds the lock. It is to be woken.
    LockWaiter& pass_to_front(HandOff handed, TimePoint now) {
        LockWaiter& next = *queue.front();
        const AcquireRequest& request = *next.request_;
        current = make_recycled<Hold>(request.terms, std::move(handed.token), request.owner);
        leave_queue(next);
        unanswered_since = {};
        handoffs.count();
        current->open_tries = std::move(handed.open_tries);
        current->fence = handed.fence;
        current->nest.push_back(request.acquisition);
        current->taken(now, handed.refreshed);
        current->begin_min_hold(now);
        if (request.delivered_later) current->deliver_later();
        next.handed_ = current;
        return next;
    }

private:
    /// Until when a single try waits for a release that is under way, or for the server's first answer; for ever in the
    /// past where there is neither.
    TimePoint end_of_single_try(const AcquireRequest& request, TimePoint now) const {
        const bool is_being_released =
            current != nullptr && !contended && current->in(Phase::releasing);
        return is_being_released || is_unanswered(now) ? request.try_by : TimePoint::min();
    }

    /// Whether the release of the current hold has had no answer, and the lease is over.
    bool outlasts_lease(TimePoint now) const noexcept {
        return !contended && current->in(Phase::releasing) && now >= current->valid_until();
    }

    /// Takes out, of the displaced holds that are valid then, the last one; null for none.
    std::shared_ptr<Hold> take_displaced(TimePoint then) noexcept {
        const auto is_valid = [then](const auto& hold) { return hold->valid(then); };
        const auto last = std::find_if(past.rbegin(), past.rend(), is_valid);
        if (last == past.rend()) return nullptr;
        auto hold = std::move(*last);
        past.erase(std::next(last).base());
        return hold;
    }
};

}  // namespace redlatch::inline v0::detail
