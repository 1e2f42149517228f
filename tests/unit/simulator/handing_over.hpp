#pragma once

#include "adapters.hpp"
#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/transfer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::test::simulator {

/// A lock moves from one token to another: carries out what `TransferMachine` says, as `Transferring` does.
class Moving {
public:
    using Machine = detail::TransferMachine;
    /// With `Moved` or `Failed`.
    using Done = std::function<void(const Machine::Action&)>;

    Moving(Client& client, HoldPtr from, HoldPtr to, Machine::Kind kind, Done done)
        : client_(&client),
          from_(std::move(from)),
          to_(std::move(to)),
          give_up_at_(client.now() + client.command_timeout()),
          machine_(Machine::Plan::of(kind, *from_, *to_, give_up_at_)),
          done_(std::move(done)) {}

    void start() { act("begin", machine_.begin(client_->now())); }

    TimePoint give_up_at() const { return give_up_at_; }
    Machine::Failed not_kept() const { return machine_.not_kept(); }

private:
    void act(const char* event, const Machine::Action& action) {
        coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const Machine::SendMove& send) {
        const std::int64_t ttl = to_->server_ttl(to_->terms().lease);
        const Call call = detail::move_call(*from_, to_->token(), ttl).for_replicas(send.replicas);
        client_->ask(to_, call, call, send.answer_by,
                     [this](const Expected<Reply, Fault>& reply, const MasterSets&) {
                         if (!reply) {
                             return act("failed", machine_.failed(reply.error(), client_->now()));
                         }
                         answered(*reply);
                     });
    }

    void answered(const Reply& reply) {
        const detail::ReplyView answer = reply.view();
        const bool moved = answer[0].integer() == 1;
        const bool replicated = reply.replicas >= reply.replicas_wanted;
        if (!replicated) client_->world().checker->held_by_few(to_->token().bytes);
        act(moved ? "moved" : "not moved",
            machine_.answered({.moved = moved,
                               .repeated = reply.repeated,
                               .others_wait = answer[1].integer() > 0,
                               .fence = static_cast<std::uint64_t>(answer[2].integer().value_or(0)),
                               .replicas = reply.replicas,
                               .replicas_wanted = reply.replicas_wanted},
                              client_->now()));
    }

    void carry_out(const Machine::RetryAt& retry) {
        client_->host().later(client_->host().moment_of(retry.time),
                              [this] { act("pause over", machine_.pause_over(client_->now())); });
    }

    void carry_out(const Machine::Moved& moved) { std::exchange(done_, nullptr)(moved); }
    void carry_out(const Machine::Failed& failed) { std::exchange(done_, nullptr)(failed); }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"Transfer", {"SendMove", "RetryAt", "Moved", "Failed"}};
        static_assert(Machine::Action::size == 4);
        return machine;
    }

    Client* client_;
    HoldPtr from_;
    HoldPtr to_;
    TimePoint give_up_at_;
    Machine machine_;
    Done done_;
};

/// What `Held::detach()` does.
class Detaching {
public:
    using Machine = detail::TransferMachine;
    /// With the ticket; empty where there is none.
    using Done = std::function<void(const std::string& ticket)>;

    Detaching(Client& client, Got got, Done done)
        : client_(&client), got_(std::move(got)), done_(std::move(done)) {}

    /// False where it is held more than once: nothing has been done then.
    bool start() {
        const HoldPtr& hold = got_.hold;
        const auto ending = client_->with_table([&](LockTable& table) {
            auto only = table.end_only(*hold, got_.id);
            if (only) table.conclude(*only, client_->now());
            return only;
        });
        if (!ending) return false;
        endings().took("detach", static_cast<std::size_t>(ending->kind));
        if (const auto why = Machine::not_moved(ending->kind)) {
            if (*why == Errc::lost) {
                if (ending->count == 0) client_->world().checker->needs_no_delay(*hold);
                client_->clean_up(hold, ending->clean_up);
            }
            done_({});
            return true;
        }
        client_->dismiss(*hold);
        ticket_ = Machine::ticket_of(*hold, client_->new_token({}).bytes);
        (*client_->world().trace)("detaches ", tail(hold->token().bytes), " to ",
                                  tail(ticket_->token().bytes));
        started_ = client_->world().timeline->now();
        moving_ = std::make_unique<Moving>(*client_, hold, ticket_, Machine::Kind::detach,
                                           [this](const Machine::Action& end) { ended(end); });
        moving_->start();
        return true;
    }

private:
    void ended(const Machine::Action& end) {
        const HoldPtr& hold = got_.hold;
        hold->advance(Phase::releasing, Phase::released);
        client_->with_table([&](LockTable& table) { table.released(*hold); });
        Checker& checker = *client_->world().checker;
        checker.returned(client_->number(), started_, moving_->give_up_at(), "detach");
        if (const auto* moved = get_if<Machine::Moved>(&end)) {
            checker.detached(*hold, ticket_->token().bytes);
            client_->clean_up(hold, moved->from);
            return done_(ticket_->token().bytes);
        }
        const auto& failed = get<Machine::Failed>(end);
        client_->clean_up(hold, failed.from);
        checker.keeps(ticket_->token().bytes, *hold);
        client_->clean_up(ticket_, failed.to);
        done_({});
    }

