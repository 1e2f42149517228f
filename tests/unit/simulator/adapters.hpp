#pragma once

#include "quorum_asking.hpp"
#include <redlatch/core/acquisition.hpp>
#include <redlatch/core/downgrade_end.hpp>
#include <redlatch/core/extension.hpp>
#include <redlatch/core/nesting.hpp>
#include <redlatch/core/own_claim.hpp>
#include <redlatch/core/release.hpp>
#include <redlatch/steps/acquire_answer.hpp>
#include <redlatch/steps/hold_terms.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

using detail::LockOwner;
using detail::MasterSets;
using detail::ReplyShape;

/// What an acquisition has got: a hold, and which of its acquisitions is meant.
struct Got {
    HoldPtr hold;
    std::uint64_t id;
};

/// For one of several masters that has not answered a command when the others have.
inline Request::OnLate if_silent(Client& client, const HoldPtr& hold, CleanUp what) {
    if (!what.needed()) return {};
    return [&client, hold, what](bool answered) {
        if (!answered) client.clean_up(hold, what);
    };
}

/// The end of one acquisition: what `Releasing` does.
class Releasing {
public:
    using Machine = detail::ReleaseMachine;
    using Done = std::function<void()>;

    Releasing(Client& client, Done done) : client_(&client), done_(std::move(done)) {}

    void start(const LockTable::Ending& ending, ReleaseMode mode,
               TimePoint give_up_at = TimePoint::max()) {
        using Kind = LockTable::Ending::Kind;
        endings().took("end", static_cast<std::size_t>(ending.kind));
        if (ending.kind == Kind::nothing) return std::exchange(done_, nullptr)();
        hold_ = ending.hold;
        ended_ = ending.id;
        downgrades_ = ending.downgrades;
        (*client_->world().trace)("releases ", tail(hold_->token().bytes));
        started_ = client_->world().timeline->now();
        if (ending.count == 0) client_->world().checker->needs_no_delay(*hold_);
        was_promised_ = ending.kind != Kind::past && client_->world().checker->was_promised(*hold_);
        was_valid_ = client_->now() < hold_->valid_until();
        give_up_at_ = std::min(give_up_at, client_->now() + client_->command_timeout());
        act("begin", machine_.begin(Machine::Ended::of(ending, mode, give_up_at_), client_->now()));
    }

    /// Nobody gets it.
    void abandon(const LockTable::Ending& ending) {
        if (ending.hold == nullptr) return;
        hold_ = ending.hold;
        ended_ = ending.id;
        (*client_->world().trace)("abandons ", tail(hold_->token().bytes));
        client_->world().checker->needs_no_delay(*hold_);
        act("abandon", machine_.abandon(Machine::Ended::of(ending, ReleaseMode::sent), heard()));
    }

private:
    using Action = Machine::Action;

    TimePoint now() const { return client_->now(); }

    void act(const char* event, Action action) {
        coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }
    void next() { act("next", machine_.next()); }

    void carry_out(const Machine::StopRenewal& stop) {
        const World& world = client_->world();
        if (world.has(Mutant::released_renewed) && hold_->renewed_by_watchdog) renew_on();
        if (stop.whole_hold || world.has(Mutant::nested_end_stops_renewal)) {
            client_->dismiss(*hold_);
        } else {
            client_->renewal().machine().dismiss_one(*hold_, ended_);
        }
        next();
    }

    /// As a renewal that knows nothing of the release would do it.
    void renew_on() {
        const Lease lease = hold_->terms().lease;
        client_->host().soon(Moment{lease.duration()} / 3, [this, lease] {
            client_->world().checker->prolongs(*hold_);
            const Call call = detail::extend_call(*hold_, lease);
            client_->ask(hold_, call, call, now() + client_->command_timeout(),
                         [](const auto&, const auto&) {});
        });
    }

    void carry_out(const Machine::SendCount& send) {
        constexpr std::int64_t ttl_as_it_is = 0;
        ask(detail::nest_call(*hold_, send.count, ttl_as_it_is), send.answer_by,
            [this](const Reply& reply) {
                const bool ours = reply.view().integer() != 0;
                act(ours ? "count answered" : "count answered: not ours",
                    machine_.count_answered(ours, hold_->is_given_up()));
            });
    }

