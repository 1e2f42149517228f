#pragma once

#include "../history/recorder.hpp"
#include "../lab/dice.hpp"
#include "../lab/plan.hpp"
#include "../lab/store.hpp"
#include "loss_watch.hpp"
#include "names.hpp"
#include "reliance.hpp"
#include "seeded_bugs.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// A client that is there until it is ended under its users.
struct ClientDoor {
    std::shared_mutex mutex;
    std::unique_ptr<Client> client;  ///< null after its end
};

/// One thread of a client process: takes locks, works with them, gives them back, and writes down what
/// it did and was told.
class Worker {
public:
    struct Place {
        ClientDoor* door;
        Recorder* recorder;
        LossWatch* losses;
        const ClientPlan* plan;
        std::chrono::milliseconds command_timeout;  ///< the client's
    };

    /// `stop`: the thread's work is over; `calls_stop`: its calls that wait are, too.
    Worker(const Place& place, std::uint64_t seed, std::stop_token stop, std::stop_token calls_stop)
        : door_{place.door},
          recorder_{place.recorder},
          losses_{place.losses},
          plan_{place.plan},
          command_timeout_{place.command_timeout},
          store_{place.plan->store},
          dice_{seed},
          stop_{std::move(stop)},
          calls_stop_{std::move(calls_stop)} {}

    [[nodiscard]] Dice& dice() { return dice_; }

    /// Takes a lock of the policy once. `policy` is its name.
    template <class Policy>
    void request(const char* policy) {
        const char* const key_type = Policy::key_type == KeyType::string ? "string:" : "hash:";
        const auto names = static_cast<std::size_t>(plan_->names);
        facts_ = {};
        facts_.lock = key_type + std::to_string(dice_.below(names));
        facts_.policy = policy;
        facts_.hold = recorder_->next_number();
        const Habits& habits = plan_->habits;
        lease_ = draw_lease();
        wait_ =
            dice_.percent(habits.no_wait) ? std::chrono::milliseconds{0} : dice_.in(habits.wait);
        const LockOptions options = this->options(Policy::watched);
        note_terms(options, facts_.policy.find("Watchdog") != std::string::npos);
        if constexpr (std::is_same_v<Policy, Reentrant>) {
            if (dice_.percent(habits.mixes)) return visit_mixed(options);
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
    using milliseconds = std::chrono::milliseconds;

    [[nodiscard]] milliseconds draw_lease() {
        const Habits& habits = plan_->habits;
        if (dice_.percent(habits.briefly)) return dice_.in(habits.brief);
        if (dice_.percent(habits.lastingly)) return dice_.in(habits.lasting);
        return dice_.in(habits.lease);
    }

    /// What a checker has to know of the terms to tell whether the lock should have been renewed.
    void note_terms(const LockOptions& options, bool watched) {
        facts_.counts["lease_ms"] = lease_.count();
        if (watched) facts_.counts["watched"] = 1;
        if (options.max_hold != LockOptions{}.max_hold) facts_.counts["ends_itself"] = 1;
    }

    /// Nothing where the client has been closed.
    template <class Policy>
    [[nodiscard]] std::optional<Lock<Policy>> lock_of(const LockOptions& options) {
        const std::shared_lock in{door_->mutex};
        if (door_->client == nullptr) return std::nullopt;
        return std::optional<Lock<Policy>>{std::in_place, *door_->client, facts_.lock, options};
    }

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

    template <class Policy>
    static constexpr Mistake mistake_of =
        std::is_same_v<Policy, CountsFromReply> ? Mistake::counts_from_reply
        : std::is_same_v<Policy, Deaf>          ? Mistake::deaf
                                                : Mistake::none;

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

    /// Reads, waits, and writes, where the validity allows it.
    template <class View>
    void update_resource(const Reliance<View>& reliance) {
        Store::Write write{.lock = facts_.lock, .process = 0, .hold = facts_.hold};
        write.read = store_.read(facts_.lock);
        rest(milliseconds{dice_.between(0, 3)});
        const std::shared_lock in{door_->mutex};  // a write is over before the client is closed
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

    Event begin(Op op, std::optional<Time> limit) {
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

    /// A nested call without limit is back when the outer hold is over.
    template <class View>
    [[nodiscard]] std::optional<Time> nest_limit(const Reliance<View>& reliance,
                                                 bool endless) const {
        if (!endless) return try_limit(nest_wait);
        if (facts_.counts.contains("watched")) return std::nullopt;
        return try_limit(reliance.remaining() + milliseconds{1} + lease_);
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

    ClientDoor* door_;
    Recorder* recorder_;
    LossWatch* losses_;
    const ClientPlan* plan_;
    milliseconds command_timeout_;
    Store store_;
    Dice dice_;
    std::stop_token stop_;
    std::stop_token calls_stop_;
    bool endless_ = false;    // the request's waits
    bool is_nested_ = false;  // what is released next
    Event facts_;             // of the hold that it is about
    milliseconds lease_{0};
    milliseconds wait_{0};
};

}  // namespace redlatch::test::fault
