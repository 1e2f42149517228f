#pragma once

#include <redlatch/core/acquisition.hpp>
#include <redlatch/core/nesting.hpp>
#include <redlatch/core/own_claim.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/steps/acquire_answer.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/hold_terms.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/releasing.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// What is the same for a thread and for an operation that take a lock: all that waits for nothing.
class AcquisitionSteps {
public:
    AcquisitionSteps(const AcquisitionSteps&) = delete;
    AcquisitionSteps& operator=(const AcquisitionSteps&) = delete;

protected:
    /// Who asks, and how.
    struct Request {
        Wait wait;
        LockOwner caller{};  ///< none: the acquisition is its own
        Owner owner = Owner::hold;
        const void* through = nullptr;           ///< the `LockImpl`; null for a `Held`
        bool delivered_later = false;            ///< had by somebody only from then on
        bool renewed_later = false;              ///< and renewed, too
        TimePoint answer_by = TimePoint::max();  ///< as of `AcquirePlan`
    };

    AcquisitionSteps(Session& session, const LockSpec& spec, Lease lease, const Request& request)
        : session_(&session),
          spec_(&spec),
          lease_(lease),
          request_(request),
          acquisition_{session.new_acquisition_id(), request.through, spec.traits.watched,
                       spec.traits.shared && spec.claim.weight == ClaimTerms::reader} {}
    ~AcquisitionSteps() = default;

    /// The wait begins only now. To be called where the outcome is delivered later.
    void restart_clock() { started_ = Clock::now(); }

    /// Another wait than was asked for. To be called before it begins.
    void wait_for(Wait wait, TimePoint answer_by) noexcept {
        request_.wait = wait;
        request_.answer_by = answer_by;
    }

    /// The machine that decides. An acquisition that waits for others of this process has none yet.
    AcquisitionMachine& machine() {
        if (machine_ == nullptr) {
            machine_ = std::make_unique<Recycled<AcquisitionMachine>>(plan(), started_, seed());
        }
        return *machine_;
    }

    /// The outcome, after the observer was told of it. Without memory the observer does not hear of it: a lock that was
    /// acquired has an owner all the same.
    Result<HoldRef> told(Result<HoldRef> ref) {
        if (!ref) ref.error().key = spec_->key();
        if (!session_->events().wanted()) return ref;
        tell(ref);
        return ref;
    }

    /// It is to write, and the calling thread reads.
    bool would_wait_for_its_reading() const {
        if (!spec_->traits.shared || acquisition_.reads) return false;
        if (request_.owner != Owner::thread && !request_.wait.is_unlimited()) return false;
        const TimePoint now = Clock::now();
        const auto main = session_->locks().find(spec_->key(), caller_);
        if (main != nullptr && main->valid(now)) return main->reads();
        const auto reading = session_->locks().find(reader_entry(spec_->key(), caller_), caller_);
        return reading != nullptr && reading->valid(now);
    }

    /// It has to wait, and the observer hears of that once; of a single try it does not. Without memory the
    /// observer does not hear of it: nothing is thrown here, as the lock table may refer to this by then.
    void begin_to_wait() noexcept {
        if (request_.wait.is_none() || waits_ != nullptr || !session_->events().wanted()) return;
        try {
            auto waits = std::make_shared<EventPair>();
            session_->events().wait_began(waits, spec_->key());
            waits_ = std::move(waits);
        } catch (const std::bad_alloc&) {
        }
    }

    // ---- At the lock table

    AcquireRequest ask() const {
        return {.terms = terms_,
                .owner = owner_,
                .caller = caller_,
                .wait = request_.wait,
                .deadline = Attempts::deadline(request_.wait, started_),
                .acquisition = acquisition_,
                .handoffs = handoff_limit(),
                .delivered_later = request_.delivered_later,
                .try_by = answer_by(),
                .asked_at = machine_ == nullptr ? started_ : Clock::now()};
    }

