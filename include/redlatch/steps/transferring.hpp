#pragma once

#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/release.hpp>
#include <redlatch/core/transfer.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/check_lock.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/hold_terms.hpp>
#include <redlatch/steps/lock_spec.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Moves a lock from one token to another, as the transfer machine decides. Takes at most
/// `command_timeout`.
class Transferring {
    using Machine = TransferMachine;
    using Action = Machine::Action;

public:
    Transferring(Session& session, const Hold& from, const Hold& to, Machine::Kind kind)
        : session_(&session),
          from_(&from),
          to_(&to),
          adopts_(kind == Machine::Kind::adopt),
          machine_(Machine::Plan::of(kind, from, to,
                                     saturating_add(Clock::now(), session.command_timeout()))) {}

    /// The last action, `Moved` or `Failed`.
    Action run() {
        Action action = machine_.begin(Clock::now());
        while (const auto next =
                   visit([this](const auto& wanted) { return this->carry_out(wanted); }, action)) {
            action = *next;
        }
        if (auto* failed = get_if<Machine::Failed>(&action)) {
            failed->error.key = from_->key();
        }
        return action;
    }

    /// As the machine has it.
    Machine::Failed not_kept() const { return machine_.not_kept(); }

private:
    std::optional<Action> carry_out(const Machine::SendMove& send) {
        const std::int64_t ttl = to_->server_ttl(to_->terms().lease);
        const Call call = move_call(*from_, to_->token(), ttl).for_replicas(send.replicas);
        // Two may adopt one ticket: neither speaks for that.
        QuorumProgress progress{.rank = adopts_ ? CommandRank::extension : CommandRank::release,
                                .speaks_for = (adopts_ ? to_ : from_)->token().bytes};
        auto reply = session_->run(call, call, {send.answer_by}, progress);
        if (!reply) {
            Fault fault = std::move(reply).error();
            fault.error.key = from_->key();
            session_->events().error(fault.error);
            return machine_.failed(std::move(fault), Clock::now());
        }
        const ReplyView answer = reply->view();
        return machine_.answered(
            {.moved = answer[0].integer() == 1,
             .repeated = reply->repeated,
             .others_wait = answer[1].integer() > 0,
             .fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0)),
             .replicas = reply->replicas,
             .replicas_wanted = reply->replicas_wanted,
             .node = session_->master_of(from_->key()).name()},
            Clock::now());
    }

    std::optional<Action> carry_out(const Machine::RetryAt& retry) {
        std::this_thread::sleep_for(saturating_sub(retry.time, Clock::now()));
        return machine_.pause_over(Clock::now());
    }

    static std::optional<Action> carry_out(const Machine::Moved&) { return std::nullopt; }
    static std::optional<Action> carry_out(const Machine::Failed&) { return std::nullopt; }

    Session* session_;
    const Hold* from_;
    const Hold* to_;
    bool adopts_;
    TransferMachine machine_;
};

/// What neither of the two can do.
inline Result<void> check_transfer(const Session& session, const PolicyTraits& traits) {
    if (traits.has_claims()) {
        return Unexpected{
            invalid("what several may hold at once cannot be handed to another process")};
    }
    if (!traits.can_move) {
        return Unexpected{
            invalid("this policy has no script `move`, by which a lock changes hands")};
    }
    if (session.has_several_masters()) {
        return Unexpected{invalid("a lock of several masters cannot be handed to another process")};
    }
    return {};
}

/// The hold is over, and the ticket has its lock if that has moved.
inline Result<Ticket> tell_detached(Session& session, const std::shared_ptr<Hold>& hold,
                                    const std::shared_ptr<Hold>& ticket,
                                    const TransferMachine::Action& end) {
    const auto held_for = Clock::now() - hold->taken_at();
    const auto tell = [&](const Result<Release>& outcome) {
        session.events().hold_ended(hold, held_for);
        session.events().released(hold->key(), held_for, outcome);
    };
    if (const auto* moved = get_if<TransferMachine::Moved>(&end)) {
        session.clean_up(hold, moved->from);
        tell(Release::released);
        return Ticket{ticket->token().bytes};
    }
    const auto& lost = get<TransferMachine::Failed>(end);
    session.clean_up(hold, lost.from);
    session.clean_up(ticket, lost.to);
    const bool is_lost = lost.error.code == Errc::lost;
    tell(is_lost ? Result<Release>{Release::expired} : Unexpected{lost.error});
    return Unexpected{lost.error};
}

