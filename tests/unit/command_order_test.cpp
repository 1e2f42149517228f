#include <redlatch/core/command_order.hpp>

#include <gtest/gtest.h>

#include <span>
#include <vector>

namespace {

using redlatch::detail::CommandOrder;
using enum CommandOrder::Connection;
using Connections = std::vector<CommandOrder::Connection>;

Connections listed(std::span<const CommandOrder::Connection> choices) {
    return {choices.begin(), choices.end()};
}

TEST(CommandOrder, prefers_a_free_connection_where_nothing_is_owed) {
    const CommandOrder order{0};
    EXPECT_EQ(listed(order.choices(0)), (Connections{idle, behind_any}));
    EXPECT_FALSE(order.may_overtake());
}

TEST(CommandOrder, goes_behind_the_answers_to_its_own_token) {
    CommandOrder order{1};
    EXPECT_EQ(listed(order.choices(1)), (Connections{behind_own, idle, behind_any}));
    order.goes_behind(1);
    EXPECT_FALSE(order.may_overtake());
}

TEST(CommandOrder, looks_no_further_when_it_goes_behind_all_that_is_owed) {
    CommandOrder order{2};
    order.goes_behind(1);
    EXPECT_EQ(listed(order.choices(2)).front(), behind_own);
    order.goes_behind(1);
    EXPECT_EQ(listed(order.choices(2)), (Connections{idle, behind_any}));
}

TEST(CommandOrder, may_overtake_where_it_does_not_go_behind) {
    const CommandOrder order{1};
    EXPECT_TRUE(order.may_overtake());
}

TEST(CommandOrder, may_have_overtaken_what_was_answered_while_it_was_sent) {
    CommandOrder order{2};
    order.goes_behind(1);
    EXPECT_EQ(listed(order.choices(0)), (Connections{idle, behind_any}));
    EXPECT_TRUE(order.may_overtake());
}

}  // namespace
