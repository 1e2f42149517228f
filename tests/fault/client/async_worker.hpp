#pragma once

#include "completion.hpp"
#include "event_loop.hpp"
#include "lock_user.hpp"
#include "reliance.hpp"
#include "task.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test::fault {

/// One kind of lock, as a coroutine takes it.
struct AsyncLock {
    using Start = std::function<void(Completion<Held>::Callback, Executor*)>;

    const char* policy;  ///< its name
    const char* kind;
    bool watched;
    Mistake mistake;
    AsyncResult<Held> (*awaitable)(Client&, const std::string&, const LockOptions&,
                                   const AsyncOptions&, std::stop_token);
    Start (*with_callback)(Client&, const std::string&, const LockOptions&, const AsyncOptions&,
                           std::stop_token);
};

/// The handle is gone before the call begins, or while it is under way.
template <class Policy>
AsyncLock async_lock(const char* policy, Mistake mistake) {
    const auto awaitable = [](Client& client, const std::string& name, const LockOptions& options,
                              const AsyncOptions& how, std::stop_token stop) {
        return Lock<Policy>{client, name, options}.async_acquire(how, std::move(stop));
    };
    const auto with_callback = [](Client& client, const std::string& name,
                                  const LockOptions& options, const AsyncOptions& how,
                                  std::stop_token stop) -> AsyncLock::Start {
        auto lock = std::make_shared<Lock<Policy>>(client, name, options);
        return [lock, how, stop](Completion<Held>::Callback done, Executor* executor) {
            lock->async_acquire(how, stop, std::move(done), executor);
        };
    };
    return {policy, kind_of(Policy::key_type), Policy::watched, mistake, awaitable, with_callback};
}

/// One coroutine of a client process: does what a `Worker` does, and waits without a thread. It goes on on a
/// loop's thread, but for the moments at which a call completes.
class AsyncWorker : public LockUser {
public:
    AsyncWorker(const Place& place, std::uint64_t seed, std::stop_token stop,
                std::stop_token calls_stop, EventLoop& loop)
        : LockUser{place, seed, std::move(stop), std::move(calls_stop)}, loop_{&loop} {}

    /// Takes such a lock once.
    Task request(const AsyncLock& lock) {
        lock_ = &lock;
        options_ = draw_request(lock.kind, lock.policy, lock.watched);
        if (dice_.percent(plan_->habits.abandons)) {
            co_await abandon();
        } else {
            co_await visit();
        }
    }

private:
    EventLoop::Pause pause(Time time) { return loop_->pause(time); }

    Task visit() {
        const bool endless = dice_.percent(plan_->habits.endless);
        std::stop_source cancel;
        const auto forward = [&cancel] { cancel.request_stop(); };
        const std::stop_callback over{calls_stop_, forward};
        const bool cancels = dice_.percent(plan_->habits.cancels);
        const milliseconds patience{dice_.between(0, 300)};
        std::optional<Time> limit = try_limit(cancels ? std::min(patience, wait_) : wait_);
        if (endless && !cancels) limit.reset();
        const AsyncOptions how{.wait = endless ? Wait::unlimited() : Wait{wait_}, .lease = lease_};
        Event call = begin(Op::acquire, limit);
        if (cancels) {
            loop_->call_at(call.at + patience, [cancel]() mutable { cancel.request_stop(); });
        }
        auto taking = completion_of<Held>(call);
        if (!prepare(taking, how, cancel.get_token(), dice_.percent(50))) {
            fail(call, Error{Errc::cancelled, {}, {}, "the client is closed", {}});
            co_return;
        }
        Result<Held> held = co_await taking;
        call.at = now();
        taking.note(call);
        if (!held) {
            fail(call, held.error());
            co_await pause(milliseconds{dice_.between(1, 10)});
            co_return;
        }
        const Reliance<Held> reliance{*held, lock_->mistake, call.at, lease_};
        facts_.token = call.token = held->token();
        succeed(call, reliance);
        co_await pause(Time{0});
        if (dice_.percent(plan_->habits.shares)) {
            co_await share(*held, reliance);
        } else {
            co_await work(*held, reliance);
        }
    }

    static constexpr int some = 60;
    static constexpr int all = 100;

    /// `on_loop`: the chance that it completes there.
    template <class T>
    Completion<T> completion_of(const Event& call, int on_loop = some) {
        on_loop_ = dice_.percent(on_loop);
        return Completion<T>{call, *recorder_, *loop_, on_loop_};
    }
    [[nodiscard]] Executor* executor() const { return on_loop_ ? &loop_->executor() : nullptr; }