    void carry_out(const Machine::SendMove& send) {
        next_ = std::make_shared<Hold>(hold_->terms(), client_->new_token(hold_->owner()),
                                       hold_->owner());
        const TimePoint sent = now();
        const std::int64_t ttl = next_->server_ttl(next_->terms().lease);
        ask(detail::move_call(*hold_, next_->token(), ttl), send.answer_by,
            [this, sent](const Reply& reply) {
                const detail::ReplyView answer = reply.view();
                next_->taken(sent);
                const bool moved = answer[0].integer() == 1;
                act(moved ? "moved" : "not moved",
                    machine_.move_answered(
                        {.moved = moved,
                         .repeated = reply.repeated,
                         .others_wait = answer[1].integer() > 0,
                         .fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0)),
                         .sent = sent,
                         .valid_until = next_->valid_until()}));
            });
    }

    void carry_out(const Machine::SendRelease& send) {
        client_->world().checker->releases(*of(send.token));
        const auto answered = [this](const Reply& reply) {
            const auto value = reply.view().integer().value_or(0);
            static constexpr std::array events{"not ours", "released", "released, more to serve"};
            act(events[static_cast<std::size_t>(value)],
                machine_.release_answered(
                    {.value = value, .repeated = reply.repeated, .masters = heard()}, now()));
        };
        ask(detail::release_call(*of(send.token), now()), send.answer_by, answered);
    }

    void carry_out(const Machine::PostRelease& post) {
        client_->world().checker->releases(*hold_);
        const bool sent =
            client_->post(hold_, detail::release_call(*hold_, now()), post.answer_by,
                          [client = client_, hold = hold_, valid = post.valid,
                           was_valid = was_valid_](const auto& reply, const auto&) {
                              sent_release_ended(*client, hold, reply, valid, was_valid);
                          });
        act(sent ? "posted" : "not posted", machine_.posted(sent));
    }

    static void sent_release_ended(Client& client, const HoldPtr& hold,
                                   const Expected<Reply, Fault>& reply, bool valid,
                                   bool was_valid) {
        using detail::SentRelease;
        const SentRelease what = reply ? SentRelease::answered(reply->view().integer().value_or(0),
                                                               hold->unanswered().acquire, valid)
                                       : SentRelease::failed(reply.error().error, valid);
        const bool is_held = what.outcome && *what.outcome != Release::expired;
        if (is_held && !was_valid) client.world().checker->told_wrongly(*hold, "held until now");
        sent_coverage().took(reply ? "answered" : "failed", what.clean_up.needed() ? 0 : 1);
        client.clean_up(hold, what.clean_up);
    }

    void carry_out(const Machine::RetryAt& retry) {
        client_->host().later(client_->host().moment_of(retry.time),
                              [this] { act("pause_over", machine_.pause_over()); });
    }

    void carry_out(const Machine::PassOn& over) {
        hold_->advance(Phase::releasing, Phase::released);
        const auto& move = over.move;
        const bool kept = client_->with_table([&](LockTable& table) {
            return table.moved(*hold_,
                               {next_->token(), move.sent, {.unclear = move.repeated}, move.fence},
                               move.others_wait, now());
        });
        act(kept ? "handed over" : "nobody to hand over to", machine_.passed_on(kept));
    }

    void carry_out(const Machine::FreeHold&) {
        hold_->advance(Phase::releasing, Phase::released);
        client_->with_table([this](LockTable& table) { table.released(*hold_); });
        next();
    }

    void carry_out(const Machine::DeclareLost&) {
        client_->declare_lost(hold_, detail::ServerKeeps::nothing);
        next();
    }

    void carry_out(const Machine::CleanUpToken& clean_up) {
        const bool is_next = clean_up.token == Machine::Which::next;
        if (is_next && client_->world().has(Mutant::moved_token_left)) return next();
        client_->clean_up(of(clean_up.token), clean_up.what);
        next();
    }

    void carry_out(const Machine::Done&) {
        if (downgrades_) client_->world().checker->downgraded(*hold_, Client::lock_of(*hold_));
        if (give_up_at_ != TimePoint::max()) {
            client_->world().checker->returned(client_->number(), started_, give_up_at_, "release");
            check_outcome();
        }
        std::exchange(done_, nullptr)();
    }

    /// Where the release was only sent, nobody hears of its outcome.
    void check_outcome() {
        const auto outcome = machine_.take_outcome();
        if (!outcome || !*outcome) return;
        const Checker& checker = *client_->world().checker;
        const bool was_promised = was_promised_ && checker.was_promised(*hold_);
        const bool is_expired = **outcome == Release::expired;
        if (!is_expired && !was_valid_) checker.told_wrongly(*hold_, "held until now");
        if (is_expired && was_promised) checker.told_wrongly(*hold_, "expired");
    }

    const HoldPtr& of(Machine::Which token) const {
        return token == Machine::Which::held ? hold_ : next_;
    }

    detail::MastersHeard heard() const {
        return {told_, may_overtake_ || hold_->unanswered().acquire};
    }

    void ask(const Call& call, TimePoint answer_by, std::function<void(const Reply&)> answered) {
        const auto done = [this, held = hold_, answered = std::move(answered)](
                              const Expected<Reply, Fault>& reply, const MasterSets& sets) {
            told_ = sets.heard_of();
            if (reply) return answered(*reply);
            act("failed", machine_.failed(reply.error(), heard(), now()));
        };
        const auto asking = client_->ask(next_ != nullptr ? next_ : hold_, call, call, answer_by,
                                         done, if_silent(*client_, hold_, machine_.if_silent()));
        if (asking->may_overtake()) may_overtake_ = true;
    }

    static Coverage::Machine& endings() {
        static Coverage::Machine machine{"LockTable",
                                         {"nothing", "nested", "last", "handed", "left", "past"}};
        return machine;
    }
    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{
            "Release",
            {"StopRenewal", "SendCount", "SendMove", "SendRelease", "PostRelease", "RetryAt",
             "PassOn", "FreeHold", "DeclareLost", "CleanUpToken", "Done"}};
        static_assert(Action::size == 11);
        return machine;
    }
    static Coverage::Machine& sent_coverage() {
        static Coverage::Machine machine{"SentRelease", {"clean-up", "nothing"}};
        return machine;
    }

    Client* client_;
    Done done_;
    Machine machine_{};
    HoldPtr hold_{};
    std::uint64_t ended_ = 0;  // of its acquisitions, where others go on
    bool downgrades_ = false;
    bool was_promised_ = false;
    bool was_valid_ = false;
    HoldPtr next_{};
    std::uint64_t told_ = 0;
    bool may_overtake_ = false;  // a release may be carried out before the acquisition
    Moment started_{0};
    TimePoint give_up_at_ = TimePoint::max();
};

/// One acquisition: carries out what the machines say, as `Acquiring` does, and parks by a wake-up.
class Acquiring final : public Sleeper {
public:
    using Done = std::function<void(Result<Got>)>;

    Acquiring(Client& client, const AcquisitionPlan& wanted, LockOwner owner, LockOwner caller,
              const void* through, Done done)
        : client_(&client),
          world_(&client.world()),
          wanted_(&wanted),
          acquisition_{client.new_id(), through, wanted.watched, reads()},
          owner_(owner == LockOwner{} ? LockOwner::acquisition(acquisition_.id) : owner),
          caller_(caller == LockOwner{} ? owner_ : caller),
          terms_(terms()),
          started_(world_->timeline->now()),
          began_(client.now()),
          machine_(plan(), began_, client.noise().seed()),
          done_(std::move(done)) {}

    LockOwner owner() const { return owner_; }

    void start() {
        waits(1);
        if (wanted_->cancelled) {
            client_->host().soon(*wanted_->cancelled, [this] { cancel(); });
        }
        enter();
    }