    /// It is our turn to contend at the server.
    AcquisitionAction contend(LockTableMonitor::Turn turn) {
        turn_.emplace(std::move(turn));
        if (terms_.joins) {
            if (auto joining = join(turn_->join(ask()))) return *joining;
        }
        const bool contended = session_->contention().lately(spec_->key(), Clock::now());
        auto place = turn_->place();
        if (!place) return machine().admitted(nullptr, contended);
        const PassedPlace passed{.token = place->token.bytes,
                                 .traits = place->terms.traits,
                                 .unclear = place->unclear_try,
                                 .weight = place->terms.claim.weight,
                                 .tries = place->tries};
        hold_ =
            std::make_shared<Hold>(std::move(place->terms), std::move(place->token), LockOwner{});
        hold_->open_tries.longest = place->tries.longest;
        return machine().admitted(&passed, contended);
    }

    /// Each reader that shares a claim may be the last one, and has its own end.
    void watch_claim(const std::shared_ptr<Hold>& first = nullptr) {
        try {
            session_->watch_clock(hold_);
            if (first != nullptr) session_->watch_clock(first);
        } catch (const std::bad_alloc&) {
            let_go();
            throw;
        }
    }

    /// The waiter before us has passed the lock on. `first`: a reader that was alone with the claim until now.
    AcquisitionAction take_over(std::shared_ptr<Hold> hold,
                                const std::shared_ptr<Hold>& first = nullptr) {
        hold_ = std::move(hold);
        if (hold_->claim != nullptr) watch_claim(first);
        auto unreserved = reserve_renewal();
        return machine().handed(hold_->valid(Clock::now()), std::move(unreserved));
    }

    /// Goes on with the claim of other readers of this process, or asks about it. Nothing where we contend.
    std::optional<AcquisitionAction> join(LockTable::Joining joining) {
        if (joining.to_ask != nullptr) {
            if (joining.first != nullptr) session_->watch_clock(joining.first);
            asked_claim_ = std::move(joining.to_ask);
            return machine().may_join(Clock::now());
        }
        if (joining.hold == nullptr) return std::nullopt;
        return take_over(std::move(joining.hold), joining.first);
    }

    /// What the question is sent with.
    std::shared_ptr<Hold> hold_to_ask_with() const {
        return std::make_shared<Hold>(terms_, asked_claim_->token(), owner_);
    }

    AcquisitionAction join_asked(const std::shared_ptr<Hold>& with,
                                 const Expected<Reply, Fault>& reply, TimePoint sent) {
        const auto claim = std::exchange(asked_claim_, nullptr);
        auto joining =
            reply ? turn_->join_asked(ask(), claim, claim_news(*reply), sent)
                  : session_->locks().join_unanswered(*claim, reply.error().maybe_executed);
        session_->declare_lost(joining.lost);
        session_->clean_up(with, joining.clean_up);
        if (joining.failed) return machine().ask_failed(reply.error(), Clock::now());
        auto joined = join(std::move(joining));
        return joined ? *joined : machine().not_joined();
    }

    /// Gives up the hold that the lock table has handed to us.
    void let_go() {
        session_->dismiss(*hold_);
        hold_->drop_min_hold();
        end_acquisition();
        hold_ = nullptr;
    }

    // ---- What the machine says

    using Next = std::optional<AcquisitionAction>;  // nothing where it has to wait, and at the end

    Next carry_out(const MakeHold& make) {
        if (make.new_token && hold_ != nullptr) turn_->withdraw();
        if (hold_ != nullptr) session_->dismiss(*hold_);
        if (make.clean_up.needed()) session_->clean_up(hold_, make.clean_up);
        Token token = make.new_token ? session_->tokens().next(owner_) : hold_->token();
        hold_ = make_recycled<Hold>(terms_, token, owner_);
        if (auto unreserved = reserve_renewal()) return machine().no_hold(*std::move(unreserved));
        Next next = machine().hold_made(std::move(token.bytes), Clock::now());
        hold_->open_tries = machine().token().open_tries();
        return next;
    }

    Next carry_out(const AskForWaiters&) {
        return machine().waiters(turn_->has_waiters(), Clock::now());
    }

    Next carry_out(const TellFault& tell) {
        if (machine().fault() != nullptr) session_->events().error(*machine().fault());
        if (tell.to_waiters) turn_->set_fault(machine().fault());
        return machine().fault_told(Clock::now());
    }

    Next carry_out(const PassPlaceOn& place) {
        return machine().place_passed_on(turn_->pass_place_on(place.unclear, place.tries));
    }

