#pragma once

#include "lock_user.hpp"
#include "names.hpp"
#include "reliance.hpp"
#include <redlatch/redlatch.hpp>

#include <chrono>
#include <functional>
#include <latch>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// One thread of a client process: takes locks, works with them, gives them back, and writes down what
/// it did and was told.
class Worker : public LockUser {
public:
    using LockUser::LockUser;

    /// Takes a lock of the policy once. `policy` is its name.
    template <class Policy>
    void request(const char* policy) {
        const LockOptions options = draw_request(Policy::key_type, policy, Policy::watched);
        if constexpr (std::is_same_v<Policy, Reentrant>) {
            if (dice_.percent(plan_->habits.mixes)) return visit_mixed(options);
        }
        auto lock = lock_of<Policy>(options);
        if (!lock) return;
        if (dice_.percent(70)) {
            visit_as_object<Policy>(*lock);
        } else {
            visit_as_mutex<Policy>(*lock);
        }
    }

private:
    /// By `acquire()` and the `Held` that it returns.
    template <class Policy>
    void visit_as_object(Lock<Policy>& lock) {
        endless_ = dice_.percent(plan_->habits.endless);
        Event call = begin(Op::acquire, endless_ ? std::optional<Time>{} : try_limit());
        const Wait wait = endless_ ? Wait::unlimited() : Wait{wait_};
        Result<Held> held = lock.acquire({.wait = wait, .lease = lease_, .stop = calls_stop_});
        call.at = now();
        if (!held) return give_up(call, held.error());
        const Reliance<Held> reliance{*held, mistake_of<Policy>, call.at, lease_};
        facts_.token = held->token();
        call.token = facts_.token;
        succeed(call, reliance);
        if (dice_.percent(plan_->habits.shares)) return share(lock, *held);
        // Where it nests, only faults are waited for; where it doesn't, in vain.
        const Wait patience = !Policy::reentrant ? Wait::none()
                              : endless_         ? Wait::unlimited()
                                                 : Wait{nest_wait};
        work(*held, reliance, [&lock, patience, this] {
            return lock.acquire({.wait = patience, .lease = lease_, .stop = calls_stop_});
        });
    }

    /// By the calls that have the key_type of a mutex.
    template <class Policy>
    void visit_as_mutex(Lock<Policy>& lock) {
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
        const Reliance<Lock<Policy>> reliance{lock, mistake_of<Policy>, call.at, lease_};
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
            outcome ? complete(call, name_of(*outcome)) : fail(call, outcome.error());
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
                outcome ? complete(call, name_of(*outcome)) : fail(call, outcome.error());
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
        facts_.hold = recorder_->next_number();
        facts_.token = held.token();
        facts_.fence = 0;
        Event call = facts_;
        call.op = Op::acquire;
        call.stage = Stage::invoke;
        call.call = recorder_->next_number();
        call.at = begun;
        recorder_->write(call);
        call.at = answered;
        const Reliance<Held> reliance{held, Mistake::none, answered, lease_};
        succeed(call, reliance);
        release(held);
        facts_ = outer;
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
        complete(call, name_of(*outcome));
    }

    /// A nested call without limit is back when the outer hold is over.
    template <class View>
    [[nodiscard]] std::optional<Time> nest_limit(const Reliance<View>& reliance,
                                                 bool endless) const {
        if (!endless) return try_limit(nest_wait);
        if (facts_.counts.contains("watched")) return std::nullopt;
        return try_limit(reliance.remaining() + milliseconds{1} + lease_);
    }

    bool endless_ = false;    // the request's waits
    bool is_nested_ = false;  // what is released next
};

}  // namespace redlatch::test::fault
