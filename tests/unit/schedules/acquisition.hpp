#pragma once

#include "process.hpp"

namespace redlatch::test::schedules {

/// One acquisition of a thread, from `lock()` to the end of `unlock()`: what `steps/acquire.hpp`
/// and `steps/releasing.hpp` do around the library's cores, without threads and I/O.
class Acquisition {
public:
    Acquisition(Process& process, const Errand& errand, std::size_t thread,
                std::function<void()> on_end)
        : process_(&process),
          world_(&process.world()),
          host_(&process.host()),
          entry_(&process.entry(errand.lock)),
          errand_(&errand),
          thread_(thread),
          started_(world_->timeline->now()),
          core_(plan(), host_->clock(), world_->dice->seed()),
          on_end_(std::move(on_end)) {}

    void start() {
        world_->checker->waits(process_->number(), errand_->lock, 1);
        if (errand_->cancelled) host_->soon(*errand_->cancelled, [this] { cancel(); });
        process_->take_run_out(*entry_);
        if (entry_->free() && entry_->queue.empty()) return contend();
        if (errand_->wait.is_none()) return end_without();
        entry_->queue.push_back(this);
        state_ = State::queues;
        rouse();
    }

    /// Something has changed that the thread may be sleeping for.
    void ring() {
        host_->soon(world_->network->latency() / 4, [this] { rouse(); });
    }

private:
    enum class State { queues, pauses, busy, ended };

    detail::AcquirePlan plan() const {
        return {.wait = errand_->wait,
                .lease = errand_->lease,
                .drift = world_->plan->drift,
                .backoff = world_->plan->backoff,
                .command_timeout = world_->plan->command_timeout};
    }

    void cancel() {
        stop_ = true;
        rouse();
        if (exchange_ != nullptr) std::exchange(exchange_, nullptr)->cancel();
    }

    void rouse() {
        if (state_ == State::queues) wait_for_turn();
        if (state_ == State::pauses) wait_for_cause();
    }

    void sleep_until(TimePoint until) {
        if (until >= alarm_) return;
        alarm_ = until;
        host_->later(host_->moment_of(until), [this, until] {
            if (alarm_ == until) alarm_ = TimePoint::max();
            rouse();
        });
    }

    // ---- The gate

    void wait_for_turn() {
        const bool front = entry_->queue.front() == this;
        if (front) process_->take_run_out(*entry_);
        if (front && entry_->free()) {
            entry_->queue.pop_front();
            return contend();
        }
        if (stop_ || host_->clock() >= core_.deadline()) return leave_queue(front);
        sleep_until(core_.deadline());
        if (front && entry_->current != nullptr && entry_->current->phase == Hold::Phase::held) {
            sleep_until(entry_->current->valid_until);
        }
    }

    void leave_queue(bool was_front) {
        std::erase(entry_->queue, this);
        if (was_front) entry_->wake_front();
        end_without();
    }

    void pause(TimePoint until) {
        entry_->contender = this;
        state_ = State::pauses;
        paused_until_ = until;
        wait_for_cause();
    }

    void wait_for_cause() {
        const TimePoint now = host_->clock();
        if (stop_) {
            wake([&] { return core_.cancelled({}); });
        } else if (entry_->grant) {
            wake([&] { return granted(*std::exchange(entry_->grant, std::nullopt), now); });
        } else if (now >= entry_->recheck_at) {
            entry_->recheck_at = TimePoint::max();
            wake([&] { return core_.pause_over(now); });
        } else if (now >= paused_until_) {
            wake([&] { return core_.pause_over(now); });
        } else {
            sleep_until(std::min(paused_until_, entry_->recheck_at));
        }
    }

    template <class Decide>
    void wake(Decide decide) {
        entry_->contender = nullptr;
        state_ = State::busy;
        act(decide());
    }

    // ---- At the server

    void contend() {
        entry_->contended = true;
        state_ = State::busy;
        token_ = first_standing();
        act(core_.begin(host_->clock()));
    }

    detail::TokenState first_standing() {
        if (const auto& ticket = entry_->ticket) {
            token_ = detail::TokenState::with_place(ticket->token, ticket->unclear);
            if (ticket->fenced == errand_->fenced) return token_;
            abandon();
        }
        return detail::TokenState{process_->new_token(thread_)};
    }

    void act(detail::AttemptAction action) {
        if (std::holds_alternative<detail::GiveUp>(action)) return give_up();
        if (const auto* acquired = std::get_if<detail::Acquired>(&action)) {
            return keep(detail::valid_until(acquired->since, errand_->lease, world_->plan->drift));
        }
        if (const auto* pause = std::get_if<detail::Pause>(&action)) {
            const bool for_ever = world_->has(Bug::no_recheck) && will_be_told_;
            return this->pause(for_ever ? core_.deadline() : pause->until);
        }
        if (stop_) return give_up();
        if (token_.dead()) {
            abandon();
            token_ = detail::TokenState{
                world_->has(Bug::dead_token_used) ? token_.token() : process_->new_token(thread_)};
            announced_ = false;
        }
        send_try(std::get<detail::SendTry>(action));
    }