    /// The server gave the lock: without memory to keep it, nobody could release it any more.
    Next carry_out(const KeepHold& keep) noexcept {
        keep_hold(*hold_, keep, acquisition_);
        if (hold_->terms().min_hold > std::chrono::milliseconds::zero()) {
            hold_->begin_min_hold(Clock::now());
        }
        if (request_.delivered_later) hold_->deliver_later();
        watch_over(keep.since);
        const auto finished = turn_->finish(hold_, keep.others_wait);
        if (finished.is_shared) watch_claim();
        if (finished.kept && finished.is_removed) session_->lose_removed(hold_);
        return machine().kept(finished.kept, session_->is_closed());
    }

    Next carry_out(const AcquisitionDone& done) {
        if (done.watch_over) watch_over(hold_->refreshed_at());
        result_.emplace(HoldRef{std::move(hold_), acquisition_.id});
        return std::nullopt;
    }

    Next carry_out(const AcquisitionFailed& failed) {
        if (hold_ != nullptr) session_->dismiss(*hold_);
        if (hold_ != nullptr) hold_->drop_min_hold();
        if (failed.clean_up.needed()) session_->clean_up(hold_, failed.clean_up);
        if (hold_ != nullptr) hold_->advance(Phase::held, Phase::released);
        turn_.reset();
        result_.emplace(Unexpected{machine().error()});
        return std::nullopt;
    }

    // ---- Its calls, and what becomes of them

    /// The plain command.
    static Call plain_set(const Hold& hold) {
        return Call::plain({"SET", hold.key(), hold.token().bytes, "NX", "PX",
                            hold.server_ttl(hold.terms().lease)},
                           ReplyShape::ok_or_nil)
            .for_replicas(hold.terms().replicas);
    }
    static Call script(Session& session, const Hold& hold, std::chrono::milliseconds queue_ttl) {
        const bool hears = queue_ttl > std::chrono::milliseconds::zero() &&
                           session.subscription(hold.key()).is_possible();
        return acquire_call(hold, queue_ttl, hears).for_replicas(hold.terms().replicas);
    }

    AcquisitionAction try_answered(const Expected<Reply, Fault>& reply, const MasterSets& masters,
                                   TimePoint sent) {
        const TimePoint now = Clock::now();
        if (!reply) return machine().failed(reply.error(), masters, now);
        AcquireAnswer answer = acquire_answer(*reply);
        complete(answer, now);
        answer.sent = sent;
        answer.masters = masters;
        return machine().answered(std::move(answer), now);
    }

    AcquisitionAction fence_answered(const Expected<Reply, Fault>& stored) {
        const TimePoint now = Clock::now();
        if (!stored) return machine().fence_failed(stored.error(), now);
        return machine().fence_stored(stored->view().integer() == 1, now);
    }

    /// A pause at the lock table has ended.
    AcquisitionAction pause_ended(LockTable::Woken woken) {
        const bool granted = woken == LockTable::Woken::granted;
        return machine().woken(woken, granted ? turn_->take_grant() : std::nullopt, Clock::now());
    }

    // ---- Nesting

    using NextNest = std::optional<NestAction>;

    /// One more acquisition of `hold`, of which it would be the `count`th.
    NestAction begin_nesting(std::shared_ptr<Hold> hold, std::uint64_t count) {
        hold_ = std::move(hold);
        count_ = count;
        // This comes first: the code that ends the acquisition, after an exception too, dismisses it.
        auto unreserved = request_.renewed_later ? std::nullopt : reserve_renewal();
        nesting_ = std::make_unique<Nesting>(machine().attempts(),
                                             OuterHold{hold_->key(), hold_->last_end()}, lease_);
        if (unreserved) return nesting_->unreserved(*std::move(unreserved));
        if (hold_->weight() != 0) {
            return nesting_->begin_unsent(hold_->valid(Clock::now()), session_->is_closed(),
                                          hold_->refreshed_at());
        }
        return nesting_->begin(Clock::now(), hold_->valid_until());
    }

    NestAction nest_answered(const Expected<Reply, Fault>& reply, TimePoint sent) {
        const TimePoint now = Clock::now();
        if (!reply) return nesting_->failed(reply.error(), now);
        const auto done = reply->view().integer();
        const NestAnswer other = done == 0 ? NestAnswer::gone : NestAnswer::unusable;
        return nesting_->answered(done == 1 ? NestAnswer::done : other, session_->is_closed(), sent,
                                  now);
    }