    /// False where the client has been closed.
    bool prepare(Completion<Held>& taking, const AsyncOptions& how, std::stop_token stop,
                 bool with_callback) {
        const std::shared_lock in{door_->mutex};
        if (door_->client == nullptr) return false;
        Client& client = *door_->client;
        const std::string& name = facts_.lock;
        if (with_callback) {
            const bool twice = lock_->mistake == Mistake::completes_twice;
            const bool keeps = lock_->mistake == Mistake::delivers_late;
            auto start = lock_->with_callback(client, name, options_, how, std::move(stop));
            taking.of([start, twice, keeps, lease = lease_,
                       on = executor()](const Completion<Held>::Callback& done) {
                start(twice ? doubled(done) : keeps ? delayed(done, lease) : done, on);
            });
        } else {
            taking.of(on(lock_->awaitable(client, name, options_, how, std::move(stop))));
        }
        return true;
    }

    template <class T>
    AsyncResult<T> on(AsyncResult<T> result) {
        return on_loop_ ? std::move(result).via(loop_->executor()) : std::move(result);
    }

    static Completion<Held>::Callback doubled(const Completion<Held>::Callback& done) {
        return [done](Result<Held> result) {
            done(std::move(result));
            done(Unexpected{Error{Errc::timed_out, {}, {}, {}, {}}});
        };
    }

    static Completion<Held>::Callback delayed(const Completion<Held>::Callback& done,
                                              milliseconds time) {
        return [done, time](Result<Held> result) {
            rest(time);
            done(std::move(result));
        };
    }

    /// Begins to wait, and is destroyed meanwhile.
    Task abandon() {
        const milliseconds patience{dice_.between(0, 300)};
        const AsyncOptions how{.wait = wait_, .lease = lease_};
        Event call = begin(Op::acquire, try_limit(patience));
        {
            Task waiting = take_in_vain(how);
            waiting.start();
            co_await pause(patience);
        }
        call.at = now();
        fail(call, Error{Errc::cancelled, {}, {}, "abandoned", {}});
    }

    Task take_in_vain(const AsyncOptions& how) {
        auto taking = completion_of<Held>(facts_, all);
        if (!prepare(taking, how, calls_stop_, false)) co_return;
        Result<Held> held = co_await taking;
        if (!held) co_return;
        if (lock_->mistake == Mistake::keeps_untaken) kept_.push_back(*std::move(held));
    }

    /// The critical section, and its end.
    Task work(Held& held, const Reliance<Held>& reliance) {
        facts_.fence = reliance.fence();
        {
            const bool listens = dice_.percent(plan_->habits.listens);
            const std::stop_token lost = listens ? reliance.lost() : std::stop_token{};
            const auto told = [this, facts = facts_] { notice_loss(facts); };
            const std::stop_callback notice{lost, told};
            if (listens && lost.stop_possible()) losses_->add(facts_, lost);
            co_await update(reliance);
            if (dice_.percent(plan_->habits.nests)) co_await nest(held);
            if (dice_.percent(plan_->habits.extends)) co_await extend(held, reliance);
            co_await pause(dice_.in(plan_->habits.work));
            probe(reliance);
            if (dice_.percent(plan_->habits.lingers)) co_await linger(reliance, lost);
            if (dice_.percent(plan_->habits.hangs)) co_await hang(reliance);
            if (dice_.percent(plan_->habits.stalls)) stall();
            co_await update(reliance);
        }
        co_await release(held);
    }

    Task update(const Reliance<Held>& reliance) {
        const Store::Write write = read_resource();
        co_await pause(milliseconds{dice_.between(0, 3)});
        write_resource(write, reliance);
    }

    /// The whole loop stands still: what completes on it meanwhile is delivered late.
    void stall() { rest(lease_ * dice_.between(50, 120) / 100); }

    Task nest(Held& held) {
        Event call = begin(Op::nest, now() + command_timeout_);
        auto nesting = completion_of<Held>(call);
        if (dice_.percent(50)) {
            nesting.of([&held, on = executor()](const Completion<Held>::Callback& done) {
                held.async_nest(done, on);
            });
        } else {
            nesting.of(on(held.async_nest()));
        }
        Result<Held> inner = co_await nesting;
        call.at = now();
        nesting.note(call);
        if (!inner) {
            fail(call, inner.error());
        } else {
            const Reliance<Held> reliance{*inner, Mistake::none, call.at, lease_};
            succeed(call, reliance);
            co_await pause(dice_.in(plan_->habits.work) / 2);
            probe(reliance);
            is_nested_ = true;
            co_await release(*inner);
            is_nested_ = false;
        }
        co_await pause(Time{0});
    }

