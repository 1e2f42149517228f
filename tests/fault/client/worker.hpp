#pragma once

#include "../history/recorder.hpp"
#include "../lab/dice.hpp"
#include "../lab/plan.hpp"
#include "../lab/store.hpp"
#include "names.hpp"
#include "reliance.hpp"
#include "seeded_bugs.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// One thread of a client process: takes locks, works with them, gives them back, and writes down what
/// it did and was told.
class Worker {
public:
    struct Place {
        Client* client;
        Recorder* recorder;
        const ClientPlan* plan;
        std::chrono::milliseconds command_timeout;  ///< the client's
    };

    Worker(const Place& place, std::uint64_t seed, std::stop_token stop)
        : client_{place.client},
          recorder_{place.recorder},
          plan_{place.plan},
          command_timeout_{place.command_timeout},
          store_{place.plan->store},
          dice_{seed},
          stop_{std::move(stop)} {}

    [[nodiscard]] Dice& dice() { return dice_; }

    /// Takes a lock of the policy once. `policy` is its name.
    template <class Policy>
    void visit(const char* policy) {
        const char* const shape = Policy::shape == Shape::string ? "string:" : "hash:";
        const auto names = static_cast<std::size_t>(plan_->names);
        facts_ = {};
        facts_.lock = shape + std::to_string(dice_.below(names));
        facts_.policy = policy;
        facts_.hold = recorder_->next_number();
        const Habits& habits = plan_->habits;
        lease_ = dice_.in(habits.lease);
        wait_ =
            dice_.percent(habits.no_wait) ? std::chrono::milliseconds{0} : dice_.in(habits.wait);
        Lock<Policy> lock{*client_, facts_.lock, options(Policy::watched)};
        if (dice_.percent(70)) {
            visit_as_object<Policy>(lock);
        } else {
            visit_as_mutex<Policy>(lock);
        }
    }

private:
    using milliseconds = std::chrono::milliseconds;

    /// What a handle on the lock does in its own way.
    [[nodiscard]] LockOptions options(bool watched) {
        LockOptions options;
        options.lease = lease_;
        options.backoff = {milliseconds{5}, milliseconds{40}};
        if (dice_.percent(plan_->habits.polls)) options.wait_strategy = WaitStrategy::polling;
        if (dice_.percent(40)) options.release_mode = ReleaseMode::sent;
        if (watched && dice_.percent(10)) {
            options.max_hold = lease_ + milliseconds{dice_.between(0, 500)};
        }
        if (dice_.percent(10)) {
            options.lock_delay = milliseconds{dice_.between(1, longest_lock_delay.count())};
        }
        options.local_handoffs = static_cast<unsigned>(dice_.between(0, 8));
        return options;
    }

    /// By `acquire()` and the `Held` that it returns.
    template <class Policy>
    void visit_as_object(Lock<Policy>& lock) {
        Event call = begin(Op::acquire, try_limit());
        Result<Held> held = lock.acquire({.wait = wait_, .lease = lease_, .stop = stop_});
        call.at = now();
        if (!held) return give_up(call, held.error());
        const Reliance<Held> reliance{*held, is_mistaken<Policy>, call.at, lease_};
        facts_.token = held->token();
        call.token = facts_.token;
        succeed(call, reliance);
        // Where it nests, only faults are waited for; where it doesn't, in vain.
        const milliseconds patience = Policy::reentrant ? nest_wait : milliseconds{0};
        work(*held, reliance, [&lock, patience, this] {
            return lock.acquire({.wait = patience, .lease = lease_, .stop = stop_});
        });
    }

