#include <redlatch/core/vote_count.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace {

using redlatch::detail::Verdict;
using redlatch::detail::Vote;
using redlatch::detail::VoteCount;

constexpr std::size_t most_voters = 5;

/// Each way in which so many masters can vote one after the other.
std::vector<std::vector<Vote>> all_votes(std::size_t voters) {
    std::vector<std::vector<Vote>> all{{}};
    for (std::size_t i = 0; i < voters; ++i) {
        std::vector<std::vector<Vote>> longer;
        for (const auto& votes : all) {
            for (const Vote vote : {Vote::yes, Vote::no, Vote::none}) {
                longer.push_back(votes);
                longer.back().push_back(vote);
            }
        }
        all = std::move(longer);
    }
    return all;
}

std::size_t count(const std::vector<Vote>& votes, Vote vote) {
    return static_cast<std::size_t>(std::count(votes.begin(), votes.end(), vote));
}

std::string text(const std::vector<Vote>& votes) {
    std::string all;
    for (const Vote vote : votes) all += "yn-"[static_cast<std::size_t>(vote)];
    return all;
}

template <class Check>
void for_each_outcome(Check check) {
    for (std::size_t voters = 1; voters <= most_voters; ++voters) {
        for (const auto& votes : all_votes(voters)) {
            SCOPED_TRACE(text(votes));
            check(voters, votes);
        }
    }
}

VoteCount counted(std::size_t voters, const std::vector<Vote>& votes) {
    VoteCount total{voters};
    for (const Vote vote : votes) total.cast(vote);
    return total;
}

TEST(VoteCount, is_more_than_half) {
    constexpr std::array<std::size_t, 7> quorums{1, 2, 2, 3, 3, 4, 4};
    for (std::size_t voters = 1; voters <= quorums.size(); ++voters) {
        EXPECT_EQ(VoteCount{voters}.quorum(), quorums[voters - 1]);
    }
}

TEST(VoteCount, of_two_holders_is_impossible) {
    for (std::size_t voters = 1; voters <= most_voters; ++voters) {
        EXPECT_GT(2 * VoteCount{voters}.quorum(), voters);
    }
}

TEST(VoteCount, gives_a_lock_exactly_where_a_majority_says_yes) {
    for_each_outcome([](std::size_t voters, const std::vector<Vote>& votes) {
        const bool majority = 2 * count(votes, Vote::yes) > voters;
        EXPECT_EQ(counted(voters, votes).on_taking() == Verdict::yes, majority);
        EXPECT_EQ(counted(voters, votes).on_keeping() == Verdict::yes, majority);
    });
}

TEST(VoteCount, refuses_as_long_as_enough_masters_answer) {
    for_each_outcome([](std::size_t voters, const std::vector<Vote>& votes) {
        const Verdict verdict = counted(voters, votes).on_taking();
        if (verdict == Verdict::yes) return;
        const bool enough_answer = 2 * count(votes, Vote::none) < voters;
        EXPECT_EQ(verdict, enough_answer ? Verdict::no : Verdict::unknown);
    });
}

TEST(VoteCount, has_lost_what_no_majority_can_have_any_more) {
    for_each_outcome([](std::size_t voters, const std::vector<Vote>& votes) {
        const std::size_t not_ours = count(votes, Vote::no);
        const bool others_make_a_majority = 2 * (voters - not_ours) > voters;
        EXPECT_EQ(counted(voters, votes).on_keeping() == Verdict::no, !others_make_a_majority);
    });
}

TEST(VoteCount, is_open_until_the_votes_to_come_can_change_nothing) {
    for_each_outcome([](std::size_t voters, const std::vector<Vote>& votes) {
        VoteCount total{voters};
        Verdict taking = total.on_taking();
        Verdict keeping = total.on_keeping();
        for (const Vote vote : votes) {
            total.cast(vote);
            if (taking == Verdict::yes) {
                EXPECT_EQ(total.on_taking(), Verdict::yes);
            } else if (taking != Verdict::open) {
                EXPECT_NE(total.on_taking(), Verdict::yes);
            }
            if (keeping != Verdict::open) {
                EXPECT_EQ(total.on_keeping(), keeping);
            }
            taking = total.on_taking();
            keeping = total.on_keeping();
        }
        EXPECT_NE(taking, Verdict::open);
        EXPECT_NE(keeping, Verdict::open);
    });
}

TEST(VoteCount, is_decided_by_the_first_vote_that_decides) {
    VoteCount five{5};
    five.cast(Vote::yes);
    five.cast(Vote::yes);
    EXPECT_EQ(five.on_taking(), Verdict::open);
    five.cast(Vote::yes);
    EXPECT_EQ(five.on_taking(), Verdict::yes);

    VoteCount three{3};
    three.cast(Vote::no);
    EXPECT_EQ(three.on_taking(), Verdict::open);
    EXPECT_EQ(three.on_keeping(), Verdict::open);
    three.cast(Vote::no);
    EXPECT_EQ(three.on_taking(), Verdict::no);
    EXPECT_EQ(three.on_keeping(), Verdict::no);
}

TEST(VoteCount, on_a_question_waits_for_all_and_wants_a_majority) {
    for_each_outcome([](std::size_t voters, const std::vector<Vote>& votes) {
        const VoteCount total = counted(voters, votes);
        const bool enough = 2 * (voters - count(votes, Vote::none)) > voters;
        EXPECT_EQ(total.on_asking(), enough ? Verdict::yes : Verdict::unknown);
        EXPECT_EQ(total.has_quorum(), enough);
    });
    EXPECT_EQ(VoteCount{3}.on_asking(), Verdict::open);
}

}  // namespace
