#include <redlatch/core/intrusive_index.hpp>
#include <redlatch/core/token_hash.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

namespace {

using redlatch::detail::IntrusiveIndex;
using redlatch::detail::IntrusiveList;
using redlatch::detail::token_hash;

struct Node : IntrusiveList<Node>::Hook {
    explicit Node(std::uint64_t its) : hash(its) {}
    std::uint64_t hash;
};

class AnIntrusiveIndex : public ::testing::Test {
protected:
    /// In lists of their own, as soon as there are enough.
    static std::uint64_t hash_of(std::uint64_t number) { return number * 0x9e3779b97f4a7c15U; }

    void add(std::uint64_t number) { index_.add(nodes_.emplace_back(hash_of(number))); }

    /// How many with that number it visits.
    std::size_t visit(std::uint64_t number) {
        std::size_t matching = 0;
        index_.for_each_of(hash_of(number), [&](const Node& node) {
            if (node.hash == hash_of(number)) ++matching;
        });
        return matching;
    }

    std::deque<Node> nodes_;
    IntrusiveIndex<Node> index_;
};

TEST_F(AnIntrusiveIndex, finds_all_of_a_hash_however_many_there_are) {
    constexpr std::size_t count = 10'000;
    for (std::size_t number = 0; number < count; ++number) {
        add(number);
        add(number);
    }
    for (std::size_t number = 0; number < count; ++number) EXPECT_EQ(visit(number), 2U) << number;
    EXPECT_EQ(visit(count), 0U);
}

TEST_F(AnIntrusiveIndex, keeps_its_lists_short_for_tokens) {
    for (const std::size_t count : {1000U, 10'000U, 100'000U}) {
        std::deque<Node> nodes;
        IntrusiveIndex<Node> index;
        const std::string prefix = "0123456789abcdef0123456789abcdef:host:17:3:";
        for (std::size_t i = 0; i < count; ++i) {
            index.add(nodes.emplace_back(token_hash(prefix + std::to_string(count + i))));
        }
        std::size_t visited = 0;
        for (const Node& node : nodes) {
            index.for_each_of(node.hash, [&](const Node&) { ++visited; });
        }
        EXPECT_LT(visited, 4 * count) << "of " << count;
    }
}

TEST_F(AnIntrusiveIndex, forgets_what_is_taken_out_also_while_it_is_visited) {
    for (std::size_t number = 0; number < 1000; ++number) add(number % 10);
    index_.remove(nodes_.front());
    EXPECT_EQ(visit(0), 99U);
    index_.for_each_of(0, [&](Node& node) {
        if (node.hash == hash_of(0)) index_.remove(node);
    });
    EXPECT_EQ(visit(0), 0U);
    EXPECT_EQ(visit(1), 100U);
    index_.add(nodes_.front());
    EXPECT_EQ(visit(0), 1U);
}

}  // namespace