    /// One more acquisition of `hold`, whoever owns it.
    void start_in(HoldPtr hold) {
        waits(1);
        if (wanted_->cancelled) {
            client_->host().soon(*wanted_->cancelled, [this] { cancel(); });
        }
        const auto count = client_->with_table(
            [&](LockTable& table) { return table.nest(*hold, detail::Nest{acquisition_}, now()); });
        Client::table_coverage().took("nest", count ? 0 : 1);
        if (!count) return fail({Errc::not_held, {}, {}, "the hold is over", {}});
        nest(std::move(hold), *count);
    }

    void ring() override {
        client_->host().soon(client_->start_up(), [this] { look(); });
    }

    void cancel() {
        if (state_ == State::over) return;
        stop_ = true;
        if (asking_ != nullptr) return std::exchange(asking_, nullptr)->cancel();
        look();
    }

private:
    using Outcome = LockTable::Outcome;
    using Woken = LockTable::Woken;
    static constexpr std::array woken{"in_time", "granted",   "recheck",
                                      "lost",    "cancelled", "closed"};
    static constexpr std::array not_admitted{"queued",    "turn",     "handed",
                                             "nested",    "deadlock", "busy",
                                             "cancelled", "closed",   "wrong_key_type"};
    enum class State { busy, queues, pauses, pauses_to_nest, over };

    detail::HoldTerms terms() const {
        const Plan& plan = *world_->plan;
        detail::PolicyTraits traits = Client::traits_of(plan);
        traits.fenced = wanted_->fenced;
        traits.watched = wanted_->watched;
        detail::HoldTerms terms{.keys = Names::get().of(wanted_->lock),
                                .traits = traits,
                                .lease = wanted_->lease,
                                .drift = plan.drift,
                                .lock_delay = wanted_->lock_delay,
                                .max_hold = wanted_->max_hold,
                                .replicas = wanted_->replicas,
                                .min_hold = wanted_->min_hold,
                                .claim = {wanted_->weight, claim_limit(plan)}};
        detail::set_own_entry(terms, {.acquisition = acquisition_.id,
                                      .caller = caller_,
                                      .owns_itself = wanted_->owns_itself || !caller_.thread(),
                                      .writes_here = writes_here(),
                                      .others_poll = polls()});
        return terms;
    }

    static std::int64_t claim_limit(const Plan& plan) {
        if (plan.claims == Claims::none) return 0;
        return plan.claims == Claims::permits ? plan.permits : detail::ClaimTerms::writer - 1;
    }

    bool reads() const { return world_->plan->reads(*wanted_); }

    bool writes_here() const {
        const auto hold = client_->table().find(Names::get().of(wanted_->lock)->lock, caller_);
        return hold != nullptr && hold->valid(now());
    }

    detail::AcquisitionPlan plan() const {
        const Plan& plan = *world_->plan;
        return {.attempts = {.wait = wanted_->wait,
                             .lease = wanted_->lease,
                             .drift = plan.drift,
                             .backoff = plan.backoff,
                             .command_timeout = plan.command_timeout,
                             .answer_by = answer_by()},
                .key = terms_.keys->lock,
                .traits = terms_.traits,
                .lock_delay = wanted_->lock_delay,
                .plain_set = !plan.on_hash && !plan.has_claims() && !wanted_->fenced,
                .replicated = wanted_->replicas != Replicas::none(),
                .polls = polls(),
                .several_masters = plan.masters > 1,
                .weight = wanted_->weight};
    }

    TimePoint answer_by() const {
        if (!wanted_->wait.is_none()) return wanted_->answer_by;
        return std::min(wanted_->answer_by, began_ + world_->plan->command_timeout);
    }

    unsigned handoffs_in_row() const {
        constexpr unsigned no_limit = 1'000'000;
        return world_->has(Mutant::hand_off_without_limit) ? no_limit : wanted_->local_handoffs;
    }
    bool polls() const { return wanted_->polls || world_->plan->masters > 1; }
    TimePoint now() const { return client_->now(); }

    // ---- What may happen at any time

    void sleep_until(TimePoint until) {
        asleep_until_ = until;
        client_->host().later(client_->host().moment_of(until), [this, until] {
            if (asleep_until_ == until) look();
        });
    }

    /// It was woken, or has slept enough.
    void look() {
        asleep_until_ = TimePoint::min();
        switch (state_) {
            case State::queues: return admitted(resume());
            case State::pauses: return pause();
            case State::pauses_to_nest: return pause_to_nest();
            case State::busy:
            case State::over: return;
        }
    }

    // ---- At the lock table

    void enter() {
        request_.emplace(detail::AcquireRequest{
            .terms = terms_,
            .owner = owner_,
            .caller = caller_,
            .wait = wanted_->wait,
            .deadline = machine_.deadline(),
            .acquisition = acquisition_,
            .handoffs = {.in_row = handoffs_in_row(), .others_poll = polls()},
            .delivered_later = is_delivered_later(),
            .try_by = answer_by(),
            .asked_at = now()});
        const bool writes = world_->plan->claims == Claims::shared && !reads();
        client_->comes(this, wanted_->lock, writes && !wanted_->wait.is_none());
        event_ = "enter_if_free";
        const LockTable::Turn turn = client_->with_table(
            [this](LockTable& table) { return table.enter_if_free(*request_); });
        if (turn) return admitted({.outcome = Outcome::turn, .turn = turn});
        event_ = "enter";
        admitted(client_->with_table(
            [this](LockTable& table) { return table.enter(*request_, *this, now(), stop_); }));
    }

    LockTable::Admission resume() {
        event_ = "resume";
        return client_->with_table(
            [this](LockTable& table) { return table.resume(*this, now(), stop_); });
    }

    void admitted(LockTable::Admission admission) {
        admissions().took(event_, static_cast<std::size_t>(admission.outcome));
        state_ = State::busy;
        if (admission.expired != nullptr) {
            client_->declare_lost(admission.expired, detail::ServerKeeps::nothing);
        }
        switch (admission.outcome) {
            case Outcome::queued:
                state_ = State::queues;
                return sleep_until(world_->has(Mutant::hand_off_wakes_nobody) ? machine_.deadline()
                                                                              : admission.wake_at);
            case Outcome::turn: return contend(admission.turn);
            case Outcome::handed: return take_over(std::move(admission.hold));
            case Outcome::nested:
                world_->checker->nests(*admission.hold);
                return nest(std::move(admission.hold), admission.count);
            case Outcome::busy:
            case Outcome::deadlock:
            case Outcome::cancelled:
            case Outcome::closed:
            case Outcome::wrong_key_type: break;
        }
        act(not_admitted[static_cast<std::size_t>(admission.outcome)],
            machine_.not_admitted(admission.outcome, admission.busy, now()));
    }