    Task extend(Held& held, const Reliance<Held>& reliance) {
        co_await pause(dice_.in(plan_->habits.work));
        if (dice_.percent(plan_->habits.at_the_end)) {
            co_await pause(reliance.remaining() - milliseconds{dice_.between(0, 30)});
        }
        co_await extend_now(held, reliance);
    }

    Task extend_now(Held& held, const Reliance<Held>& reliance, int on_loop = some) {
        Event call = begin(Op::extend, now() + command_timeout_);
        auto extending = completion_of<void>(call, on_loop);
        if (dice_.percent(50)) {
            const auto start = [&held, lease = lease_,
                                on = executor()](const Completion<void>::Callback& done) {
                held.async_extend(lease, done, on);
                if (on == nullptr) return;  // it may have completed
                Held moved{std::move(held)};
                held = std::move(moved);
            };
            extending.of(start);
        } else {
            extending.of(on(held.async_extend(lease_)));
        }
        const Result<void> done = co_await extending;
        call.at = now();
        extending.note(call);
        if (done) {
            succeed(call, reliance);
        } else {
            fail(call, done.error());
        }
        co_await pause(Time{0});
    }

    /// Releases the hold, while it is extended.
    Task share(Held& held, const Reliance<Held>& reliance) {
        co_await pause(dice_.in(plan_->habits.work));
        Task extending = extend_now(held, reliance, all);
        extending.start();
        co_await pause(milliseconds{dice_.between(0, 2)});
        co_await release(held);
        while (!extending.is_done()) co_await pause(milliseconds{2});
    }

    /// Stays until the lease is over, or a while with a watchdog; then `lost()` is waited for.
    Task linger(const Reliance<Held>& reliance, const std::stop_token& lost) {
        const Time end = now() + lease_ * 3 / 2;
        while (now() < end && !stop_.stop_requested()) {
            probe(reliance);
            co_await update(reliance);
            co_await pause(milliseconds{dice_.between(5, 60)});
        }
        if (reliance.held()) co_return;
        probe(reliance);
        const Time patience = now() + longest_notice;
        while (lost.stop_possible() && !lost.stop_requested() && now() < patience) {
            co_await pause(milliseconds{5});
        }
        ask_late(reliance);
    }

    /// Does nothing, until the lease has long been over; one that is renewed would never be.
    Task hang(const Reliance<Held>& reliance) {
        if (facts_.counts.contains("watched")) co_return;
        const Time end = now() + reliance.remaining() + milliseconds{dice_.between(2500, 6000)};
        while (now() < end && !stop_.stop_requested()) co_await pause(milliseconds{20});
    }

    /// In any of the ways in which a `Held` ends.
    Task release(Held& held) {
        if (!is_nested_) losses_->remove(facts_.hold);
        Event call = begin(Op::release, now() + command_timeout_);
        const auto way = dice_.below(8);
        if (way < 2) {
            if (way == 0) held = Held{};
            if (way == 1) held.async_release();
            call.at = now();
            complete(call, "ok");
            co_return;
        }
        Result<Release> outcome = Release::not_held;
        if (way == 2) {
            co_await release_by_thread(held, outcome);
            call.at = now();
        } else {
            auto releasing = completion_of<Release>(call);
            if (way < 5) {
                releasing.of([&held, on = executor()](const Completion<Release>::Callback& done) {
                    held.async_release(done, on);
                });
            } else {
                releasing.of(on(held.async_release()));
            }
            outcome = co_await releasing;
            call.at = now();
            releasing.note(call);
        }
        if (outcome) {
            complete(call, enumerator_name(*outcome));
        } else {
            fail(call, outcome.error());
        }
        co_await pause(Time{0});
    }

    /// The call that blocks. The hold moves to that thread first: this one may still look at `held`, where a
    /// call of `share()` completes meanwhile.
    Task release_by_thread(Held& held, Result<Release>& outcome) {
        std::atomic<bool> is_back{false};
        const std::jthread other{[moved = std::move(held), &outcome, &is_back]() mutable {
            outcome = moved.release();
            is_back = true;
        }};
        while (!is_back) co_await pause(milliseconds{1});
    }

    EventLoop* loop_;
    const AsyncLock* lock_ = nullptr;
    LockOptions options_{};
    bool on_loop_ = true;     // the next call completes there
    bool is_nested_ = false;  // what is released next
    std::vector<Held> kept_;  // by mistake
};

}  // namespace redlatch::test::fault
