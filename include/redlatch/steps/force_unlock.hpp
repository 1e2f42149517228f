#pragma once

#include <redlatch/core/forced_release.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/release_answer.hpp>
#include <redlatch/service/lock_calls.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/steps/ask.hpp>
#include <redlatch/steps/inspect.hpp>
#include <redlatch/steps/lock_spec.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// Who has it, as far as the server shows them.
inline ForcedRelease::Seen owners_of(const LockInfo& info) {
    if (info.holders.empty()) {
        ForcedRelease::Seen seen{};
        if (info.locked) seen.owners.push_back(info.owner);
        return seen;
    }
    ForcedRelease::Seen seen{.owners = {}, .all = info.holders.size() >= info.hold_count};
    for (const Holder& holder : info.holders) seen.owners.push_back(holder.owner);
    return seen;
}

/// Takes a lock away from all that have it, or from one owner: carries out a `ForcedRelease`. A holder in
/// this process learns of it at once.
class ForceUnlock {
public:
    /// `owner`: empty for all.
    ForceUnlock(Session& session, const LockSpec& spec, std::string_view owner)
        : session_(&session),
          spec_(&spec),
          limit_(Limit::in(session.command_timeout())),
          owner_(owner),
          machine_({.owner = owner_,
                    .has_claims = spec.traits.has_claims(),
                    .several_masters = session.has_several_masters(),
                    .give_up_at = limit_.at}) {}

    Result<Forced> run() {
        auto action = machine_.begin();
        while (!holds_alternative<ForcedRelease::Done>(action)) {
            action = visit([this](auto& what) { return this->carry_out(what); }, action);
        }
        return get<ForcedRelease::Done>(std::move(action)).outcome;
    }

private:
    using Action = ForcedRelease::Action;

    Action carry_out(const ForcedRelease::Look&) {
        if (!spec_->traits.has_claims()) before_ = session_->locks().current(spec_->key());
        auto info = inspect_lock(*session_, *spec_, limit_);
        if (!info) return machine_.failed(std::move(info).error());
        return machine_.seen(owners_of(*info));
    }

    Action carry_out(ForcedRelease::Remove& remove) {
        owner_ = std::move(remove.owner);
        const auto hold = session_->holder_of(spec_->key(), owner_);
        const bool was_valid = hold != nullptr && hold->valid(Clock::now());
        const Call call = force_unlock_call(*spec_->keys, spec_->traits, owner_);
        auto reply = ask(*session_, *spec_, call, limit_);
        if (!reply) return machine_.failed(std::move(reply).error());
        return machine_.answered({.removed = was_held(*reply->view().integer()),
                                  .repeated = reply->repeated,
                                  .was_held = hold != nullptr,
                                  .was_valid = was_valid},
                                 Clock::now());
    }

    Action carry_out(const ForcedRelease::DeclareLost& lost) {
        if (lost.is_others_too && before_ != nullptr) {
            session_->declare_lost(before_, lost.server);
        }
        // The token may have passed on to another thread meanwhile.
        const auto hold = lost.is_removed  ? session_->removed(spec_->key(), owner_)
                          : lost.is_owners ? session_->holder_of(spec_->key(), owner_)
                                           : nullptr;
        if (hold != nullptr) session_->declare_lost(hold, lost.server);
        return machine_.declared_lost();
    }

    static Action carry_out(const ForcedRelease::Done& done) { return done; }

    Session* session_;
    const LockSpec* spec_;
    Limit limit_;
    std::string owner_;
    std::shared_ptr<Hold> before_{};
    ForcedRelease machine_;
};

}  // namespace redlatch::inline v0::detail
