#pragma once

#include "adapters.hpp"
#include <redlatch/core/forced_release.hpp>
#include <redlatch/core/permits_setting.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/steps/force_unlock.hpp>
#include <redlatch/steps/inspect.hpp>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace redlatch::test::simulator {

/// One call about a lock that the caller need not hold.
class Operating {
public:
    Operating(Client& client, int lock)
        : client_(&client),
          lock_(lock),
          started_(client.world().timeline->now()),
          give_up_at_(client.now() + client.command_timeout()) {}
    virtual ~Operating() = default;
    Operating(const Operating&) = delete;
    Operating& operator=(const Operating&) = delete;

protected:
    using Answered = std::function<void(const Expected<Reply, Fault>&)>;

    const detail::LockKeys& keys() const { return *Names::get().of(lock_); }
    detail::PolicyTraits traits() const { return Client::traits_of(*client_->world().plan); }

    /// `of`: what borrows from the keys and that owner.
    void ask(std::string owner, const std::function<Call(const std::string&)>& of,
             Answered answered) {
        auto borrowed = std::make_shared<Hold>(detail::HoldTerms{.keys = Names::get().of(lock_),
                                                                 .traits = traits(),
                                                                 .lease = 1s,
                                                                 .drift = {},
                                                                 .lock_delay = {},
                                                                 .max_hold = {}},
                                               detail::Token{std::move(owner)}, LockOwner{});
        const Call call = of(borrowed->token().bytes);
        client_->ask(borrowed, call, call, give_up_at_,
                     [answered = std::move(answered)](const Expected<Reply, Fault>& reply,
                                                      const MasterSets&) { answered(reply); });
    }

    void returned(const char* call) const {
        client_->world().checker->returned(client_->number(), started_, give_up_at_, call);
    }

    Client* client_;
    int lock_;
    Moment started_;
    TimePoint give_up_at_;
};

/// What `force_unlock()` does.
class Forcing final : public Operating {
public:
    using Machine = detail::ForcedRelease;

    /// `owner`: empty for whoever has it.
    Forcing(Client& client, int lock, std::string owner)
        : Operating(client, lock),
          owner_(std::move(owner)),
          machine_({.owner = owner_,
                    .has_claims = traits().has_claims(),
                    .several_masters = client.has_several_masters(),
                    .give_up_at = give_up_at_}) {}

    void start() {
        (*client_->world().trace)("forces ", lock_, " of ", tail(owner_));
        act("begin", machine_.begin());
    }

private:
    void act(const char* event, Machine::Action action) {
        coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const Machine::Look&) {
        if (!traits().has_claims()) before_ = client_->table().current(keys().lock);
        ask(
            {}, [this](const std::string&) { return detail::inspect_call(keys(), traits()); },
            [this](const Expected<Reply, Fault>& reply) {
                if (!reply) return act("failed", machine_.failed(reply.error().error));
                act("seen", machine_.seen(detail::owners_of(detail::lock_info(reply->view()))));
            });
    }

    void carry_out(const Machine::Remove& remove) {
        owner_ = remove.owner;
        removed_ = false;
        const auto hold = client_->table().with_token(keys().lock, owner_);
        const bool was_valid = hold != nullptr && hold->valid(client_->now());
        ask(
            owner_,
            [this](const std::string& owner) {
                return detail::force_unlock_call(keys(), traits(), owner);
            },
            [this, was_held = hold != nullptr, was_valid](const Expected<Reply, Fault>& reply) {
                if (!reply) return act("failed", machine_.failed(reply.error().error));
                removed_ = *reply->view().integer() != 0;
                act(removed_ ? "removed" : "not there",
                    machine_.answered({.removed = removed_,
                                       .repeated = reply->repeated,
                                       .was_held = was_held,
                                       .was_valid = was_valid},
                                      client_->now()));
            });
    }

    void carry_out(const Machine::DeclareLost& lost) {
        if (lost.is_others_too && before_ != nullptr) client_->declare_lost(before_, lost.server);
        HoldPtr hold;
        if (lost.is_removed) {
            hold = client_->with_table(
                [this](detail::LockTable& table) { return table.removed(keys().lock, owner_); });
        } else if (lost.is_owners) {
            hold = client_->table().with_token(keys().lock, owner_);
        }
        if (hold != nullptr) client_->declare_lost(hold, lost.server);
        act("declared lost", machine_.declared_lost());
    }

    void carry_out(const Machine::Done&) {
        if (removed_) client_->world().checker->forced(client_->number(), lock_, owner_);
        returned("force_unlock");
    }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"ForcedRelease",
                                         {"Look", "Remove", "DeclareLost", "Done"}};
        static_assert(Machine::Action::size == 4);
        return machine;
    }

    std::string owner_;
    HoldPtr before_{};
    bool removed_ = false;
    Machine machine_;
};

/// What `set_permits()` does.
class SettingPermits final : public Operating {
public:
    using Machine = detail::PermitsSetting;

    SettingPermits(Client& client, int lock, std::int64_t permits)
        : Operating(client, lock), permits_(permits) {}

    void start() {
        (*client_->world().trace)("sets permits of ", lock_, ": ", permits_);
        act("begin", Machine::begin());
    }

private:
    void act(const char* event, Machine::Action action) {
        coverage().took(event, action.index());
        visit([this](const auto& wanted) { carry_out(wanted); }, action);
    }

    void carry_out(const Machine::Send& send) {
        ask(
            {},
            [this, &send](const std::string&) {
                return detail::set_permits_call(keys(), traits(), permits_, send.issued);
            },
            [this](const Expected<Reply, Fault>& reply) {
                if (!reply) return act("failed", Machine::failed(reply.error().error));
                act("answered", machine_.answered(*reply->view().integer()));
            });
    }

    void carry_out(const Machine::Done&) { returned("set_permits"); }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"PermitsSetting", {"Send", "Done"}};
        static_assert(Machine::Action::size == 2);
        return machine;
    }

    std::int64_t permits_;
    Machine machine_{};
};

}  // namespace redlatch::test::simulator