    detail::AttemptAction granted(const detail::Grant& grant, TimePoint now) {
        const Drift& drift = world_->plan->drift;
        auto since = token_.granted(grant, now, drift.factor);
        if (since) since = counted_from(*since);
        if (!since) since = wrongly_granted(grant, now);
        if (errand_->fenced && grant.fence == 0) since.reset();
        fence_ = grant.fence;
        if (!since || now >= detail::valid_until(*since, errand_->lease, drift)) {
            return core_.pause_over(now);
        }
        return core_.taken(*since, now);
    }

    void send_try(const detail::SendTry& next) {
        const bool first = core_.tries() == 1 && !token_.queued();
        const bool lately = host_->clock() < entry_->contended_at + 10s;
        if (!first || world_->plan->on_hash || errand_->fenced || lately) return send_script(next);
        Command plain = command(Command::Kind::set, 0ms);
        Command again = command(Command::Kind::acquire, 0ms);
        again.hears = false;
        send(std::move(plain), std::move(again), next.answer_by, [this, next](Outcome outcome) {
            if (!outcome || !outcome->value.is_nil()) return read(0ms, std::move(outcome));
            entry_->contended_at = sent_;
            send_script(next);
        });
    }

    void send_script(const detail::SendTry& next) {
        const bool has_heirs = next.last && !entry_->queue.empty();
        const milliseconds stay =
            token_.queue_ttl(next.last, has_heirs, core_.presence_ttl(host_->clock()));
        if (stay > 0ms && !std::exchange(announced_, true)) {
            entry_->ticket = {.token = token_.token(), .unclear = false, .fenced = errand_->fenced};
        }
        const Command script = command(Command::Kind::acquire, stay);
        send(script, script, next.answer_by,
             [this, stay](Outcome outcome) { read(stay, std::move(outcome)); });
    }

    Command command(Command::Kind kind, milliseconds stay) const {
        return {.kind = kind,
                .lock = errand_->lock,
                .token = token_.token(),
                .server = world_->server->id(),
                .lease = errand_->lease.duration(),
                .stay = stay,
                .hears = process_->possible(),
                .fenced = errand_->fenced};
    }

    /// What the server finds late although it is waited for is sent once more, by the clock that it
    /// has told.
    void send(const Command& command, const Command& again, TimePoint answer_by,
              const Exchange::Done& done) {
        send_once(command, again, answer_by,
                  [this, command, again, answer_by, done](Outcome outcome) {
                      if (!found_late(outcome)) return done(std::move(outcome));
                      send_once(command, again, answer_by, [this, done](Outcome second) {
                          if (found_late(second)) second = Unexpected{too_late()};
                          done(std::move(second));
                      });
                  });
    }

    static detail::Fault too_late() {
        return {.error = {Errc::unavailable, {}, {}, "too late", {}}};
    }

    bool found_late(const Outcome& outcome) {
        if (!outcome) return false;
        const auto& [value, server, repeated] = *outcome;
        const bool knows_time = value.elements.size() >= 5 && value.elements[3].integer > 0;
        if (knows_time) heard(microseconds{value.elements[3].integer}, server);
        if (!value.is_error()) return false;
        detail::Fault fault = too_late();
        fault.error.message = value.text;
        heard(detail::late_reply_time(fault).value(), server);
        return true;
    }

    void heard(microseconds time, const std::shared_ptr<const std::string>& server) {
        if (server != world_->server->id()) return;
        process_->server_clock().answered(sent_, time, host_->clock());
    }

    void send_once(Command command, Command again, TimePoint answer_by, Exchange::Done done) {
        sent_ = host_->clock();
        process_->limit(command, answer_by);
        process_->limit(again, answer_by);
        exchange_ = world_->network->call(*host_, std::move(command), std::move(again), answer_by,
                                          [this, done = std::move(done)](Outcome outcome) {
                                              exchange_ = nullptr;
                                              done(std::move(outcome));
                                          });
    }

    void read(milliseconds stay, Outcome outcome) {
        const TimePoint now = host_->clock();
        will_be_told_ = false;
        if (!outcome) {
            (*world_->trace)("no answer for ", token_.token().substr(31));
            token_.failed(stay, outcome.error().maybe_executed);
            return act(core_.fault(now, std::move(outcome).error()));
        }
        if (outcome->repeated) token_.repeated();
        const auto& elements = outcome->value.elements;
        if (elements.empty() || elements[0].integer == 1) {
            fence_ = elements.empty() ? 0 : static_cast<std::uint64_t>(elements[4].integer);
            return act(taken(now));
        }
        act(core_.refused(now, refusal(*outcome, now)));
    }