/// Ends the hold here, and moves its lock to a ticket.
inline Result<Ticket> detach_hold(Session& session, const HoldRef& ref) {
    const std::shared_ptr<Hold>& hold = ref.hold;
    const auto failed = [&hold](Error error) {
        error.key = hold->key();
        return Unexpected{std::move(error)};
    };
    if (auto fits = check_transfer(session, hold->terms().traits); !fits) {
        return failed(std::move(fits).error());
    }
    const OpenCalls::Call call{session.open_calls()};
    const auto ending = session.locks().end_only(*hold, ref.id);
    if (!ending) return failed(invalid("it is held more than once, so that others would lose it"));
    if (const auto why = TransferMachine::not_moved(ending->kind)) {
        if (*why == Errc::lost) session.clean_up(hold, ending->clean_up);
        return failed(make_error(*why));
    }

    session.dismiss(*hold);
    const auto ticket = TransferMachine::ticket_of(*hold, session.tokens().next({}).bytes);
    const auto end = Transferring{session, *hold, *ticket, TransferMachine::Kind::detach}.run();
    hold->advance(Phase::releasing, Phase::released);
    session.locks().released(*hold);
    return tell_detached(session, hold, ticket, end);
}

/// The lease to adopt with, or why there is nothing to adopt.
inline Result<Lease> check_adoption(Session& session, const LockSpec& spec, const Ticket& ticket) {
    if (!is_ticket(ticket.text())) {
        return Unexpected{invalid("that is no ticket of Held::detach()")};
    }
    if (session.tokens().is_of_other_key_space(ticket.text())) {
        return Unexpected{
            invalid("the ticket is of a client with another ClientOptions::key_space")};
    }
    auto fits = check_transfer(session, spec.traits);
    if (fits) fits = check_open(session, spec);
    if (!fits) return Unexpected{std::move(fits).error()};
    return check_lease(spec, spec.options.lease);
}

/// What the lock of a ticket moves to.
inline Result<HoldRef> new_adopted_hold(Session& session, const LockSpec& spec, Lease lease,
                                        Owner owner) {
    HoldTerms terms = terms_of(spec, lease);
    terms.min_hold = std::chrono::milliseconds::zero();
    const std::uint64_t id = session.new_acquisition_id();
    const LockOwner who = owner == Owner::hold ? LockOwner::acquisition(id) : this_thread();
    const auto hold = std::make_shared<Hold>(terms, session.tokens().next(who), who);
    if (spec.traits.watched) {
        hold->renewed_by_watchdog = true;
        if (auto reserved = session.renewal().enlist(*hold); !reserved) {
            return Unexpected{std::move(reserved).error()};
        }
    }
    return HoldRef{hold, id};
}

/// The lock has moved. False where the client was closed meanwhile.
inline bool keep_adopted(Session& session, const HoldRef& ref,
                         const TransferMachine::Moved& moved) {
    const std::shared_ptr<Hold>& hold = ref.hold;
    const bool watched = hold->terms().traits.watched;
    hold->begin({ref.id, nullptr, watched}, moved.since, moved.fence, moved.unclear);
    if (watched) session.renewal().arm(hold, moved.since);
    if (session.events().wanted()) session.watch_clock(hold);
    LockTable::Adopted adopted = session.locks().adopt(hold, moved.others_wait);
    if (adopted.place) session.clean_up(*std::move(adopted.place));
    if (!adopted.kept) return false;
    session.events().hold_began(hold);
    if (adopted.is_removed) session.lose_removed(hold);
    return true;
}

/// Moves a lock from a ticket to a hold.
inline Result<HoldRef> adopt_ticket(Session& session, const LockSpec& spec, const Ticket& ticket,
                                    Owner owner) {
    const auto fail = [&spec](Error error) {
        error.key = spec.key();
        return Unexpected{std::move(error)};
    };
    const OpenCalls::Call call{session.open_calls()};
    auto lease = check_adoption(session, spec, ticket);
    if (!lease) return fail(std::move(lease).error());
    const TimePoint started = Clock::now();
    auto ref = new_adopted_hold(session, spec, *lease, owner);
    if (!ref) return fail(std::move(ref).error());
    Hold& hold = *ref->hold;
    const auto give_up = [&](TransferMachine::Failed failed) {
        session.dismiss(hold);
        session.clean_up(ref->hold, failed.to);
        hold.advance(Phase::held, Phase::released);
        return fail(std::move(failed.error));
    };
    const Hold from{hold.terms(), Token{ticket.text()}, LockOwner{}};
    Transferring transfer{session, from, hold, TransferMachine::Kind::adopt};
    const auto end = transfer.run();
    if (const auto* failed = get_if<TransferMachine::Failed>(&end)) return give_up(*failed);
    if (!keep_adopted(session, *ref, get<TransferMachine::Moved>(end))) {
        return give_up(transfer.not_kept());
    }
    session.events().acquired({spec.key(), Clock::now() - started, 1});
    return ref;
}

}  // namespace redlatch::inline v0::detail