    void take_over(HoldPtr hold) {
        hold_ = std::move(hold);
        handed_ = hold_->claim == nullptr;
        if (!handed_) {
            (*world_->trace)("is let in with ", tail(hold_->token().bytes));
            client_->watch_clock(hold_);
            world_->checker->is_let_in(hold_->token().bytes, client_->came_at(this),
                                       client_->waiting_writers(wanted_->lock));
        }
        reserve_renewal();
        const bool valid = hold_->valid(now());
        const char* const how = handed_ ? "handed" : "let in";
        act(valid ? how : "handed too late", machine_.handed(valid, std::nullopt));
    }

    void contend(LockTable::Turn turn) {
        handed_ = false;
        turn_ = turn;
        if (terms_.joins && join(client_->with_table([this](LockTable& table) {
                return table.join(turn_, *request_, now());
            }))) {
            return;
        }
        const bool contended = client_->contention().lately(terms_.keys->lock, now());
        const auto& place = client_->with_table([&](LockTable & table) -> const auto& {
            return table.place(turn);
        });
        if (!place) return act("admitted", machine_.admitted(nullptr, contended));
        const detail::PassedPlace passed{.token = place->token.bytes,
                                         .traits = place->terms.traits,
                                         .unclear = place->unclear_try,
                                         .weight = place->terms.claim.weight,
                                         .tries = place->tries};
        hold_ = std::make_shared<Hold>(place->terms, place->token, LockOwner{});
        hold_->open_tries.longest = place->tries.longest;
        act("admitted with a place", machine_.admitted(&passed, contended));
    }

    /// As `AcquisitionSteps` has it. False where it contends for a claim of its own.
    bool join(LockTable::Joining joining, TimePoint asked = TimePoint::max()) {
        if (joining.to_ask != nullptr) {
            if (joining.first != nullptr) client_->watch_clock(joining.first);
            asked_claim_ = std::move(joining.to_ask);
            act("may join", machine_.may_join(now()));
            return true;
        }
        if (joining.hold == nullptr) return false;
        turn_ = {};
        (*world_->trace)("joins ", tail(joining.hold->token().bytes));
        const Moment since =
            asked == TimePoint::max() ? Moment::max() : client_->host().moment_of(asked);
        world_->checker->joins(*joining.hold, wanted_->lock, since);
        client_->watch_clock(joining.hold);
        if (joining.first != nullptr) client_->watch_clock(joining.first);
        hold_ = std::move(joining.hold);
        reserve_renewal();
        const bool valid = hold_->valid(now());
        act(valid ? "joined" : "joined too late", machine_.handed(valid, std::nullopt));
        return true;
    }

    // ---- What the machine says

    void act(const char* event, detail::AcquisitionAction action) {
        acquisition_coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const detail::MakeHold& make) {
        if (make.new_token && !world_->has(Mutant::place_not_withdrawn)) {
            client_->with_table([this](LockTable& table) { table.withdraw(turn_); });
        }
        if (hold_ != nullptr) client_->dismiss(*hold_);
        clean_up(make.clean_up);
        if (make.new_token && hold_ != nullptr) world_->checker->dies(hold_->token().bytes);
        detail::Token token = hold_ != nullptr ? hold_->token() : detail::Token{};
        const bool fresh = make.new_token && !(world_->has(Mutant::dead_token_used) && hold_);
        if (fresh) token = client_->new_token(owner_);
        world_->checker->contends(token.bytes, wanted_->lock, this->token());
        hold_ = std::make_shared<Hold>(terms_, token, owner_);
        client_->contends(contending_, token.bytes);
        reserve_renewal();
        auto next = machine_.hold_made(std::move(token.bytes), now());
        hold_->open_tries = machine_.token().open_tries();
        act("hold_made", std::move(next));
    }

    void carry_out(const detail::SendSet& send) {
        const Call plain = Call::plain({"SET", hold_->key(), hold_->token().bytes, "NX", "PX",
                                        hold_->server_ttl(wanted_->lease)},
                                       ReplyShape::ok_or_nil)
                               .for_replicas(wanted_->replicas);
        const Call again = detail::acquire_call(*hold_, {}, false);
        try_once(plain, again.for_replicas(wanted_->replicas), send.answer_by);
    }

    void carry_out(const detail::SendScript& send) {
        if (send.announce) {
            client_->with_table([this](LockTable& table) { table.announce(turn_, *hold_); });
        }
        const bool hears = send.queue_ttl > 0ms && client_->can_subscribe();
        const Call script =
            detail::acquire_call(*hold_, send.queue_ttl, hears).for_replicas(wanted_->replicas);
        try_once(script, script, send.answer_by);
    }

    void try_once(const Call& call, const Call& again, TimePoint answer_by) {
        if (stop_) return act("cancelled", machine_.cancelled());
        sent_ = now();
        asking_ = client_->ask(
            hold_, call, again, answer_by,
            [this](Expected<Reply, Fault> reply, const MasterSets& masters) {
                tried(std::move(reply), masters);
            },
            late_answer());
        hear_late();
    }

    /// A link of the engine's outlives a try that is given up.
    void hear_late() {
        if (asking_ == nullptr || caller_.thread() || wanted_->replicas != Replicas::none()) return;
        asking_->hear_late([client = client_, hold = hold_, sent = sent_,
                            number = machine_.token().tries().sent](const Reply& reply) {
            client->hear_late(*hold, {.sent = sent, .number = number}, reply);
        });
    }

    /// For a master that answers when the others have decided already.
    Request::OnLate late_answer() const {
        const auto& masters = machine_.token().at_masters();
        if (masters == nullptr) return {};
        return [masters](bool answered) {
            if (answered) masters->settled();
        };
    }

