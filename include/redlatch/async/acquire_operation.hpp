#pragma once

#include <redlatch/async/late_answer.hpp>
#include <redlatch/async/operation.hpp>
#include <redlatch/async/release_operation.hpp>
#include <redlatch/core/random.hpp>
#include <redlatch/steps/acquisition_steps.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace redlatch::inline v0 {
class Held;
}

namespace redlatch::inline v0::detail {

/// The lock that an operation is about, whatever becomes of the handle that it was made with.
struct OwnLockSpec {
    const LockSpec lock;
};

/// Why nobody gets what was acquired.
inline Error not_delivered(const Session& session, const std::string& key) {
    if (session.is_closed()) return {Errc::cancelled, key, {}, cancelled_by_close, {}};
    return {Errc::lost, key, {}, "its validity ended before it was delivered", {}};
}

/// Takes a lock without a thread that waits: carries out what the machines say. A class that knows `Held`
/// says how its hold is given out.
class AcquireOperation : public AsyncCallFor<Held>,
                         protected OwnLockSpec,
                         private AcquisitionSteps,
                         private Operation,
                         private LockTableMonitor::Waiter {
public:
    /// `outer`: what to nest in; null for a lock of its own.
    AcquireOperation(const LockSpec& spec, Lease lease, Wait wait, std::stop_token stop,
                     std::shared_ptr<Hold> outer = nullptr)
        : OwnLockSpec{spec},
          AcquisitionSteps(spec.client->session(), lock, lease,
                           {.wait = wait, .delivered_later = true, .renewed_later = true}),
          Operation(*session_, stop),
          stop_(std::move(stop)),
          outer_(std::move(outer)) {
        if (outer_ == nullptr) return;
        inner_.push_back(acquisition_);
        inner_.front().watched = false;  // not before it is delivered
    }

    ~AcquireOperation() override {
        note_unanswered(false);
        drop();
    }

protected:
    /// A hold that nobody has heard of is not renewed: it may have ended before it was delivered.
    Result<HoldRef> deliver() {
        Result<HoldRef> ref = outcome();
        if (!ref) return ref;
        const auto& hold = ref->hold;
        if (!hold->valid(Clock::now())) {
            session_->declare_lost(hold);
            post_release(lock.client, *ref);
            return Unexpected{not_delivered(*session_, lock.key())};
        }
        if (outer_ != nullptr) return deliver_nested(*std::move(ref));
        hold->delivered();
        if (acquisition_.watched) session_->renewal().arm(hold, hold->refreshed_at());
        return ref;
    }

    /// Instead of its own wait; before it begins. `answer_by`: no try waits any longer.
    using AcquisitionSteps::wait_for;

    /// For somebody else to deliver.
    Result<HoldRef> outcome() { return *std::exchange(result_, std::nullopt); }

private:
    /// It wants renewal only now: the outer hold may have ended before.
    Result<HoldRef> deliver_nested(HoldRef ref) {
        if (!acquisition_.watched) return ref;
        session_->locks().watch(*ref.hold, ref.id);
        if (auto reserved = session_->renewal().enlist(*ref.hold); !reserved) {
            post_release(lock.client, ref);
            return Unexpected{std::move(reserved).error()};
        }
        session_->renewal().arm(ref.hold, ref.hold->refreshed_at());
        return ref;
    }

    /// Who goes on with it. The releaser may take what the engine has offered, and the engine may take it
    /// back.
    enum class Keeper : std::uint8_t { engine, offered, releaser };

    /// What it waits for.
    enum class Stage : std::uint8_t { nothing, turn, pause, nesting_pause };

    // ---- Between the caller and the engine

    void begin() noexcept override {
        complete_on_default(session_->default_executors());
        if (!session_->engine().start()) return refuse(no_engine(*session_, lock.key()));
        restart_clock();
        if (outer_ != nullptr) {
            const auto count = session_->locks().nest(*outer_, std::move(inner_));
            if (!count) return refuse(refusal(Errc::not_held, lock.key(), ""));
            count_ = *count;
        }
        listen_for(stop_);
        happens(started);
    }
    void not_started() noexcept override { refuse(no_engine(*session_, lock.key())); }
    void cancel() noexcept override { happens(stopped); }
    void drop() noexcept override {
        const auto result = std::exchange(result_, std::nullopt);
        if (!result || !*result || !(*result)->is_ours()) return;
        post_release(lock.client, **result);
    }

    void refuse(Error why) noexcept {
        if (outer_ != nullptr && count_ != 0) {
            hold_ = outer_;
            end_acquisition();
        }
        listen_no_more();
        result_.emplace(Unexpected{std::move(why)});
        finish();
    }

    /// Wherever the table wakes it: the engine looks.
    Parker::Wake wake() noexcept override {
        happens(woken);
        return {};
    }

    std::shared_ptr<const void> keep() const noexcept override { return shared_from_this(); }

    // ---- On the thread that hands it the lock

    /// The way over the engine and back would cost more than all the rest. Not inside another such call: an operation
    /// that nobody waits for any more releases the lock at once, which hands it to the next one, and so on.
    bool goes_on_here() noexcept override {
        if (one_goes_on) return false;
        Keeper offered = Keeper::offered;
        return keeper_.compare_exchange_strong(offered, Keeper::releaser);
    }

    void go_on_here() noexcept override {
        one_goes_on = true;
        take_over_here();
        one_goes_on = false;
    }

    void take_over_here() noexcept {
        const auto kept = keep();
        Next action = take_over(LockTable::take_handed(*this).hold);
        if (const auto* const done = get_if<AcquisitionDone>(&*action)) {
            happens(woken);  // the timer is still set
            carry_out(*done);
            return complete();
        }
        left_ = std::move(action);
        keeper_ = Keeper::engine;
        happens(woken);
    }

    /// The client has closed meanwhile: the rest is done here.
    void engine_has_ended() noexcept override {
        Keeper keeper = Keeper::engine;
        if (keeper_.compare_exchange_strong(keeper, Keeper::releaser) && left_.has_value())
            do_what_is_left();
    }

    // ---- On the engine's thread

    /// It waits for others of this process, and has asked the server nothing yet: so no answer comes that the engine
    /// would have to look at. Not with an observer, which would mostly hear of it before the release it waited for.
    bool may_go_on_elsewhere() const noexcept {
        return stage_ == Stage::turn && machine_ == nullptr && !terms_.joins &&
               completes_within_the_library() && !session_->events().wanted();
    }

    /// Whether it is the engine's, which goes on with it.
    bool take_back() noexcept {
        Keeper keeper = Keeper::offered;
        return keeper_.compare_exchange_strong(keeper, Keeper::engine) || keeper == Keeper::engine;
    }

    void happened(unsigned events) noexcept override {
        if ((events & stopped) != 0) is_stopped_ = true;
        if (!take_back()) return clear_timer();
        if ((events & started) != 0) {
            if (outer_ != nullptr) return drive(begin_nesting(outer_, count_));
            return enter();
        }
        if (is_stopped_ && is_sending()) return give_order_up(session_->has_several_masters());
        look();
    }

    void time_is_over() noexcept override {
        if (take_back()) look();
    }

    void do_what_is_left() noexcept {
        go_on();
        drive(*std::exchange(left_, std::nullopt));
    }

    void look() noexcept {
        if (left_) return do_what_is_left();
        if (stage_ != Stage::nothing && completes_nowhere()) is_stopped_ = true;
        switch (stage_) {
            case Stage::nothing: return;
            case Stage::turn: return admitted(session_->locks().resume(*this, is_stopped_));
            case Stage::pause: return drive(pause());
            case Stage::nesting_pause: return drive(pause_nesting());
        }
    }

    void wait(Stage stage, TimePoint until) noexcept {
        begin_to_wait();
        stage_ = stage;
        set_timer(until);
        if (may_go_on_elsewhere()) keeper_ = Keeper::offered;
    }
    void go_on() noexcept {
        stage_ = Stage::nothing;
        clear_timer();
    }

    void enter() {
        asked_.emplace(ask());
        admitted(session_->locks().enter(*asked_, *this, is_stopped_));
    }

    void admitted(LockTable::Admission admission) {
        using Outcome = LockTable::Outcome;
        if (admission.outcome == Outcome::queued) {
            wait(Stage::turn, admission.wake_at);
        } else {
            go_on();
        }
        if (admission.expired != nullptr) session_->declare_lost(admission.expired);
        switch (admission.outcome) {
            case Outcome::queued: return;
            case Outcome::turn: return drive(contend({session_->locks(), admission.turn}));
            case Outcome::handed: return drive(take_over(std::move(admission.hold)));
            default: break;
        }
        drive(machine().not_admitted(admission.outcome, admission.busy, Clock::now()));
    }

    template <class Action>
    void drive(std::optional<Action> action) {
        while (action) {
            action = visit([this](const auto& wanted) { return this->carry_out(wanted); }, *action);
        }
        if (!is_complete_ && result_) complete();
    }
    void drive(AcquisitionAction action) { drive(Next{action}); }
    void drive(NestAction action) { drive(NextNest{action}); }

    void complete() {
        is_complete_ = true;
        note_unanswered(false);
        result_ = told(*std::move(result_));
        machine_ = nullptr;
        listen_no_more();
        finish();
    }

    using AcquisitionSteps::carry_out;

    Next carry_out(const SendSet& send) {
        return try_once(send, [session = session_](const Hold& hold, bool again) {
            return again ? script(*session, hold, {}) : plain_set(hold);
        });
    }

    Next carry_out(const SendScript& send) {
        if (send.announce) turn_->announce(*hold_);
        return try_once(send, [session = session_, ttl = send.queue_ttl](const Hold& hold, bool) {
            return script(*session, hold, ttl);
        });
    }

    template <class Try, class Make>
    Next try_once(const Try& planned, Make make) {
        if (is_stopped_) return machine().cancelled();
        send(
            CommandRank::usual, OrderTime{planned.answer_by, planned.give_up_at}, hold_,
            std::move(make),
            [this](const Expected<Reply, Fault>& reply, const MasterSets& masters, TimePoint sent) {
                drive(try_answered(reply, masters, sent));
            },
            LateAnswer{session_, machine().token().tries().sent, machine().token().at_masters(),
                       weak_self()});
        return std::nullopt;
    }

    /// The answer to a try that was given up. Where nobody goes on with its token, the lock that it has taken is
    /// released: the token's last release may have been carried out before it.
    struct LateAnswer {
        Session* session;
        std::uint64_t number;
        std::shared_ptr<TokenAtMasters> masters;
        std::weak_ptr<AcquireOperation> operation;
        void operator()(const Hold& hold, const Expected<Reply, Fault>& reply,
                        TimePoint sent) const {
            if (!reply) return;
            if (masters != nullptr) return masters->settled();
            const auto grant = late_grant(hold, {.sent = sent, .number = number}, *reply);
            if (!grant || session->locks().deliver(*grant)) return;
            auto asking = operation.lock();
            if (asking == nullptr || !asking->contends_with(hold))
                release_unowned(*session, hold.terms(), hold.token());
            // The user's objects that it has are not destroyed on this thread.
            if (asking != nullptr) session->destroy_later(std::move(asking));
        }
    };

    /// Its next try will find that the token has the lock.
    bool contends_with(const Hold& hold) const noexcept {
        return !is_complete_ && hold_ != nullptr && hold_->token().bytes == hold.token().bytes;
    }

    std::weak_ptr<AcquireOperation> weak_self() noexcept {
        return std::static_pointer_cast<AcquireOperation>(shared_from_this());
    }

    Next carry_out(const StoreFence& store) {
        send(
            CommandRank::usual, store.answer_by, hold_,
            [lease = lease_, fence = store.fence](const Hold& hold, bool) {
                return store_fence_call(hold, lease, fence);
            },
            [this](const Expected<Reply, Fault>& reply, const MasterSets&, TimePoint) {
                drive(fence_answered(reply));
            });
        return std::nullopt;
    }

    Next carry_out(const SleepUntil& sleep) {
        if (sleep.announce) turn_->announce(*hold_);
        if (sleep.subscribe) session_->subscription(hold_->key()).start();
        note_unanswered(machine().fault() != nullptr);
        until_ = is_unanswered_ ? spread(sleep.until) : sleep.until;
        return pause();
    }

    /// Where no server answers, all who wait try again and again. Thousands do so less often, as they would keep the
    /// engine from all else.
    TimePoint spread(TimePoint until) {
        constexpr Clock::duration for_each = std::chrono::microseconds{100};
        constexpr Clock::duration longest = std::chrono::seconds{2};
        const TimePoint now = Clock::now();
        const Clock::duration quarter = saturating_sub(machine().deadline(), now) / 4;
        const auto unanswered = static_cast<Clock::rep>(session_->unanswered());
        const Clock::duration pause = std::min({unanswered * for_each, longest, quarter});
        Random random{acquisition_.id ^ static_cast<std::uint64_t>(now.time_since_epoch().count())};
        const auto random_pause = Clock::duration{random.between(pause.count() / 2, pause.count())};
        return std::max(until, saturating_add(now, random_pause));
    }

    /// Whether its last try has got no answer of use: those are counted.
    void note_unanswered(bool unanswered) noexcept {
        if (std::exchange(is_unanswered_, unanswered) != unanswered)
            session_->count_unanswered(unanswered);
    }

    Next pause() {
        const LockTable::Pause pause = turn_->pause(*this, until_, is_stopped_);
        if (!pause.ended) {
            wait(Stage::pause, pause.wake_at);
            return std::nullopt;
        }
        go_on();
        return pause_ended(*pause.ended);
    }

    Next carry_out(const ReturnVotes& votes) {
        session_->dismiss(*hold_);
        // A stop ends the wait within 50 ms. A try that is not answered by then is released in the
        // background.
        const TimePoint soon = saturating_add(Clock::now(), last_answer_slack / 2);
        send(
            CommandRank::release, is_stopped_ ? std::min(votes.answer_by, soon) : votes.answer_by,
            hold_, [](const Hold& hold, bool) { return release_call(hold); },
            [this](const Expected<Reply, Fault>&, const MasterSets& masters, TimePoint) {
                drive(machine().votes_returned(masters));
            },
            WhetherAnsweredLate{clean_up_if_silent()});
        return std::nullopt;
    }

    /// Only threads join each other.
    Next carry_out(const AskToJoin&) { return machine().not_joined(); }

    Next carry_out(const LetGo& let_go) {
        this->let_go();
        if (let_go.ask_again) {
            enter();
        } else {
            result_.emplace(Unexpected{machine().error()});
        }
        return std::nullopt;
    }

    NextNest carry_out(const SendNest& nest) {
        send(
            CommandRank::extension, nest.answer_by, hold_,
            [count = count_, ttl = hold_->server_ttl(nest.lease)](const Hold& hold, bool) {
                return nest_call(hold, count, ttl);
            },
            [this](const Expected<Reply, Fault>& reply, const MasterSets&, TimePoint sent) {
                drive(nest_answered(reply, sent));
            });
        return std::nullopt;
    }

    NextNest carry_out(const NestSleep& sleep) {
        until_ = sleep.until;
        return pause_nesting();
    }

    NextNest pause_nesting() {
        const auto pause = session_->locks().pause(*hold_, *this, until_, is_stopped_);
        if (!pause.ended) {
            wait(Stage::nesting_pause, pause.wake_at);
            return std::nullopt;
        }
        go_on();
        return nesting_->woken(*pause.ended, Clock::now(), hold_->valid_until());
    }

    static inline thread_local bool one_goes_on = false;  // on this thread, which releases a lock

    const std::stop_token stop_;
    const std::shared_ptr<Hold> outer_;
    Nest inner_{};  // until it has begun: its place in the outer hold
    std::optional<AcquireRequest> asked_{};
    TimePoint until_{};
    std::atomic<Keeper> keeper_{Keeper::engine};
    Next left_{};  // to be done by the engine, of what a releaser has begun
    Stage stage_ = Stage::nothing;
    bool is_stopped_ = false;
    bool is_complete_ = false;
    bool is_unanswered_ = false;
};

}  // namespace redlatch::inline v0::detail
