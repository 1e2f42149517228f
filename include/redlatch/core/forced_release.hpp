#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/error.hpp>
#include <redlatch/result.hpp>
#include <redlatch/types.hpp>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Takes a lock away from one owner, or from all: event in, action out. It removes owners by name only, so
/// that a command that is sent twice removes nobody who comes after them. Knows no server and reads no clock.
class ForcedRelease {
public:
    struct Plan {
        /// The only one that is removed, a whole token; empty for all.
        std::string owner{};
        bool has_claims = false;  ///< the lock may have several owners
        bool several_masters = false;
        TimePoint give_up_at;
    };

    /// Who has it, as the server says.
    struct Seen {
        std::vector<std::string> owners;
        bool all = true;  ///< as opposed to some of them
    };

    struct Answer {
        bool removed;
        bool repeated = false;  ///< an earlier sending of it may have been carried out
        /// This process had a hold as that owner when the command was sent, and that was valid.
        bool was_held = false;
        bool was_valid = false;
    };

    // The actions.

    /// Ask the server who has it. Then `seen()` or `failed()`.
    struct Look {};
    /// Then `answered()` or `failed()`.
    struct Remove {
        std::string owner;
    };
    /// To the hold with the owner's token, if `is_owners`, and to the one that this process had when it began to look,
    /// if `is_others_too`. Then `declared_lost()`.
    struct DeclareLost {
        ServerKeeps server;
        bool is_others_too = false;  ///< somebody else had the lock by then, or nobody
        bool is_owners = true;       ///< else that token may have got the lock anew
        /// The server has removed that token: an acquisition whose answer is under way ends with a hold that is lost.
        bool is_removed = false;
    };
    struct Done {
        Result<Forced> outcome;
    };
    using Action = OneOf<Look, Remove, DeclareLost, Done>;

    explicit ForcedRelease(Plan plan) : plan_(std::move(plan)) {}

    Action begin() {
        if (has_owner()) return Remove{plan_.owner};
        return Look{};
    }

    Action seen(Seen seen) {
        seen_ = std::move(seen);
        removed_ = 0;
        ++looks_;
        if (!plan_.has_claims && seen_.owners.empty()) return declare_lost(false);
        return next();
    }

    /// Where an earlier sending got no answer, only a hold that was valid until then tells whether that
    /// sending removed the lock. The answer is not about a hold that has begun since then.
    Action answered(const Answer& answer, TimePoint now) {
        const bool removed = answer.removed || (answer.repeated && answer.was_valid);
        if (removed) outcome_ = Forced::removed;
        if (plan_.has_claims && !removed) return next();
        if (plan_.has_claims)
            return DeclareLost{.server = ServerKeeps::removed, .is_removed = answer.removed};
        const bool has_gone_on = !has_owner() && !removed && !answer.repeated;
        if (has_gone_on && now < plan_.give_up_at) return Look{};
        const bool is_about_another = !removed && !answer.repeated && !answer.was_held;
        if (has_owner() && is_about_another) return Done{outcome_};
        return declare_lost(true, answer.removed);
    }

    Action declared_lost() {
        if (plan_.has_claims) return next();
        return Done{outcome_};
    }

    Action failed(Error error) const {
        if (outcome_ == Forced::removed) error.message += "; some owners have been removed by then";
        return Done{Unexpected{std::move(error)}};
    }

private:
    bool has_owner() const noexcept { return !plan_.owner.empty(); }

    /// Of several masters, those that answered may know of somebody whom only a minority has.
    DeclareLost declare_lost(bool is_owners, bool is_removed = false) const noexcept {
        return {ServerKeeps::nothing, !plan_.several_masters, is_owners, is_removed};
    }

    /// Removes one owner after the other. Where there are more than the server shows, it also removes owners
    /// that have come by the next look. Of several masters each look shows what one of them knows.
    Action next() {
        if (removed_ < seen_.owners.size()) return Remove{std::move(seen_.owners[removed_++])};
        const bool may_be_more =
            plan_.several_masters && !seen_.owners.empty() && looks_ < most_looks;
        if (seen_.all && !may_be_more) return Done{outcome_};
        return Look{};
    }

    static constexpr int most_looks = 8;

    Plan plan_;
    Seen seen_{};
    std::size_t removed_ = 0;
    int looks_ = 0;
    Forced outcome_ = Forced::absent;
};

}  // namespace redlatch::inline v0::detail
