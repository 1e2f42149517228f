// When a token is released in the background: each thing that can be known of its end.

#include <redlatch/core/clean_up.hpp>

#include <gtest/gtest.h>

#include <ostream>

namespace redlatch::detail {

void PrintTo(const CleanUp& what, std::ostream* out) {
    *out << (what.at_once ? "at once" : "") << (what.at_once && what.once_more ? ", " : "")
         << (what.once_more ? "once more" : "") << (what.needed() ? "" : "never");
}

}  // namespace redlatch::detail

namespace {

using namespace redlatch::detail;

constexpr CleanUp never{};
constexpr CleanUp now{.at_once = true};
constexpr CleanUp later{.once_more = true};
constexpr CleanUp now_and_later{.at_once = true, .once_more = true};

constexpr bool yes = true;
constexpr bool no = false;

TEST(CleanUp, after_a_loss_is_of_what_the_server_may_have_or_get) {
    constexpr auto nothing = ServerKeeps::nothing;
    constexpr auto lock = ServerKeeps::lock;
    constexpr auto longer = ServerKeeps::longer;
    constexpr auto removed = ServerKeeps::removed;
    struct Row {
        ServerKeeps server;
        bool several;
        Unanswered unanswered;
        CleanUp expected;
    };
    constexpr Unanswered none{};
    constexpr Unanswered acquire{.acquire = true};
    constexpr Unanswered extend{.extend = true};
    constexpr Unanswered both{.acquire = true, .extend = true};
    constexpr Row rows[] = {
        {nothing, no, none, never},
        {nothing, yes, none, now},
        {nothing, no, acquire, later},
        {nothing, yes, acquire, now_and_later},
        {nothing, no, extend, now_and_later},
        {nothing, yes, extend, now_and_later},
        {nothing, no, both, now_and_later},
        {lock, no, none, now},
        {lock, yes, none, now},
        {lock, no, acquire, now_and_later},
        {lock, no, extend, now_and_later},
        {lock, yes, both, now_and_later},
        {longer, no, none, now},
        {longer, yes, none, now},
        {longer, no, extend, now_and_later},
        {removed, no, none, never},
        {removed, no, acquire, later},
        {removed, yes, both, now_and_later},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(after_loss({.server = row.server,
                              .several_masters = row.several,
                              .unanswered = row.unanswered}),
                  row.expected)
            << "row " << &row - rows;
    }
}

TEST(CleanUp, after_a_loss_leaves_what_the_server_keeps_for_a_lock_delay) {
    for (const bool several : {no, yes}) {
        Loss loss{.several_masters = several, .unanswered = {}, .is_delayed = true};
        EXPECT_EQ(after_loss(loss), never);
        loss.unanswered.extend = true;
        EXPECT_EQ(after_loss(loss), (CleanUp{.once_more = true, .is_delayed = true}));
        for (const bool first : {yes, no}) {
            for (const bool unanswered : {yes, no}) {
                EXPECT_EQ(after_loss({.first = first,
                                      .server = ServerKeeps::longer,
                                      .several_masters = several,
                                      .unanswered = {.extend = unanswered},
                                      .is_delayed = true}),
                          (CleanUp{.once_more = true, .is_delayed = true}));
            }
        }
        loss.server = ServerKeeps::lock;
        EXPECT_EQ(after_loss(loss), now_and_later) << "its client has closed";
    }
    EXPECT_EQ(after_delayed_loss({}), now);
    EXPECT_EQ(after_delayed_loss({.acquire = true}), now_and_later);
    EXPECT_EQ(after_delayed_loss({.extend = true}), now_and_later);
}

TEST(CleanUp, after_a_loss_that_is_known_is_only_of_what_the_server_has_again) {
    for (const bool several : {no, yes}) {
        for (const bool unanswered : {no, yes}) {
            Loss loss{.first = false,
                      .several_masters = several,
                      .unanswered = {.acquire = unanswered, .extend = unanswered}};
            EXPECT_EQ(after_loss(loss), never);
            for (const ServerKeeps server : {ServerKeeps::lock, ServerKeeps::longer}) {
                loss.server = server;
                EXPECT_EQ(after_loss(loss), now);
            }
        }
    }
}

TEST(CleanUp, after_an_abandoned_try_is_of_what_it_may_have_got_or_may_yet_get) {
    EXPECT_EQ(after_abandoned_try(no, no), never);
    EXPECT_EQ(after_abandoned_try(no, yes), never);
    EXPECT_EQ(after_abandoned_try(yes, no), now);
    EXPECT_EQ(after_abandoned_try(yes, yes), now_and_later);
}

TEST(CleanUp, after_a_release_is_of_what_it_may_not_have_reached) {
    EXPECT_EQ(after_release({}), never);
    EXPECT_EQ(after_release({.outcome_known = false}), later);
    EXPECT_EQ(after_release({.outcome_known = false, .client_closed = true}), now_and_later);
    EXPECT_EQ(after_release({.all_told = false}), now_and_later);
    EXPECT_EQ(after_release({.acquire_unanswered = true}), later);
    EXPECT_EQ(after_silent_master(), later);
}

TEST(CleanUp, after_a_sent_release_is_of_what_its_answer_leaves_open) {
    EXPECT_EQ(after_sent_release(no, no), never);
    EXPECT_EQ(after_sent_release(no, yes), later);
    EXPECT_EQ(after_sent_release(yes, no), now_and_later);
    EXPECT_EQ(after_sent_release(yes, yes), now_and_later);
    EXPECT_EQ(after_unanswered_sent_release(), now_and_later);
}

TEST(CleanUp, after_a_move_without_an_answer_is_of_the_next_token_now_and_later) {
    EXPECT_EQ(after_unanswered_move(), now_and_later);
}

}  // namespace