    void tried(Expected<Reply, Fault> reply, const MasterSets& masters) {
        asking_ = nullptr;
        if (!reply) {
            return act("failed", machine_.failed(std::move(reply).error(), masters, now()));
        }
        world_->checker->answered(hold_->token().bytes);
        if (reply->view().is_taken(ReplyShape::acquired)) {
            world_->checker->is_given(hold_->token().bytes,
                                      milliseconds{*reply->view()[1].integer()});
        }
        detail::AcquireAnswer answer = decode(*reply);
        answer.masters = masters;
        answer.sent = world_->has(Mutant::counted_from_arrival) ? now() : sent_;
        static constexpr std::array events{"ours", "not_ours", "no", "not_replicated", "unusable"};
        const char* const event = events[static_cast<std::size_t>(answer.kind)];
        if (answer.kind == detail::AcquireAnswer::Kind::not_replicated) {
            world_->checker->held_by_few(hold_->token().bytes);
        }
        act(event, machine_.answered(std::move(answer), now()));
    }

    void carry_out(const detail::StoreFence& store) {
        const Call call = detail::store_fence_call(*hold_, wanted_->lease, store.fence);
        asking_ = client_->ask(
            hold_, call, call, store.answer_by,
            [this](Expected<Reply, Fault> reply, const MasterSets&) {
                asking_ = nullptr;
                if (!reply) {
                    return act("fence not stored",
                               machine_.fence_failed(std::move(reply).error(), now()));
                }
                const bool stored = reply->view().integer() == 1;
                act(stored ? "fence stored" : "fence lost", machine_.fence_stored(stored, now()));
            });
    }

    void carry_out(const detail::AskForWaiters&) {
        const bool any =
            client_->with_table([this](LockTable& table) { return table.has_waiters(turn_); });
        act(any ? "waiters" : "no waiters", machine_.waiters(any, now()));
    }

    void carry_out(const detail::TellFault& tell) {
        if (tell.to_waiters) {
            client_->with_table(
                [this](LockTable& table) { table.set_fault(turn_, machine_.fault()); });
        }
        act("fault_told", machine_.fault_told(now()));
    }

    void carry_out(const detail::SleepUntil& sleep) {
        if (sleep.announce) {
            client_->with_table([this](LockTable& table) { table.announce(turn_, *hold_); });
        }
        if (sleep.subscribe) client_->subscribe();
        const bool for_ever = world_->has(Mutant::no_recheck) && will_be_told_;
        paused_until_ = for_ever ? machine_.deadline() : sleep.until;
        pause();
    }

    void pause() {
        state_ = State::pauses;
        const LockTable::Pause pause = client_->with_table([this](LockTable& table) {
            return table.pause(turn_, *this, paused_until_, now(), stop_);
        });
        if (!pause.ended) {
            client_->pauses(*hold_);
            return sleep_until(pause.wake_at);
        }
        client_->goes_on(*hold_);
        pauses().took("pause", static_cast<std::size_t>(*pause.ended));
        state_ = State::busy;
        const bool granted = *pause.ended == Woken::granted;
        auto grant = granted ? take_grant() : std::nullopt;
        act(woken[static_cast<std::size_t>(*pause.ended)],
            machine_.woken(*pause.ended, grant, now()));
    }

    std::optional<detail::Grant> take_grant() {
        auto grant =
            client_->with_table([this](LockTable& table) { return table.take_grant(turn_); });
        if (grant) world_->checker->is_given(grant->token, grant->ttl);
        if (world_->has(Mutant::late_grant_believed) && grant) {
            grant->time = std::max(grant->time, last_time_ + 1us);
        }
        if (world_->has(Mutant::anchor_kept) && grant && last_server_ != nullptr) {
            grant->server = *last_server_;
        }
        return grant;
    }

    void carry_out(const detail::ReturnVotes& votes) {
        client_->dismiss(*hold_);
        const Call release = detail::release_call(*hold_, now());
        asking_ = client_->ask(
            hold_, release, release, votes.answer_by,
            [this](const Expected<Reply, Fault>&, const MasterSets& masters) {
                asking_ = nullptr;
                act("votes returned", machine_.votes_returned(masters));
            },
            if_silent(*client_, hold_, detail::after_silent_master()));
        if (stop_) std::exchange(asking_, nullptr)->cancel();
    }

    void carry_out(const detail::PassPlaceOn& place) {
        const bool passed = client_->with_table([&](LockTable& table) {
            return table.pass_place_on(turn_, place.unclear, place.tries);
        });
        turn_ = {};
        act(passed ? "place passed on" : "place not passed on", machine_.place_passed_on(passed));
    }

    void carry_out(const detail::KeepHold& keep) {
        detail::keep_hold(*hold_, keep, acquisition_);
        world_->checker->takes(*hold_);
        hold_->begin_min_hold(now());
        if (is_delivered_later()) hold_->deliver_later();
        watch_over(keep.since);
        // A thread may be stopped here, as anywhere.
        if (client_->noise().one_in(8)) {
            const Moment pause = client_->start_up();
            return client_->host().soon(
                pause, [this, others_wait = keep.others_wait] { finish(others_wait); });
        }
        finish(keep.others_wait);
    }

    void finish(bool others_wait) {
        const bool hidden =
            world_->has(Mutant::lost_hold_kept) && hold_->advance(Phase::lost, Phase::acquiring);
        if (hold_->terms().joins) {
            world_->checker->came(hold_->token().bytes, client_->came_at(this));
        }
        const LockTable::Finished finished = client_->with_table([&](LockTable& table) {
            return table.finish(std::exchange(turn_, {}), hold_, others_wait, now());
        });
        const bool kept = finished.kept;
        if (finished.is_shared) client_->watch_clock(hold_);
        is_removed_ = finished.is_removed;
        if (hidden) hold_->advance(Phase::acquiring, Phase::lost);
        act(kept ? "kept" : "not kept", machine_.kept(kept, client_->closed()));
    }

    void carry_out(const detail::AcquisitionDone& done) {
        client_->contends(contending_, {});
        if (done.watch_over) watch_over(hold_->refreshed_at());
        succeed();
    }

