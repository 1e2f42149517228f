#include <redlatch/core/intrusive_index.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>

namespace {

using redlatch::detail::IntrusiveIndex;
using redlatch::detail::IntrusiveList;

struct Node : IntrusiveList<Node>::Node {
    explicit Node(std::size_t its) : hash(its) {}
    std::size_t hash;
};

class AnIntrusiveIndex : public ::testing::Test {
protected:
    void add(std::size_t hash) { index_.add(nodes_.emplace_back(hash)); }

    /// How many it visits for that hash that have it, and how many in all.
    struct Visited {
        std::size_t matching = 0;
        std::size_t all = 0;
    };
    Visited visit(std::size_t hash) {
        Visited visited;
        index_.for_each_of(hash, [&](const Node& node) {
            ++visited.all;
            if (node.hash == hash) ++visited.matching;
        });
        return visited;
    }

    std::deque<Node> nodes_;
    IntrusiveIndex<Node> index_;
};

TEST_F(AnIntrusiveIndex, finds_all_of_a_hash_however_many_there_are) {
    constexpr std::size_t count = 10'000;
    for (std::size_t hash = 0; hash < count; ++hash) {
        add(hash);
        add(hash);
    }
    for (std::size_t hash = 0; hash < count; ++hash) EXPECT_EQ(visit(hash).matching, 2U) << hash;
    EXPECT_EQ(visit(count).matching, 0U);
}

TEST_F(AnIntrusiveIndex, keeps_its_lists_short) {
    for (std::size_t hash = 0; hash < 100'000; ++hash) add(hash);
    for (std::size_t hash = 0; hash < 100'000; ++hash) EXPECT_LE(visit(hash).all, 2U) << hash;
}

TEST_F(AnIntrusiveIndex, forgets_what_is_taken_out_also_while_it_is_visited) {
    for (std::size_t hash = 0; hash < 1000; ++hash) add(hash % 10);
    index_.remove(nodes_.front());
    EXPECT_EQ(visit(0).matching, 99U);
    index_.for_each_of(0, [&](Node& node) {
        if (node.hash == 0) index_.remove(node);
    });
    EXPECT_EQ(visit(0).matching, 0U);
    EXPECT_EQ(visit(1).matching, 100U);
    index_.add(nodes_.front());
    EXPECT_EQ(visit(0).matching, 1U);
}

}  // namespace