    static Coverage::Machine& endings() {
        static Coverage::Machine machine{"LockTable",
                                         {"nothing", "nested", "last", "handed", "left", "past"}};
        return machine;
    }

    Client* client_;
    Got got_;
    Done done_;
    HoldPtr ticket_{};
    std::unique_ptr<Moving> moving_{};
    Moment started_{0};
};

/// What `Lock::adopt()` does, and later the release.
class Adopting {
public:
    using Machine = detail::TransferMachine;

    Adopting(Client& client, const AcquisitionPlan& wanted, std::string ticket)
        : client_(&client),
          wanted_(&wanted),
          acquisition_{client.new_id(), nullptr, wanted.handed_to->watched},
          from_(std::make_shared<Hold>(terms(), detail::Token{std::move(ticket)}, LockOwner{})) {}

    bool finished() const { return finished_ || client_->host().crashed(); }

    /// In its own process, when that has got the ticket.
    void start() {
        const LockOwner owner = LockOwner::acquisition(acquisition_.id);
        hold_ = std::make_shared<Hold>(terms(), client_->new_token(owner), owner);
        (*client_->world().trace)("adopts ", tail(from_->token().bytes), " as ",
                                  tail(hold_->token().bytes));
        if (acquisition_.watched) {
            hold_->renewed_by_watchdog = true;
            client_->renewal().machine().enlist(*hold_);
        }
        started_ = client_->world().timeline->now();
        moving_ = std::make_unique<Moving>(*client_, from_, hold_, Machine::Kind::adopt,
                                           [this](const Machine::Action& end) { ended(end); });
        moving_->start();
    }

private:
    detail::HoldTerms terms() const {
        const Plan& plan = *client_->world().plan;
        detail::PolicyTraits traits = Client::traits_of(plan);
        traits.fenced = wanted_->fenced;
        traits.watched = wanted_->handed_to->watched;
        return {.keys = Names::get().of(wanted_->lock),
                .traits = traits,
                .lease = wanted_->handed_to->lease,
                .drift = plan.drift,
                .lock_delay = wanted_->lock_delay,
                .max_hold = milliseconds::max(),
                .replicas = wanted_->replicas};
    }

    void ended(const Machine::Action& end) {
        Checker& checker = *client_->world().checker;
        checker.returned(client_->number(), started_, moving_->give_up_at(), "adopt");
        if (const auto* failed = get_if<Machine::Failed>(&end)) return give_up(failed->to);
        const auto& moved = get<Machine::Moved>(end);
        hold_->begin(acquisition_, moved.since, moved.fence, moved.unclear);
        checker.takes(*hold_);
        if (acquisition_.watched) {
            client_->renewal().machine().arm(hold_, moved.since);
            client_->renewal().wake_in_time();
        }
        if (client_->plan().observed) client_->watch_clock(hold_);
        LockTable::Adopted adopted = client_->with_table([&](LockTable& table) {
            return table.adopt(hold_, moved.others_wait, client_->now());
        });
        adoptions().took(adopted.place ? "adopt in front of a place" : "adopt",
                         adopted.kept ? 0 : 1);
        if (adopted.place) client_->clean_up(*std::move(adopted.place));
        if (!adopted.kept) return give_up(moving_->not_kept().to);
        constexpr bool handed = false;
        checker.begins(hold_, wanted_->lock, handed, wanted_->local_handoffs);
        checker.owns_itself(*hold_, true);
        if (acquisition_.watched) checker.watches(*hold_, acquisition_.id);
        if (adopted.is_removed) client_->lose_removed(hold_);
        client_->host().soon(wanted_->handed_to->hold, [this] { release(); });
    }

    void give_up(CleanUp what) {
        client_->dismiss(*hold_);
        client_->clean_up(hold_, what);
        hold_->advance(Phase::held, Phase::released);
        finished_ = true;
    }

    void release() {
        const auto ending = client_->end_at_table(
            [this](LockTable& table) { return table.end_acquisition(*hold_, acquisition_.id); });
        releasing_ = std::make_unique<Releasing>(*client_, [this] { finished_ = true; });
        releasing_->start(ending,
                          wanted_->sends_release ? ReleaseMode::sent : ReleaseMode::confirmed);
    }

    static Coverage::Machine& adoptions() {
        static Coverage::Machine machine{"LockTable", {"yes", "closed"}};
        return machine;
    }

    Client* client_;
    const AcquisitionPlan* wanted_;
    detail::Acquisition acquisition_;
    HoldPtr from_;
    HoldPtr hold_{};
    std::unique_ptr<Moving> moving_{};
    std::unique_ptr<Releasing> releasing_{};
    Moment started_{0};
    bool finished_ = false;
};

}  // namespace redlatch::test::simulator