    detail::AttemptAction taken(TimePoint now) {
        token_.acquired();
        detail::AttemptAction action = core_.taken(counted_from(sent_), now);
        if (!std::holds_alternative<detail::Acquired>(action)) token_.die();
        return action;
    }

    detail::Refusal refusal(const Answer& answer, TimePoint now) {
        entry_->contended_at = now;
        const auto number = [&answer](std::size_t i) { return answer.value.elements[i].integer; };
        detail::Refusal refusal{.ttl = milliseconds{number(1)}};
        const std::int64_t place = number(2);
        if (place < 0) {
            token_.refused(place);
            return refusal;
        }
        process_->subscribe();
        sample_ = {.sent = sent_,
                   .time = microseconds{number(3)},
                   .ttl = errand_->lease.duration(),
                   .server = answer.server};
        token_.refused(place, sample_);
        will_be_told_ = process_->listening() && number(4) == 1;
        if (will_be_told_) refusal.place = place;
        return refusal;
    }

    // ---- Mistakes that can be made

    TimePoint counted_from(TimePoint since) const {
        return world_->has(Bug::counted_from_arrival) ? host_->clock() : since;
    }

    std::optional<TimePoint> wrongly_granted(const detail::Grant& grant, TimePoint now) const {
        if (token_.dead() || !token_.queued() || grant.token != token_.token()) return {};
        detail::ClockSample sample = sample_;
        if (world_->has(Bug::late_grant_believed)) {
            sample.time = std::min(sample.time, grant.time - 1us);
        } else if (world_->has(Bug::anchor_kept)) {
            sample.server = std::make_shared<const std::string>(grant.server);
        } else {
            return {};
        }
        return detail::granted_at(sample, grant, now, world_->plan->drift.factor);
    }

    // ---- The end of the wait

    void give_up() {
        (*world_->trace)("gives up ", token_.token().substr(31));
        const bool goes_on = token_.can_pass_place_on() && entry_->bequeath(token_.unclear());
        if (!goes_on) {
            if (entry_->contended) entry_->hand_turn_on(false);
            abandon();
        }
        end_without();
    }

    void abandon() {
        world_->checker->dies(token_.token());
        if (!token_.clean_up().needed()) return;
        std::vector<Moment> pauses{0ns};
        if (token_.unclear()) pauses.emplace_back(process_->too_late());
        process_->bury(dead(), std::move(pauses));
    }
    Process::Dead dead() const {
        return {.token = token_.token(), .lock = errand_->lock, .lease = errand_->lease};
    }

    void end_without() {
        stop_waiting();
        end();
    }

    void stop_waiting() {
        state_ = State::busy;
        world_->checker->waits(process_->number(), errand_->lock, -1);
        const milliseconds patience =
            errand_->wait.is_none() ? world_->plan->command_timeout : milliseconds{0};
        world_->checker->returned(process_->number(), started_,
                                  detail::saturating_add(core_.deadline(), patience));
    }

    void end() {
        state_ = State::ended;
        on_end_();
    }

    void keep(TimePoint valid_until) {
        hold_ = std::make_shared<Hold>(Hold{.lock = errand_->lock,
                                            .token = token_.token(),
                                            .lease = errand_->lease,
                                            .valid_until = valid_until,
                                            .unclear = token_.unclear(),
                                            .fence = errand_->fenced ? fence_ : 0});
        entry_->current = hold_;
        entry_->hand_turn_on(false);
        stop_waiting();
        world_->checker->begins(hold_);
        host_->soon(errand_->hold, [this] { release(); });
        if (errand_->watched) renew_at(host_->clock() + (valid_until - host_->clock()) / 3);
    }

    // ---- Renewal

    void renew_at(TimePoint when) {
        host_->later(host_->moment_of(when), [this] { renew(); });
    }

    bool to_be_renewed() const {
        const bool held = hold_->phase == Hold::Phase::held && still_valid();
        return held || world_->has(Bug::released_renewed);
    }

    void renew() {
        if (!to_be_renewed()) return;
        const Lease lease = errand_->lease;
        const TimePoint sent = host_->clock();
        const Command command{.kind = Command::Kind::extend,
                              .lock = errand_->lock,
                              .token = hold_->token,
                              .server = world_->server->id(),
                              .lease = lease.duration(),
                              .fenced = errand_->fenced};
        const TimePoint answer_by =
            sent + detail::renewal_patience(lease, world_->plan->command_timeout);
        world_->network->call(*host_, command, command, answer_by,
                              [this, sent](const Outcome& outcome) { renewed(sent, outcome); });
    }

