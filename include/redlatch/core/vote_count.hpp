#pragma once

#include <redlatch/compilation.hpp>

#include <cstddef>
#include <cstdint>

namespace redlatch::inline v0::detail {

/// What one of several independent masters says to a command.
enum class Vote : std::uint8_t {
    yes,
    no,
    none,  ///< nothing usable, or nothing in time
};

/// What their votes amount to.
enum class Verdict : std::uint8_t {
    open,  ///< depends on votes to come
    yes,
    no,
    unknown,  ///< too few have answered, and no others will
};

/// The votes of several independent masters on one command, where a majority decides: the Redlock
/// algorithm ("Distributed Locks with Redis", redis.io). A single master is a majority of one.
class VoteCount {
public:
    explicit VoteCount(std::size_t voters) noexcept : voters_(voters) {}

    void cast(Vote vote) noexcept { ++count_of(vote); }

    /// Takes back a vote that was cast, so that a late answer can take its place.
    void take_back(Vote vote) noexcept { --count_of(vote); }

    std::size_t quorum() const noexcept { return voters_ / 2 + 1; }
    std::size_t open() const noexcept { return voters_ - yes_ - no_ - none_; }

    /// Whether enough have answered for a decision, whichever way.
    bool has_quorum() const noexcept { return yes_ + no_ >= quorum(); }

    /// On an acquisition: refused as soon as no majority can come together, so that the votes that
    /// were had are given back early.
    Verdict on_taking() const noexcept {
        if (yes_ >= quorum()) return Verdict::yes;
        if (yes_ + open() >= quorum()) return Verdict::open;
        return none_ > most_missing() ? Verdict::unknown : Verdict::no;
    }

    /// On what concerns a lock that is ours: lost, or gone, only where so many say so that no majority
    /// can have it.
    Verdict on_keeping() const noexcept {
        if (yes_ >= quorum()) return Verdict::yes;
        if (no_ > most_missing()) return Verdict::no;
        const bool can_be_yes = yes_ + open() >= quorum();
        const bool can_be_no = no_ + open() > most_missing();
        return can_be_yes || can_be_no ? Verdict::open : Verdict::unknown;
    }

    /// On a question that each answers as it sees it.
    Verdict on_asking() const noexcept {
        if (open() > 0) return Verdict::open;
        return has_quorum() ? Verdict::yes : Verdict::unknown;
    }

private:
    std::size_t& count_of(Vote vote) noexcept {
        return vote == Vote::yes ? yes_ : vote == Vote::no ? no_ : none_;
    }

    /// How many may be missing while a majority is left.
    std::size_t most_missing() const noexcept { return voters_ - quorum(); }

    std::size_t voters_;
    std::size_t yes_ = 0;
    std::size_t no_ = 0;
    std::size_t none_ = 0;
};

}  // namespace redlatch::inline v0::detail
