#pragma once

#include "lock_user.hpp"
#include "reliance.hpp"
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch::test::fault {

/// A lock as its readers have it.
template <class Policy>
class Reading {
public:
    explicit Reading(Lock<Policy>& lock) : lock_{&lock} {}

    [[nodiscard]] bool try_lock(Wait wait, Lease lease) {
        return lock_->try_lock_shared(wait, lease);
    }
    void unlock() { lock_->unlock_shared(); }
    Result<Release> release() { return lock_->release_shared(); }
    Result<void> extend(Lease lease) { return lock_->extend(lease); }
    [[nodiscard]] bool held() const { return lock_->held(); }
    [[nodiscard]] std::chrono::milliseconds remaining() const { return lock_->remaining(); }
    [[nodiscard]] HoldState state() const { return lock_->state(); }
    [[nodiscard]] std::stop_token lost() const { return lock_->lost(); }
    [[nodiscard]] std::uint64_t fence() const requires is_fenced<Policy> { return lock_->fence(); }

private:
    Lock<Policy>* lock_;
};

/// One thread of a client process: takes locks, works with them, gives them back, and writes down what
/// it did and was told.
class Worker : public LockUser {
public:
    using LockUser::LockUser;

    /// Takes a lock of the policy once. `policy` is its name.
    template <class Policy>
    void request(const char* policy) {
        const LockOptions options =
            draw_request(kind_of(Policy::key_type), policy, Policy::watched);
        if constexpr (std::is_same_v<Policy, Reentrant>) {
            if (dice_.percent(plan_->habits.mixes)) return visit_mixed(options);
        }
        const bool reads = is_shared<Policy> && dice_.percent(plan_->habits.reads);
        if (reads) facts_.counts["reads"] = 1;
        auto lock = lock_of<Policy>(options);
        if (!lock) return;
        if (dice_.percent(70)) return visit_as_object<Policy>(*lock);
        if constexpr (is_shared<Policy>) {
            Reading<Policy> reading{*lock};
            if (reads) return visit_as_mutex<Policy>(reading);
        }
        visit_as_mutex<Policy>(*lock);
    }

    /// Takes permits of a semaphore once.
    template <class Policy>
    void request_permits(const char* policy) {
        const LockOptions options = draw_request("permits", policy, Policy::watched);
        constexpr std::ptrdiff_t in_all = 3;
        const auto permits =
            static_cast<std::ptrdiff_t>(dice_.percent(70) ? 1 : dice_.between(1, in_all));
        facts_.counts["permits"] = permits;
        facts_.counts["of"] = in_all;
        auto semaphore = made<Semaphore<Policy>>(facts_.lock, in_all, options);
        if (!semaphore) return;
        Event call = begin(Op::acquire, try_limit());
        Result<Held> held = semaphore->take(
            {.permits = permits, .wait = wait_, .lease = lease_, .stop = calls_stop_});
        call.at = now();
        if (!held) return give_up(call, held.error());
        const Reliance<Held> reliance{*held, Mistake::none, call.at, lease_};
        facts_.token = call.token = held->token();
        succeed(call, reliance);
        work(*held, reliance, {});
    }

    /// Takes several locks of the policy at once, or one of those.
    template <class Policy>
    void request_set(const char* policy) {
        const LockOptions options = draw_request("member", policy, Policy::watched);
        if (plan_->names == 1 || dice_.percent(30)) {
            auto lock = lock_of<Policy>(options);
            if (lock) visit_as_object<Policy>(*lock);
            return;
        }
        members_ = draw_members();
        std::vector<std::string> names;
        for (const Event& member : members_) names.push_back(member.lock);
        if (mistake_of<Policy> == Mistake::takes_part) names.pop_back();
        auto set = made<LockSet<Policy>>(names, options);
        if (set) visit_set(*set);
    }

private:
    /// By `acquire()` and the `Held` that it returns.
    template <class Policy>
    void visit_as_object(Lock<Policy>& lock) {
        endless_ = dice_.percent(plan_->habits.endless);
        Event call = begin(Op::acquire, endless_ ? std::optional<Time>{} : try_limit());
        const Wait wait = endless_ ? Wait::unlimited() : Wait{wait_};
        Result<Held> held =
            take(lock, {.wait = wait, .lease = lease_, .stop = calls_stop_}, reads());
        call.at = now();
        if (!held) return give_up(call, held.error());
        const Reliance<Held> reliance{*held, mistake_of<Policy>, call.at, lease_};
        facts_.token = held->token();
        call.token = facts_.token;
        succeed(call, reliance);
        if (dice_.percent(plan_->habits.shares)) return share(lock, *held);
        if (is_shared<Policy> && !reads() && dice_.percent(plan_->habits.downgrades)) {
            return downgrade(*held, reliance);
        }
        // Where it nests, only faults are waited for; where it doesn't, in vain.
        const Wait patience = !Policy::reentrant ? Wait::none()
                              : endless_         ? Wait::unlimited()
                                                 : Wait{nest_wait};
        work(*held, reliance, [&lock, patience, this] {
            const bool for_reading = reads() || (is_shared<Policy> && dice_.percent(50));
            return take(lock, {.wait = patience, .lease = lease_, .stop = calls_stop_},
                        for_reading);
        });
    }

    template <class Policy>
    static Result<Held> take(Lock<Policy>& lock, const AcquireOptions& options,
                             [[maybe_unused]] bool for_reading) {
        if constexpr (is_shared<Policy>) {
            if (for_reading) return lock.acquire_shared(options);
        }
        return lock.acquire(options);
    }

    /// Goes on as a reader: that is another hold.
    void downgrade(Held& held, const Reliance<Held>& writing) {
        facts_.fence = writing.fence();
        update_resource(writing);
        Event call = begin(Op::release, now() + command_timeout_);
        const Time begun = call.at;
        const Result<void> done = held.downgrade();
        call.at = now();
        if (!done && (done.error().code == Errc::lost || done.error().code == Errc::not_held)) {
            return fail(call, done.error());
        }
        complete(call, done ? "released" : "ok");
        facts_.counts["reads"] = 1;
        const Reliance<Held> reading{held, Mistake::none, call.at, lease_};
        note_hold(begun, call.at, reading);
        work(held, reading, {});
    }

    /// By the calls that have the key_type of a mutex.
    template <class Policy, class View>
    void visit_as_mutex(View& lock) {
        Event call = begin(Op::acquire, try_limit());
        bool taken = false;
        try {
            taken = lock.try_lock(wait_, lease_);
            call.at = now();
        } catch (const LockError& error) {
            call.at = now();
            return give_up(call, error.error());
        }
        if (!taken) return give_up(call, Error{Errc::timed_out, {}, {}, {}, {}});
        const Reliance<View> reliance{lock, mistake_of<Policy>, call.at, lease_};
        succeed(call, reliance);
        // Without the token of the outer hold it would not be clear what is nested in what.
        work(lock, reliance, {});
    }

    /// Some errors come at once, again and again.
    void give_up(Event& call, const Error& error) {
        fail(call, error);
        rest(milliseconds{dice_.between(1, 10)});
    }

    /// Another thread releases the hold, while the one that took it extends it.
    template <class Policy>
    void share(Lock<Policy>& lock, Held& held) {
        const milliseconds first = dice_.in(plan_->habits.work);
        const milliseconds second = dice_.in(plan_->habits.work);
        std::jthread other{[this, &held, first] {
            rest(first);
            Event call = begin(Op::release, now() + command_timeout_);
            const Result<Release> outcome = held.release();
            call.at = now();
            outcome ? complete(call, enumerator_name(*outcome)) : fail(call, outcome.error());
        }};
        rest(second);
        Event call = begin(Op::extend, now() + command_timeout_);
        const Result<void> done = lock.extend(lease_);
        call.at = now();
        if (!done) return fail(call, done.error());
        succeed(call, Reliance<Lock<Policy>>{lock, Mistake::none, call.at, lease_});
    }

    /// Nests with a watchdog in a hold without, and gives one such acquisition after the other to another
    /// thread, that ends it while the next one is made. The last one lasts for longer than the lease.
    void visit_mixed(const LockOptions& options) {
        lease_ = dice_.in(plan_->habits.lasting);
        facts_.policy = "Reentrant and Watchdog<Reentrant>";
        facts_.lock += ":" + std::to_string(::gettid());  // waiting for others is for other visits
        facts_.counts["lease_ms"] = lease_.count();
        LockOptions mine = options;
        mine.lease = lease_;
        auto plain = lock_of<Reentrant>(mine);
        auto watched = lock_of<Watchdog<Reentrant>>(mine);
        if (!plain || !watched) return;
        Event call = begin(Op::acquire, try_limit());
        Result<Held> outer = plain->acquire({.wait = wait_, .stop = calls_stop_});
        call.at = now();
        if (!outer) return give_up(call, outer.error());
        const Reliance<Held> reliance{*outer, Mistake::none, call.at, lease_};
        facts_.token = call.token = outer->token();
        succeed(call, reliance);
        losses_->add(facts_, outer->lost());
        chain(*watched, reliance, static_cast<int>(dice_.between(2, 4)));
        release(*outer);
    }

    void chain(Lock<Watchdog<Reentrant>>& watched, const Reliance<Held>& reliance, int links) {
        const Event outer = facts_;
        facts_.counts["watched"] = 1;
        std::optional<Held> last = take_watched(watched, reliance);
        for (int i = 1; i < links && last; ++i) {
            std::latch both{2};
            std::jthread other{[this, &last, &both] {
                both.arrive_and_wait();
                Event call = begin(Op::release, now() + command_timeout_);
                const Result<Release> outcome = last->release();
                call.at = now();
                outcome ? complete(call, enumerator_name(*outcome)) : fail(call, outcome.error());
            }};
            both.arrive_and_wait();
            std::optional<Held> next = take_watched(watched, reliance);
            other.join();
            last = std::move(next);
        }
        if (last) {
            const Time end = now() + lease_ * 5 / 4;
            while (now() < end && reliance.held() && !stop_.stop_requested()) {
                rest(milliseconds{20});
            }
            probe(reliance);
            release(*last);
        }
        facts_ = outer;
    }

    std::optional<Held> take_watched(Lock<Watchdog<Reentrant>>& watched,
                                     const Reliance<Held>& reliance) {
        Event call = begin(Op::nest, try_limit(nest_wait));
        Result<Held> inner = watched.acquire({.wait = nest_wait, .stop = calls_stop_});
        call.at = now();
        if (!inner) {
            fail(call, inner.error());
            return std::nullopt;
        }
        if (inner->token() != facts_.token) {
            fail(call, Error{Errc::lost, {}, {}, "a new hold instead", {}});
            return std::nullopt;
        }
        succeed(call, reliance);
        return std::move(*inner);
    }

    using TakeAgain = std::function<Result<Held>()>;

    /// The critical section, and its end.
    template <class View>
    void work(View& view, const Reliance<View>& reliance, const TakeAgain& take_again) {
        facts_.fence = reliance.fence();  // a holder keeps it when it has lost the lock
        {
            const bool listens = dice_.percent(plan_->habits.listens);
            const std::stop_token lost = listens ? reliance.lost() : std::stop_token{};
            const std::stop_callback notice{lost, [this, facts = facts_] { notice_loss(facts); }};
            if (listens && lost.stop_possible()) losses_->add(facts_, lost);
            update_resource(reliance);
            if (take_again && dice_.percent(plan_->habits.nests)) nest(reliance, take_again);
            if (dice_.percent(plan_->habits.extends)) extend(view, reliance);
            rest(dice_.in(plan_->habits.work));
            probe(reliance);
            if (dice_.percent(plan_->habits.lingers)) linger(reliance, lost);
            if (dice_.percent(plan_->habits.hangs)) hang(reliance);
            update_resource(reliance);
        }
        release(view);
    }

    /// Takes the lock again, while it has it.
    template <class View>
    void nest(const Reliance<View>& reliance, const TakeAgain& take_again) {
        Event call = begin(Op::nest, nest_limit(reliance, endless_));
        const Time begun = call.at;
        Result<Held> inner = take_again();
        call.at = now();
        if (!inner) return fail(call, inner.error());
        if (inner->token() != facts_.token) {
            if (endless_) call.counts["anew"] = 1;
            fail(call, Error{Errc::lost, {}, {}, "a new hold instead", {}});
            return visit_anew(begun, call.at, *inner);
        }
        succeed(call, Reliance<Held>{*inner, Mistake::none, call.at, lease_});
        rest(dice_.in(plan_->habits.work) / 2);
        probe(reliance);
        is_nested_ = true;
        release(*inner);
        is_nested_ = false;
    }

    /// The outer hold was over: what was to be nested in it is a hold of its own.
    void visit_anew(Time begun, Time answered, Held& held) {
        const Event outer = facts_;
        facts_.token = held.token();
        facts_.fence = 0;
        const Reliance<Held> reliance{held, Mistake::none, answered, lease_};
        note_hold(begun, answered, reliance);
        release(held);
        facts_ = outer;
    }

    /// What was taken is another hold from now on.
    void note_hold(Time begun, Time answered, const Reliance<Held>& reliance) {
        facts_.hold = recorder_->next_number();
        Event call = facts_;
        call.op = Op::acquire;
        call.stage = Stage::invoke;
        call.call = recorder_->next_number();
        call.at = begun;
        recorder_->write(call);
        call.at = answered;
        succeed(call, reliance);
    }

    // ---- Several locks at once

    /// Some of the locks, in any order, each with a hold of its own.
    std::vector<Event> draw_members() {
        std::vector<Event> members;
        const int first = static_cast<int>(dice_.between(0, plan_->names - 1));
        const int count = static_cast<int>(dice_.between(2, plan_->names));
        for (int i = 0; i < count; ++i) {
            Event member = facts_;
            member.lock = "member:" + std::to_string((first + i) % plan_->names);
            member.hold = recorder_->next_number();
            member.counts["set"] = 1;
            members.push_back(member);
        }
        return members;
    }

    /// With the facts of one member after the other.
    template <class Action>
    void for_each_member(Action action) {
        for (const Event& member : members_) {
            facts_ = member;
            action();
        }
    }

    std::vector<Event> begin_all(Op op, Time limit) {
        std::vector<Event> calls;
        for_each_member([&] { calls.push_back(begin(op, limit)); });
        return calls;
    }
    void fail_all(std::vector<Event>& calls, const Error& error) {
        const Time at = now();
        for (Event& call : calls) {
            call.at = at;
            fail(call, error);
        }
    }
    void succeed_all(std::vector<Event>& calls, const Reliance<HeldSet>& reliance) {
        const Time at = now();
        for (Event& call : calls) {
            call.at = at;
            succeed(call, reliance);
        }
    }

    template <class Policy>
    void visit_set(LockSet<Policy>& set) {
        std::vector<Event> calls = begin_all(Op::acquire, try_limit());
        Result<HeldSet> held = set.acquire({.wait = wait_, .lease = lease_, .stop = calls_stop_});
        if (!held) {
            fail_all(calls, held.error());
            return rest(milliseconds{dice_.between(1, 10)});
        }
        const Reliance<HeldSet> reliance{*held, Mistake::none, now(), lease_};
        succeed_all(calls, reliance);
        if (dice_.percent(plan_->habits.listens)) losses_->add(members_.front(), held->lost());
        for_each_member([&] { update_resource(reliance); });
        if (dice_.percent(plan_->habits.extends)) extend_set(*held, reliance);
        rest(dice_.in(plan_->habits.work));
        for_each_member([&] { probe(reliance); });
        for_each_member([&] { update_resource(reliance); });
        facts_ = members_.front();
        if (dice_.percent(plan_->habits.hangs)) hang(reliance);
        release_set(*held);
    }

    void extend_set(HeldSet& held, const Reliance<HeldSet>& reliance) {
        std::vector<Event> calls = begin_all(Op::extend, now() + command_timeout_);
        const Result<void> done = held.extend(lease_);
        done ? succeed_all(calls, reliance) : fail_all(calls, done.error());
    }

    void release_set(HeldSet& held) {
        losses_->remove(members_.front().hold);
        std::vector<Event> calls = begin_all(Op::release, now() + command_timeout_);
        if (dice_.percent(20)) {
            held = HeldSet{};
            for (Event& call : calls) {
                call.at = now();
                complete(call, "ok");
            }
            return;
        }
        const Result<Release> outcome = held.release();
        if (!outcome) return fail_all(calls, outcome.error());
        for (Event& call : calls) {
            call.at = now();
            complete(call, enumerator_name(*outcome));
        }
    }

    template <class View>
    void extend(View& view, const Reliance<View>& reliance) {
        rest(dice_.in(plan_->habits.work));
        if (dice_.percent(plan_->habits.at_the_end)) {
            rest(reliance.remaining() - milliseconds{dice_.between(0, 30)});
        }
        Event call = begin(Op::extend, now() + command_timeout_);
        Result<void> done = view.extend(lease_);
        call.at = now();
        if (!done) return fail(call, done.error());
        succeed(call, reliance);
    }

    /// Stays until the lease is over, or a while with a watchdog; then `lost()` is waited for.
    template <class View>
    void linger(const Reliance<View>& reliance, const std::stop_token& lost) {
        const Time end = now() + lease_ * 3 / 2;
        while (now() < end && !stop_.stop_requested()) {
            probe(reliance);
            update_resource(reliance);
            rest(milliseconds{dice_.between(5, 60)});
        }
        if (reliance.held()) return;
        probe(reliance);
        const Time patience = now() + longest_notice;
        while (lost.stop_possible() && !lost.stop_requested() && now() < patience) {
            rest(milliseconds{5});
        }
        ask_late(reliance);
    }

    /// Does nothing, until the lease has long been over; one that is renewed would never be.
    template <class View>
    void hang(const Reliance<View>& reliance) {
        if (facts_.counts.contains("watched")) return;
        const Time end = now() + reliance.remaining() + milliseconds{dice_.between(2500, 6000)};
        while (now() < end && !stop_.stop_requested()) rest(milliseconds{20});
    }

    /// A thread-owned hold ends by the thread's release or unlock; a `Held` also by another thread's
    /// release, or by its own end.
    template <class View>
    void release(View& view) {
        if (!is_nested_) losses_->remove(facts_.hold);
        Event call = begin(Op::release, now() + command_timeout_);
        Result<Release> outcome = Release::not_held;
        if constexpr (std::is_same_v<View, Held>) {
            const auto way = dice_.below(8);
            if (way == 0) {
                view = Held{};
                call.at = now();
                return complete(call, "ok");
            }
            if (way == 1) {
                std::thread{[&] { outcome = view.release(); }}.join();
            } else {
                outcome = view.release();
            }
        } else if (dice_.percent(50)) {
            view.unlock();
            call.at = now();
            return complete(call, "ok");
        } else {
            outcome = view.release();
        }
        call.at = now();
        if (!outcome) return fail(call, outcome.error());
        complete(call, enumerator_name(*outcome));
    }

    /// A nested call without limit is back when the outer hold is over.
    template <class View>
    [[nodiscard]] std::optional<Time> nest_limit(const Reliance<View>& reliance,
                                                 bool endless) const {
        if (!endless) return try_limit(nest_wait);
        if (facts_.counts.contains("watched")) return std::nullopt;
        return try_limit(reliance.remaining() + milliseconds{1} + lease_);
    }

    bool endless_ = false;          // the request's waits
    bool is_nested_ = false;        // what is released next
    std::vector<Event> members_{};  // of a set
};

}  // namespace redlatch::test::fault