    NextNest carry_out(const NoteNestFault& note) {
        if (note.prolonged) hold_->may_be_prolonged = true;
        if (note.tell) session_->events().error(nesting_->fault());
        return nesting_->fault_noted(Clock::now(), hold_->valid_until());
    }

    NextNest carry_out(const ConfirmOuter& confirm) {
        const bool in_time = hold_->confirm_in_time(Clock::now(), confirm.sent, confirm.lease);
        return nesting_->confirmed(in_time, session_->is_closed());
    }

    NextNest carry_out(const NestDone& done) {
        if (!request_.renewed_later && acquisition_.watched) {
            session_->renewal().arm(hold_, done.sent, end_of_renewal());
        }
        result_.emplace(HoldRef{std::move(hold_), acquisition_.id});
        return std::nullopt;
    }

    NextNest carry_out(const NestFailed& failed) {
        if (failed.outer_lost) session_->declare_lost(hold_, ServerKeeps::longer);
        end_acquisition();
        result_.emplace(Unexpected{nesting_->error()});
        return std::nullopt;
    }

    // ---- What both need

    /// Where the hold will be renewed, that is made ready before it is asked for. Why not, if it is not.
    std::optional<Error> reserve_renewal() {
        if (!acquisition_.watched) return std::nullopt;
        hold_->renewed_by_watchdog = true;
        auto reserved = session_->renewal().enlist(*hold_);
        if (reserved) return std::nullopt;
        return std::move(reserved).error();
    }

    /// The services that are wanted look after the hold from now on.
    void watch_over(TimePoint refreshed) {
        if (!request_.renewed_later) start_renewal(refreshed);
        if (session_->events().wanted()) session_->watch_clock(hold_);
    }

    void start_renewal(TimePoint refreshed) {
        if (hold_->renewed_by_watchdog) session_->renewal().arm(hold_, refreshed);
    }

    /// For a nested acquisition. A hold that is watched itself has its own end.
    RenewalEnd end_of_renewal() const {
        if (hold_->terms().traits.watched) return {};
        const auto length = saturating_cast<Clock::duration>(spec_->options.max_hold);
        return {acquisition_.id, saturating_add(Clock::now(), length)};
    }

    /// Ends an acquisition that nobody gets.
    void end_acquisition() {
        Releasing{*session_}.abandon(session_->locks().end_acquisition(*hold_, acquisition_.id));
    }

    /// Behind an exception: ends the acquisition where the lock table has counted it already.
    void abandon_counted() {
        if (hold_ == nullptr) return;
        const bool is_nested = count_ != 0;
        if (!is_nested) hold_->drop_min_hold();
        end_acquisition();
    }

    /// For a master that has not answered when the others have.
    OnLateReply clean_up_if_silent() const {
        return [session = session_, hold = hold_](bool answered) {
            if (!answered) session->clean_up(hold, after_silent_master());
        };
    }

    /// For a master that answers when the others have decided already.
    OnLateReply late_answer() const {
        const auto& masters = machine_->token().at_masters();
        if (masters == nullptr) return {};
        return [masters](bool answered) {
            if (answered) masters->settled();
        };
    }

    /// What this client knows besides.
    void complete(AcquireAnswer& answer, TimePoint now) {
        using Kind = AcquireAnswer::Kind;
        if (answer.is_refusal()) session_->contention().note(spec_->key(), now);
        if (answer.kind == Kind::not_replicated) {
            answer.node = session_->master_of(spec_->key()).name();
        }
        if (!answer.refusal.owner.empty()) {
            session_->note_owner(spec_->key(), answer.refusal.owner);
        }
        answer.will_be_told =
            answer.will_be_told && session_->subscription(spec_->key()).is_listening();
    }

    // ---- The observer

    /// Each apart: one that finds no memory takes no other one with it.
    void tell(const Result<HoldRef>& ref) noexcept {
        const auto waited = Clock::now() - started_;
        if (waits_ != nullptr) unless_out_of_memory([&] { tell_wait_ended(ref, waited); });
        if (ref && nesting_ == nullptr) session_->events().hold_began(ref->hold);
        unless_out_of_memory([&] { tell_outcome(ref, waited); });
    }