    void carry_out(const detail::AcquisitionFailed& failed) {
        client_->contends(contending_, {});
        if (hold_ != nullptr) client_->dismiss(*hold_);
        if (hold_ != nullptr) hold_->drop_min_hold();
        clean_up(failed.clean_up);
        if (hold_ != nullptr) hold_->advance(Phase::held, Phase::released);
        if (turn_) {
            if (hold_ != nullptr) world_->checker->dies(hold_->token().bytes);
            client_->with_table(
                [this](LockTable& table) { table.end_turn(std::exchange(turn_, {})); });
        }
        fail(machine_.error());
    }

    void carry_out(const detail::AskToJoin& question) {
        if (stop_) return act("cancelled", machine_.cancelled());
        sent_ = now();
        const auto with = std::make_shared<Hold>(terms_, asked_claim_->token(), owner_);
        const Call call = detail::ask_call(*with);
        asking_ =
            client_->ask(with, call, call, question.answer_by,
                         [this, with](const Expected<Reply, Fault>& reply, const MasterSets&) {
                             asking_ = nullptr;
                             asked(with, reply);
                         });
    }

    void asked(const HoldPtr& with, const Expected<Reply, Fault>& reply) {
        const auto claim = std::exchange(asked_claim_, nullptr);
        auto joining = client_->with_table([&](LockTable& table) {
            if (!reply)
                return LockTable::join_unanswered(*claim, reply.error().maybe_executed, now());
            return table.join_asked(turn_, *request_, claim, detail::claim_news(*reply), sent_,
                                    now());
        });
        const bool is_gone = !joining.lost.empty();
        client_->declare_lost(joining.lost);
        client_->clean_up(with, joining.clean_up);
        if (joining.failed) return act("asked: failed", machine_.ask_failed(reply.error(), now()));
        if (join(std::move(joining), sent_)) return;
        act(is_gone ? "asked: gone" : "asked: not joined", machine_.not_joined());
    }

    void carry_out(const detail::LetGo& let_go) {
        client_->contends(contending_, {});
        client_->dismiss(*hold_);
        hold_->drop_min_hold();
        end_acquisition();
        hold_ = nullptr;
        if (let_go.ask_again) return enter();
        fail(machine_.error());
    }

    // ---- Nesting

    void nest(HoldPtr hold, std::uint64_t count) {
        waits(-1);  // for nobody, only for the server
        client_->goes(this);
        hold_ = std::move(hold);
        count_ = count;
        nesting_.emplace(machine_.attempts(), detail::OuterHold{hold_->key(), hold_->last_end()},
                         wanted_->lease);
        reserve_renewal();
        const bool counted_here = hold_->weight() != 0;
        act("begin", counted_here ? nesting_->begin_unsent(hold_->valid(now()), is_told_of_close(),
                                                           hold_->refreshed_at())
                                  : nesting_->begin(now(), hold_->valid_until()));
    }

    bool is_told_of_close() const {
        return client_->closed() && !world_->has(Mutant::close_told_as_loss);
    }

    void act(const char* event, detail::NestAction action) {
        nesting_coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const detail::SendNest& send) {
        sent_ = now();
        const Call call = detail::nest_call(*hold_, count_, hold_->server_ttl(send.lease));
        asking_ = client_->ask(
            hold_, call, call, send.answer_by,
            [this](const Expected<Reply, Fault>& reply, const MasterSets&) { nested(reply); });
    }

    void nested(const Expected<Reply, Fault>& reply) {
        asking_ = nullptr;
        if (!reply) return act("failed", nesting_->failed(reply.error(), now()));
        const auto done = reply->view().integer();
        server_ = reply->server;
        using detail::NestAnswer;
        const NestAnswer other = done == 0 ? NestAnswer::gone : NestAnswer::unusable;
        act(done == 1 ? "done" : "gone", nesting_->answered(done == 1 ? NestAnswer::done : other,
                                                            is_told_of_close(), sent_, now()));
    }

    void carry_out(const detail::NoteNestFault& note) {
        if (note.prolonged) hold_->may_be_prolonged = true;
        act("fault_noted", nesting_->fault_noted(now(), hold_->valid_until()));
    }

    void carry_out(const detail::NestSleep& sleep) {
        paused_until_ = sleep.until;
        pause_to_nest();
    }

    void pause_to_nest() {
        state_ = State::pauses_to_nest;
        const LockTable::Pause pause = client_->with_table([this](LockTable& table) {
            return table.pause(*hold_, *this, paused_until_, now(), stop_);
        });
        if (!pause.ended) return sleep_until(pause.wake_at);
        pauses().took("pause to nest", static_cast<std::size_t>(*pause.ended));
        state_ = State::busy;
        const bool ends = *pause.ended == Woken::lost || *pause.ended == Woken::closed;
        if (ends && world_->has(Mutant::nesting_goes_on)) {
            return client_->host().soon(1s, [this] { look(); });
        }
        act(woken[static_cast<std::size_t>(*pause.ended)],
            nesting_->woken(*pause.ended, now(), hold_->valid_until()));
    }

    void carry_out(const detail::ConfirmOuter& confirm) {
        const bool in_time = hold_->confirm_in_time(now(), confirm.sent, confirm.lease);
        if (in_time) world_->checker->prolonged(*hold_, wanted_->lock, server_, 0);
        act(in_time ? "confirmed" : "confirmed too late",
            nesting_->confirmed(in_time, is_told_of_close()));
    }

    void carry_out(const detail::NestDone& done) {
        if (acquisition_.watched) renew_from(done.sent);
        succeed();
    }

    void carry_out(const detail::NestFailed& failed) {
        if (failed.outer_lost) client_->declare_lost(hold_, detail::ServerKeeps::longer);
        end_acquisition();
        fail(nesting_->error());
    }

    // ---- What both need

    void reserve_renewal() {
        if (!acquisition_.watched) return;
        hold_->renewed_by_watchdog = true;
        client_->renewal().machine().enlist(*hold_);
    }

    void watch_over(TimePoint refreshed) {
        const bool early = is_delivered_later() && wanted_->set.empty() &&
                           !world_->has(Mutant::renewed_undelivered);
        if (hold_->renewed_by_watchdog && !early) renew_from(refreshed);
        if (client_->plan().observed) client_->watch_clock(hold_);
    }