    /// An answer that comes when the hold is over changes nothing.
    void renewed(TimePoint sent, const Outcome& outcome) {
        const TimePoint now = host_->clock();
        const Lease lease = errand_->lease;
        if (!to_be_renewed()) return;
        if (!outcome) return renew_at(detail::renewal_retry_due(now, lease));
        if (outcome->value.integer == 0) return lose();
        const TimePoint end = detail::valid_until(counted_from(sent), lease, world_->plan->drift);
        hold_->valid_until = std::max(hold_->valid_until, end);
        world_->checker->renewed(*hold_, outcome->server);
        renew_at(detail::renewal_due(sent, lease));
    }

    void lose() {
        world_->checker->lost(hold_);
        hold_->phase = Hold::Phase::over;
        process_->vacate(*hold_);
        if (hold_->unclear) process_->bury(dead(), {process_->too_late()});
    }

    // ---- The release

    void release() {
        if (hold_->phase != Hold::Phase::held) return end();  // it ran out, and somebody noticed
        hold_->phase = Hold::Phase::releasing;
        world_->checker->ends(hold_);
        releasing_.emplace(still_valid());
        release_by_ = host_->clock() + world_->plan->command_timeout;
        send_release();
    }

    bool still_valid() const { return host_->clock() < hold_->valid_until; }

    void send_release() {
        const Command command = process_->release_of(hold_->token, hold_->lock);
        world_->network->call(*host_, command, command, release_by_,
                              [this](Outcome outcome) { read_release(std::move(outcome)); });
    }

    void read_release(Outcome outcome) {
        constexpr milliseconds retry_pause{20};
        if (outcome) {
            if (outcome->repeated) releasing_->unclear_try();
            return released(releasing_->answered(outcome->value.integer != 0, still_valid()));
        }
        const bool time_left = host_->clock() + retry_pause < release_by_;
        if (auto end = releasing_->failed(outcome.error(), still_valid(), time_left)) {
            return released(*std::move(end));
        }
        host_->soon(retry_pause, [this] { send_release(); });
    }

    void released(const Result<Release>& outcome) {
        hold_->phase = Hold::Phase::over;
        process_->vacate(*hold_);
        if (!outcome || hold_->unclear) {
            process_->bury(dead(), {process_->too_late()});
        }
        end();
    }

    Process* process_;
    const World* world_;
    Host* host_;
    GateEntry* entry_;
    const Errand* errand_;
    std::size_t thread_;
    Moment started_;
    detail::Attempts core_;
    std::function<void()> on_end_;

    State state_ = State::busy;
    bool stop_ = false;
    TimePoint alarm_ = TimePoint::max();
    TimePoint paused_until_{};
    TimePoint sent_{};
    std::shared_ptr<Exchange> exchange_{};
    detail::TokenState token_{{}};
    detail::ClockSample sample_{};
    std::uint64_t fence_ = 0;
    bool announced_ = false;
    bool will_be_told_ = false;

    std::shared_ptr<Hold> hold_{};
    std::optional<detail::ReleaseOutcome> releasing_{};
    TimePoint release_by_{};
};

// ---- What needs to know an acquisition

inline void GateEntry::wake_front() {
    if (!queue.empty()) queue.front()->ring();
}

inline void GateEntry::hand_turn_on(bool with_ticket) {
    contended = false;
    recheck_at = TimePoint::max();
    grant.reset();
    if (!with_ticket) ticket.reset();
    wake_front();
}

inline void Process::listen() {
    listening_ = true;
    const auto span = std::chrono::nanoseconds{entries_.size() * 1ms}.count();
    for (GateEntry& entry : entries_) {
        if (!entry.ticket) continue;
        entry.recheck_at = host_.clock() + Moment{world_->dice->between(0, span)};
        if (entry.contender != nullptr) entry.contender->ring();
    }
}

inline bool Process::deliver(const detail::Grant& grant) {
    GateEntry& here = entry(world_->server->lock_of(grant.key));
    if (here.ticket && here.ticket->token == grant.token) {
        here.grant = grant;
        if (here.contender != nullptr) here.contender->ring();
        return true;
    }
    return here.current != nullptr && here.current->token == grant.token;
}

inline void Process::next(std::size_t thread, std::size_t errand) {
    if (errand == 0) ++unfinished_;
    const auto& errands = plan_->threads[thread];
    if (errand == errands.size()) {
        --unfinished_;
        return;
    }
    host_.soon(errands[errand].pause, [this, &errands, thread, errand] {
        acquisitions_.push_back(std::make_unique<Acquisition>(
            *this, errands[errand], thread, [this, thread, errand] { next(thread, errand + 1); }));
        acquisitions_.back()->start();
    });
}

}  // namespace redlatch::test::schedules