    template <class Tell>
    static void unless_out_of_memory(Tell tell) noexcept {
        try {
            tell();
        } catch (const std::bad_alloc&) {
        }
    }

    void tell_wait_ended(const Result<HoldRef>& ref, Clock::duration waited) {
        const Result<void> outcome = ref ? Result<void>{} : Unexpected{ref.error()};
        session_->events().wait_ended(waits_, {spec_->key(), waited, outcome, machine().tries()});
    }

    void tell_outcome(const Result<HoldRef>& ref, Clock::duration waited) {
        if (ref) {
            session_->events().acquired({spec_->key(), waited, machine().tries()});
        } else if (ref.error().code == Errc::timed_out) {
            session_->events().timed_out({spec_->key(), waited, machine().tries()});
        }
    }

private:
    std::uint64_t seed() const noexcept {
        return acquisition_.id * 0x9e3779b97f4a7c15U +
               static_cast<std::uint64_t>(started_.time_since_epoch().count());
    }

    AcquisitionPlan plan() const {
        return {.attempts = {.wait = request_.wait,
                             .lease = lease_,
                             .drift = spec_->options.drift,
                             .backoff = spec_->options.backoff,
                             .command_timeout = session_->command_timeout(),
                             .answer_by = answer_by(),
                             .of_permits = spec_->claim.weight > 0 && !spec_->traits.shared},
                .key = spec_->key(),
                .traits = spec_->traits,
                .lock_delay = spec_->options.lock_delay,
                .plain_set = takes_plain_set(spec_->traits),
                .replicated = spec_->options.replicas != Replicas::none(),
                .polls = polls(),
                .several_masters = session_->has_several_masters(),
                .weight = spec_->claim.weight};
    }

    /// A single try ends in time also where it has waited for the release of another hold.
    TimePoint answer_by() const {
        if (!request_.wait.is_none()) return request_.answer_by;
        return std::min(request_.answer_by, saturating_add(started_, session_->command_timeout()));
    }

    HoldTerms own_terms() const {
        HoldTerms terms = terms_of(*spec_, lease_);
        if (!spec_->traits.has_claims()) return terms;
        const bool of_thread = acquisition_.reads && request_.owner == Owner::thread;
        set_own_entry(terms, {.acquisition = acquisition_.id,
                              .caller = request_.caller,
                              .owns_itself = request_.owner != Owner::thread,
                              .writes_here = acquisition_.reads && writes_here(),
                              .others_poll = of_thread && handoff_limit().others_poll});
        return terms;
    }
    bool writes_here() const {
        if (request_.caller == LockOwner{}) return false;
        const auto hold = session_->locks().find(spec_->key(), request_.caller);
        return hold != nullptr && hold->valid(Clock::now());
    }

    bool polls() const {
        return spec_->options.wait_strategy == WaitStrategy::polling ||
               session_->has_several_masters();
    }

    HandoffLimit handoff_limit() const {
        return {.in_row = spec_->options.local_handoffs,
                .others_poll = polls() || !session_->master_of(spec_->key()).allows_all_keys()};
    }

protected:
    Session* session_;
    const LockSpec* spec_;
    const Lease lease_;
    Request request_;
    const Acquisition acquisition_;
    const HoldTerms terms_ = own_terms();
    TimePoint started_ = request_.delivered_later ? TimePoint{} : Clock::now();
    const LockOwner itself_ = LockOwner::acquisition(acquisition_.id);
    const LockOwner caller_ = request_.caller == LockOwner{} ? itself_ : request_.caller;
    const LockOwner owner_ = request_.owner == Owner::hold ? itself_ : caller_;
    std::unique_ptr<Recycled<AcquisitionMachine>> machine_{};
    std::optional<LockTableMonitor::Turn> turn_{};
    std::unique_ptr<Nesting> nesting_{};
    std::shared_ptr<Hold> hold_{};  // that is asked for; the outer one of a nested acquisition
    std::shared_ptr<ReaderClaim> asked_claim_{};  // while the server is asked about it
    std::uint64_t count_ = 0;                     // where nested: the hold count wanted
    std::shared_ptr<EventPair> waits_{};          // where the observer hears of that
    std::optional<Result<HoldRef>> result_{};
};

}  // namespace redlatch::inline v0::detail