    void renew_from(TimePoint refreshed) {
        client_->renewal().machine().arm(hold_, refreshed);
        client_->renewal().wake_in_time();
    }

    void clean_up(CleanUp what) {
        if (hold_ == nullptr) return;
        if (world_->has(Mutant::unclear_try_forgotten)) what.once_more = false;
        if (what.needed()) return client_->clean_up(hold_, what);
    }

    void end_acquisition() {
        const auto ending = client_->end_at_table(
            [this](LockTable& table) { return table.end_acquisition(*hold_, acquisition_.id); });
        abandoned_ = std::make_unique<Releasing>(*client_, [] {});
        abandoned_->abandon(ending);
    }

    // ---- Its end

    void succeed() {
        if (!nesting_) {
            world_->checker->begins(hold_, wanted_->lock, handed_, wanted_->local_handoffs);
            world_->checker->owns_itself(*hold_, wanted_->owns_itself);
            if (world_->has(Mutant::min_hold_forgotten)) hold_->drop_min_hold();
            if (is_removed_) client_->lose_removed(hold_);
        }
        end();
        if (!is_delivered_later()) return give_out();
        if (!wanted_->set.empty())
            return std::exchange(done_, nullptr)(Got{hold_, acquisition_.id});
        world_->checker->awaits_delivery(*hold_);
        client_->host().soon(*wanted_->delivered, [this] { deliver(); });
    }

    /// One of a set is delivered with the others.
    bool is_delivered_later() const {
        return (wanted_->delivered || !wanted_->set.empty()) && !nesting_;
    }

    /// What `AcquireOperation` does on the executor.
    void deliver() {
        const bool valid = hold_->valid(now()) || world_->has(Mutant::delivered_when_over);
        deliveries().took(wanted_->untaken ? "untaken" : "taken", valid ? 0 : 1);
        if (wanted_->untaken) return give_back(Errc::cancelled);
        if (!valid) {
            client_->declare_lost(hold_, detail::ServerKeeps::nothing);
            return give_back(Errc::lost);
        }
        world_->checker->delivers(*hold_, wanted_->lock);
        hold_->delivered();
        if (acquisition_.watched) renew_from(hold_->refreshed_at());
        give_out();
    }

    void give_back(Errc why) {
        if (!world_->has(Mutant::untaken_kept)) {
            world_->checker->gives_back(*hold_);
            const auto ending = client_->end_at_table([this](LockTable& table) {
                return table.end_acquisition(*hold_, acquisition_.id);
            });
            abandoned_ = std::make_unique<Releasing>(*client_, [] {});
            abandoned_->start(ending, ReleaseMode::confirmed);
        }
        std::exchange(done_, nullptr)(Unexpected{Error{why, {}, {}, "not delivered", {}}});
    }

    void give_out() {
        if (acquisition_.watched) world_->checker->watches(*hold_, acquisition_.id);
        // Who asks after the loss sees that it is lost.
        if (wanted_->awaits_loss && hold_->state(now()) != HoldState::lost) {
            world_->checker->awaits_loss(hold_);
            client_->watch_clock(hold_);
        }
        std::exchange(done_, nullptr)(Got{hold_, acquisition_.id});
    }

    void fail(const Error& error) {
        (*world_->trace)("fails: ", error.message);
        if (client_->closed() && error.code == Errc::lost) {
            world_->checker->fail("a call of a client that has closed is told of a loss");
        }
        if (!nesting_ && !wanted_->wait.is_none()) {
            world_->checker->gives_up(client_->number(), machine_.deadline(), error.code);
        }
        if (!nesting_ && wanted_->wait.is_none() && error.code == Errc::unavailable) {
            world_->checker->met_a_fault();
        }
        if (!nesting_ && error.code == Errc::timed_out) {
            world_->checker->says_others_have_it(client_->number(), wanted_->lock, token(),
                                                 started_);
        }
        end();
        std::exchange(done_, nullptr)(Unexpected{error});
    }

    std::string_view token() const {
        return hold_ != nullptr ? std::string_view{hold_->token().bytes} : std::string_view{};
    }

    void end() {
        state_ = State::over;
        client_->goes(this);
        if (!nesting_) waits(-1);
        const milliseconds patience = wanted_->wait.is_none() ? client_->command_timeout() : 0ms;
        world_->checker->returned(client_->number(), started_,
                                  detail::saturating_add(machine_.deadline(), patience), "acquire");
    }

    void waits(int more) {
        world_->checker->waits(client_->number(), wanted_->lock, wanted_->weight, more);
    }

    // ---- Replies

    detail::AcquireAnswer decode(const Reply& reply) {
        detail::AcquireAnswer answer = detail::acquire_answer(reply);
        if (answer.is_refusal()) client_->contention().note(terms_.keys->lock, now());
        answer.will_be_told = answer.will_be_told && client_->listening();
        will_be_told_ = answer.will_be_told;
        if (answer.place < 0) return answer;
        last_time_ = answer.time;
        last_server_ = answer.server;
        if (world_->has(Mutant::late_grant_believed)) answer.time = 1us;
        return answer;
    }

    // ---- Coverage

    static Coverage::Machine& admissions() {
        static Coverage::Machine machine{"LockTable",
                                         {"queued", "turn", "handed", "nested", "deadlock", "busy",
                                          "cancelled", "closed", "wrong_key_type"}};
        return machine;
    }
    static Coverage::Machine& deliveries() {
        static Coverage::Machine machine{"Delivery", {"valid", "over"}};
        return machine;
    }
    static Coverage::Machine& pauses() {
        static Coverage::Machine machine{
            "LockTable", {"in_time", "granted", "recheck", "lost", "cancelled", "closed"}};
        return machine;
    }
    static Coverage::Machine& acquisition_coverage() {
        static Coverage::Machine machine{
            "Acquisition",
            {"MakeHold", "SendSet", "SendScript", "StoreFence", "AskForWaiters", "TellFault",
             "SleepUntil", "ReturnVotes", "PassPlaceOn", "KeepHold", "AcquisitionDone",
             "AcquisitionFailed", "LetGo", "AskToJoin"}};
        static_assert(detail::AcquisitionAction::size == 14);
        return machine;
    }
    static Coverage::Machine& nesting_coverage() {
        static Coverage::Machine machine{
            "Nesting",
            {"SendNest", "NoteNestFault", "NestSleep", "ConfirmOuter", "NestDone", "NestFailed"}};
        static_assert(detail::NestAction::size == 6);
        return machine;
    }