    /// By the calls that have the shape of a mutex.
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
        const Reliance<Lock<Policy>> reliance{lock, is_mistaken<Policy>, call.at, lease_};
        succeed(call, reliance);
        // Without the token of the outer hold it would not be clear what is nested in what.
        work(lock, reliance, {});
    }

    /// Some errors come at once, again and again.
    void give_up(Event& call, const Error& error) {
        fail(call, error);
        rest(milliseconds{dice_.between(1, 10)});
    }

    template <class Policy>
    static constexpr bool is_mistaken = std::is_same_v<Policy, CountsFromReply>;

    using TakeAgain = std::function<Result<Held>()>;

    /// The critical section, and its end.
    template <class View>
    void work(View& view, const Reliance<View>& reliance, const TakeAgain& take_again) {
        facts_.fence = reliance.fence();  // a holder keeps it when it has lost the lock
        {
            const bool listens = dice_.percent(plan_->habits.listens);
            const std::stop_token lost = listens ? reliance.lost() : std::stop_token{};
            const std::stop_callback notice{lost, [this, facts = facts_] { notice_loss(facts); }};
            update_resource(reliance);
            if (take_again && dice_.percent(plan_->habits.nests)) nest(reliance, take_again);
            if (dice_.percent(plan_->habits.extends)) extend(view, reliance);
            rest(dice_.in(plan_->habits.work));
            probe(reliance);
            if (dice_.percent(plan_->habits.lingers)) linger(reliance, lost);
            update_resource(reliance);
        }
        release(view);
    }

    /// Takes the lock again, while it has it.
    template <class View>
    void nest(const Reliance<View>& reliance, const TakeAgain& take_again) {
        Event call = begin(Op::nest, try_limit(nest_wait));
        const Time begun = call.at;
        Result<Held> inner = take_again();
        call.at = now();
        if (!inner) return fail(call, inner.error());
        if (inner->token() != facts_.token) {
            fail(call, Error{Errc::lost, {}, {}, "a new hold instead", {}});
            return visit_anew(begun, call.at, *inner);
        }
        succeed(call, Reliance<Held>{*inner, false, call.at, lease_});
        rest(dice_.in(plan_->habits.work) / 2);
        probe(reliance);
        release(*inner);
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
        const Reliance<Held> reliance{held, false, answered, lease_};
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

    /// Whoever asks when it is over is told at once.
    template <class View>
    void ask_late(const Reliance<View>& reliance) {
        const std::stop_token late = reliance.lost();
        if (!late.stop_possible() || late.stop_requested()) return;
        Event event = facts_;
        event.op = Op::lost;
        event.stage = Stage::note;
        event.outcome = "not fired";
        recorder_->write(event);
    }

    /// A thread-owned hold ends by the thread's release or unlock; a `Held` also by another thread's
    /// release, or by its own end.
    template <class View>
    void release(View& view) {
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

    /// Reads, waits, and writes, where the validity allows it.
    template <class View>
    void update_resource(const Reliance<View>& reliance) {
        Store::Write write{.lock = facts_.lock, .process = 0, .hold = facts_.hold};
        write.read = store_.read(facts_.lock);
        rest(milliseconds{dice_.between(0, 3)});
        const auto time = store_time();
        const milliseconds left = reliance.remaining();
        const bool fenced = facts_.fence > 0;
        if (left <= milliseconds{0} && !fenced) return;
        if (!(fenced && plan_->only_fences)) write.not_after = time + left;
        write.process = static_cast<int>(::getpid());
        write.fence = facts_.fence;
        write.at = now();
        store_.write(write);
    }

    template <class View>
    void probe(const Reliance<View>& reliance) {
        Event event = facts_;
        event.op = Op::probe;
        event.stage = Stage::note;
        event.at = now();
        event.held = reliance.held();
        event.outcome = name_of(reliance.state());
        tell_validity(event, event.at, reliance);
        recorder_->write(event);
    }

    /// Some callbacks take their time: that must harm nobody.
    void notice_loss(const Event& facts) {
        Event event = facts;
        event.op = Op::lost;
        event.stage = Stage::note;
        event.at = now();
        recorder_->write(event);
        if (event.hold % 8 == 0) rest(milliseconds{60});
    }

    // ---- What is written down

    Event begin(Op op, Time limit) {
        Event event = facts_;
        event.op = op;
        event.stage = Stage::invoke;
        event.call = recorder_->next_number();
        event.limit = limit;
        event.at = now();
        recorder_->write(event);
        event.limit.reset();
        return event;
    }

    void fail(Event& call, const Error& error) {
        call.stage = Stage::fail;
        call.outcome = name_of(error.code);
        call.detail = error.describe();
        recorder_->write(call);
    }

    void complete(Event& call, std::string outcome) {
        call.stage = Stage::ok;
        call.outcome = std::move(outcome);
        recorder_->write(call);
    }

    template <class View>
    void succeed(Event& call, const Reliance<View>& reliance) {
        call.stage = Stage::ok;
        call.outcome = "ok";
        call.fence = reliance.fence();
        tell_validity(call, now(), reliance);
        recorder_->write(call);
    }

    template <class View>
    static void tell_validity(Event& event, Time before, const Reliance<View>& reliance) {
        const milliseconds left = reliance.remaining();
        if (left <= milliseconds{0}) return;
        event.valid_until = before + left;
        event.valid_at_most = now() + left + milliseconds{1};
    }

    /// A call that waits is back 50 ms after its wait; one that doesn't after a command's time.
    [[nodiscard]] Time try_limit() const { return try_limit(wait_); }
    [[nodiscard]] Time try_limit(milliseconds wait) const {
        return now() + std::max(wait + milliseconds{50}, command_timeout_);
    }

    static void rest(Time time) {
        if (time > Time{0}) std::this_thread::sleep_for(time);
    }

    static constexpr milliseconds longest_notice{2500};
    static constexpr milliseconds nest_wait{200};

    Client* client_;
    Recorder* recorder_;
    const ClientPlan* plan_;
    milliseconds command_timeout_;
    Store store_;
    Dice dice_;
    std::stop_token stop_;
    Event facts_;  // of the hold that it is about
    milliseconds lease_{0};
    milliseconds wait_{0};
};

}  // namespace redlatch::test::fault