    Client* client_;
    const World* world_;
    const AcquisitionPlan* wanted_;
    const detail::Acquisition acquisition_;
    const LockOwner owner_;  // its number where it owns itself
    const LockOwner caller_;
    const detail::HoldTerms terms_;
    Moment started_;
    const TimePoint began_;
    detail::AcquisitionMachine machine_;
    Done done_;

    State state_ = State::busy;
    bool stop_ = false;
    bool handed_ = false;      // by the holder before, in this process
    bool is_removed_ = false;  // by force, of this process, before it began
    const char* event_ = "enter";
    TimePoint asleep_until_ = TimePoint::min();
    TimePoint paused_until_{};
    TimePoint sent_{};
    std::optional<detail::AcquireRequest> request_{};
    LockTable::Turn turn_{};
    HoldPtr hold_{};
    std::string contending_{};  // the token that it asks with
    std::shared_ptr<detail::ReaderClaim> asked_claim_{};
    std::optional<detail::Nesting> nesting_{};
    std::unique_ptr<Releasing> abandoned_{};
    std::uint64_t count_ = 0;
    std::shared_ptr<Request> asking_{};
    std::shared_ptr<const std::string> server_{};  // that has answered last
    bool will_be_told_ = false;
    microseconds last_time_{0};
    std::shared_ptr<const std::string> last_server_{};
};

/// A writer reads from now on: what `downgrade_hold` does.
inline void downgrade(Client& client, const HoldPtr& hold) {
    const bool begun =
        client.with_table([&](LockTable& table) { return table.downgrade(*hold, client.now()); });
    Client::table_coverage().took("downgrade", begun ? 0 : 1);
    if (!begun) return;
    (*client.world().trace)("downgrades ", tail(hold->token().bytes));
    const Call call = detail::downgrade_call(*hold);
    client.ask(hold, call, call, client.now() + client.command_timeout(),
               [&client, hold](const Expected<Reply, Fault>& reply, const MasterSets&) {
                   if (!reply) return;
                   const auto end = detail::DowngradeEnd::answered(*reply->view().integer());
                   if (end.removed) return client.declare_lost(hold, detail::ServerKeeps::removed);
                   client.world().checker->downgraded(*hold, Client::lock_of(*hold));
               });
}

/// Another lease for a hold: what `extend_hold` does.
class Extending {
public:
    using Machine = detail::ExtensionMachine;

    Extending(Client& client, HoldPtr hold, Lease lease)
        : Extending(client, std::move(hold), lease, client.now() + client.command_timeout(), {}) {}
    Extending(Client& client, HoldPtr hold, Lease lease, TimePoint give_up_at,
              std::function<void()> done)
        : client_(&client),
          hold_(std::move(hold)),
          give_up_at_(give_up_at),
          done_(std::move(done)),
          started_(client.world().timeline->now()),
          machine_({.lease = lease, .last_end = hold_->last_end(), .give_up_at = give_up_at_}) {}

    void start() {
        (*client_->world().trace)("extends ", tail(hold_->token().bytes));
        begin("begin");
    }

private:
    void begin(const char* event) {
        const bool valid = hold_->begin_extension(client_->now());
        act(event, machine_.begin(client_->now(), valid));
    }

    void act(const char* event, Machine::Action action) {
        coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const Machine::SendExtend& send) {
        client_->world().checker->prolongs(*hold_);
        const Call call = detail::extend_call(*hold_, send.lease, send.lock_alone);
        client_->ask(hold_, call, call, send.answer_by,
                     [this](const Expected<Reply, Fault>& reply, const MasterSets&) {
                         if (!reply) {
                             return act("failed", machine_.failed(reply.error(), client_->now(),
                                                                  hold_->is_given_up()));
                         }
                         server_ = reply->server;
                         const bool ours = reply->view().integer() == 1;
                         act(ours ? "ours" : "not ours", machine_.answered(ours));
                     });
    }

    void carry_out(const Machine::Confirm& confirm) {
        const bool in_time = hold_->confirm_in_time(client_->now(), confirm.sent, confirm.lease);
        if (in_time) {
            client_->world().checker->prolonged(*hold_, Client::lock_of(*hold_), server_, 0);
        }
        act(in_time ? "confirmed" : "confirmed too late", machine_.confirmed(in_time));
    }

    void carry_out(const Machine::NoteProlonged&) {
        hold_->may_be_prolonged = true;
        const bool is_lost = hold_->in(Phase::lost);
        act(is_lost ? "noted: lost" : "noted", machine_.noted(is_lost));
    }

    void carry_out(const Machine::DeclareLost& lost) {
        client_->declare_lost(hold_, lost.server);
        if (client_->world().has(Mutant::extension_releases)) {
            client_->clean_up(hold_, {.at_once = lost.server == detail::ServerKeeps::longer});
        }
        const bool is_lost = hold_->in(Phase::lost);
        act(is_lost ? "declared lost" : "released meanwhile", machine_.declared_lost(is_lost));
    }

    void carry_out(const Machine::RetryAt& retry) {
        client_->host().later(client_->host().moment_of(retry.time), [this] { begin("again"); });
    }

    void carry_out(const Machine::Done&) {
        client_->world().checker->returned(client_->number(), started_, give_up_at_, "extend");
        if (done_) std::exchange(done_, nullptr)();
    }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{
            "Extension",
            {"SendExtend", "Confirm", "NoteProlonged", "DeclareLost", "RetryAt", "Done"}};
        static_assert(Machine::Action::size == 6);
        return machine;
    }

    Client* client_;
    HoldPtr hold_;
    TimePoint give_up_at_;
    std::function<void()> done_;
    Moment started_;
    Machine machine_;
    std::shared_ptr<const std::string> server_{};
};

}  // namespace redlatch::test::simulator
