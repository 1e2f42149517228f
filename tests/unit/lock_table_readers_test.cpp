// Readers of one process that go on with one claim: who may, when the server is asked, and who releases it.

#include "lock_table_tools.hpp"
#include <redlatch/policy/shared.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace redlatch::test {
namespace {

using namespace std::chrono_literals;
using detail::ClaimTerms;
using detail::CleanUp;
using detail::Hold;
using detail::LockOwner;
using detail::LockTable;
using detail::Phase;
using detail::TimePoint;
using Kind = LockTable::Ending::Kind;
using HoldPtr = std::shared_ptr<Hold>;

constexpr bool others_wait = true;

class ReadersAtLockTable : public ::testing::Test {
protected:
    static LockOwner thread(std::uint64_t number) {
        return LockOwner::thread(detail::ThreadSerial{number});
    }
    static Wish reading(std::uint64_t number) {
        return {.traits = detail::traits_of<Shared>(),
                .owner = thread(number),
                .id = number,
                .lease = 10s,
                .claim = {ClaimTerms::reader, 0},
                .own_entry = "thread " + std::to_string(number),
                .joins = true};
    }
    static Wish writing(std::uint64_t number) {
        Wish wish = reading(number);
        wish.claim.weight = ClaimTerms::writer;
        wish.own_entry.clear();
        wish.joins = false;
        return wish;
    }

    /// The server gives a claim to a reader of its own.
    HoldPtr take(std::uint64_t number, bool others = !others_wait) {
        return take(reading(number), others);
    }
    HoldPtr take(const Wish& wish, bool others = !others_wait) {
        give_up();
        return take(locks_.enter(wish), others);
    }

    /// With a lease of ten seconds.
    static Wish reading_with_delay(std::uint64_t number) {
        Wish wish = reading(number);
        wish.lock_delay = 3s;
        return wish;
    }
    LockTable::Ending ending(const HoldPtr& hold) {
        auto ending = locks_.table.end_acquisition(*hold, hold->nest.front().id);
        locks_.table.conclude(ending, locks_.now);
        return ending;
    }
    HoldPtr take(const Asker& asker, bool others = !others_wait) {
        const auto& request = asker.request;
        auto hold = std::make_shared<Hold>(
            request.terms, detail::Token{"token " + std::to_string(request.acquisition.id)},
            request.owner);
        hold->nest.push_back(request.acquisition);
        hold->taken(locks_.now);
        finished_ = locks_.table.finish(asker.turn(), hold, others, locks_.now);
        EXPECT_TRUE(finished_);
        return hold;
    }

    LockTable::Joining join(const Wish& wish) {
        give_up();
        asker_ = &locks_.enter(wish);
        return joined(locks_.table.join(asker_->turn(), asker_->request, locks_.now));
    }
    LockTable::Joining join(std::uint64_t number) { return join(reading(number)); }

    LockTable::Joining answered(const std::shared_ptr<detail::ReaderClaim>& claim, bool others) {
        return joined(locks_.table.join_asked(asker_->turn(), asker_->request, claim,
                                              {.is_there = true, .others_wait = others}, locks_.now,
                                              locks_.now));
    }

    /// The one that has not joined does not contend either.
    void give_up() {
        if (asker_ != nullptr) locks_.table.end_turn(asker_->turn());
        asker_ = nullptr;
    }
    LockTable::Joining joined(LockTable::Joining joining) {
        if (joining.hold != nullptr) asker_ = nullptr;
        return joining;
    }

    /// A grant of the claim that `take` has made.
    static detail::Grant grant_of(std::uint64_t number) {
        detail::Grant grant{};
        grant.key = "key";
        grant.token = "token " + std::to_string(number);
        grant.weight = ClaimTerms::reader;
        return grant;
    }

    Kind end(const Hold& hold) { return locks_.end(hold, hold.nest.front().id); }
    void lose(const HoldPtr& hold) {
        hold->advance(Phase::held, Phase::lost);
        locks_.table.leave_claim(*hold);
        locks_.table.lost(hold);
    }

    Locks locks_;
    Asker* asker_ = nullptr;
    LockTable::Finished finished_{};
};

TEST_F(ReadersAtLockTable, join_for_some_moments_without_a_command) {
    const HoldPtr first = take(1);
    locks_.now += 4ms;
    const auto second = join(2);
    ASSERT_NE(second.hold, nullptr);
    EXPECT_EQ(second.hold->token().bytes, first->token().bytes);
    EXPECT_EQ(second.hold->owner(), thread(2));
    EXPECT_EQ(second.hold->valid_until(), first->valid_until()) << "the lease runs since then";
    EXPECT_EQ(second.first, first) << "alone until now";
    const auto third = join(3);
    ASSERT_NE(third.hold, nullptr);
    EXPECT_EQ(third.first, nullptr);
    EXPECT_EQ(locks_.table.size(), 3U);
}

TEST_F(ReadersAtLockTable, ask_the_server_after_that) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto asks = join(2);
    EXPECT_EQ(asks.hold, nullptr);
    ASSERT_NE(asks.to_ask, nullptr);
    EXPECT_EQ(asks.to_ask->token().bytes, first->token().bytes);
    const auto joined = answered(asks.to_ask, !others_wait);
    ASSERT_NE(joined.hold, nullptr);
    EXPECT_EQ(joined.hold->valid_until(), first->valid_until() + 5ms);
    locks_.now += 4ms;
    EXPECT_NE(join(3).hold, nullptr) << "that was news";
}

TEST_F(ReadersAtLockTable, join_a_claim_that_was_renewed_since) {
    const HoldPtr first = take(1);
    const auto sent = locks_.now += 8s;
    first->confirm(sent, 10s);
    locks_.now += 8s;
    const auto asks = join(2);
    ASSERT_NE(asks.to_ask, nullptr);
    EXPECT_EQ(asks.to_ask->token().bytes, first->token().bytes);
    const auto joined = answered(asks.to_ask, !others_wait);
    ASSERT_NE(joined.hold, nullptr);
    EXPECT_EQ(joined.hold->token().bytes, first->token().bytes);
}

TEST_F(ReadersAtLockTable, join_no_claim_that_was_not_renewed_with_its_whole_lease) {
    const HoldPtr first = take(1);
    locks_.now += 8s;
    first->confirm(locks_.now, 3s);
    locks_.now += 2500ms;
    EXPECT_EQ(join(2).to_ask, nullptr);
}

TEST_F(ReadersAtLockTable, go_past_nobody_who_waits) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto asks = join(2);
    EXPECT_EQ(answered(asks.to_ask, others_wait).hold, nullptr);
    const auto next = join(3);
    EXPECT_EQ(next.hold, nullptr);
    EXPECT_EQ(next.to_ask, nullptr) << "it is known that somebody waits";
    locks_.now += 5ms;
    EXPECT_NE(join(4).to_ask, nullptr) << "maybe not any more";
    lose(first);
    EXPECT_FALSE(first->may_be_prolonged) << "such a question has extended nothing";
}

TEST_F(ReadersAtLockTable, that_are_alone_are_watched_before_somebody_asks) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    EXPECT_EQ(join(2).first, first);
}

TEST_F(ReadersAtLockTable, go_past_no_writer_of_their_process_that_holds_the_lock) {
    take(1);
    const Wish wish = writing(2);
    const Asker& writer = locks_.enter(wish);
    auto hold = std::make_shared<Hold>(wish.terms(), detail::Token{"writer"}, wish.owner);
    hold->nest.push_back(wish.acquisition());
    hold->taken(locks_.now);
    ASSERT_TRUE(locks_.table.finish(writer.turn(), hold, !others_wait, locks_.now));
    EXPECT_EQ(join(3).hold, nullptr) << "the claim was removed, as it seems";
    ASSERT_TRUE(locks_.table.downgrade(*hold, locks_.now));
    EXPECT_NE(join(4).hold, nullptr);
}

TEST_F(ReadersAtLockTable, that_wrote_before_would_wait_for_themselves_to_write_again) {
    const Wish wish = writing(2);
    auto hold = std::make_shared<Hold>(wish.terms(), detail::Token{"writer"}, wish.owner);
    hold->taken(locks_.now);
    locks_.take(hold, wish);
    EXPECT_EQ(locks_.enter(wish).said.outcome, Locks::Outcome::nested);
    locks_.table.end_acquisition(*hold, wish.id);
    ASSERT_TRUE(locks_.table.downgrade(*hold, locks_.now));
    EXPECT_FALSE(locks_.table.downgrade(*hold, locks_.now)) << "it reads already";
    EXPECT_EQ(locks_.enter(wish).said.outcome, Locks::Outcome::deadlock);
    locks_.lose(hold);
    EXPECT_FALSE(locks_.table.downgrade(*hold, locks_.now)) << "it is over";
}

TEST_F(ReadersAtLockTable, that_wrote_read_on_when_the_last_writing_of_the_nest_has_ended) {
    const Wish wish = writing(2);
    auto hold = std::make_shared<Hold>(wish.terms(), detail::Token{"writer"}, wish.owner);
    hold->taken(locks_.now);
    locks_.take(hold, wish);
    constexpr bool reads = true;
    hold->nest.push_back({3, &some_handle, true, !reads});
    hold->nest.push_back({4, &some_handle, false, reads});
    hold->nest.push_back({5, &some_handle, false, reads});
    const auto ended = [&](std::uint64_t id) {
        const auto ending = locks_.table.end_acquisition(*hold, id);
        EXPECT_EQ(ending.kind, Kind::nested);
        EXPECT_EQ(ending.id, id);
        EXPECT_EQ(ending.watched, id == 3);
        return ending.downgrades;
    };
    EXPECT_FALSE(ended(4)) << "reading";
    EXPECT_FALSE(ended(2)) << "another writing goes on";
    EXPECT_FALSE(hold->reads());
    EXPECT_TRUE(ended(3));
    EXPECT_TRUE(hold->reads());
    EXPECT_EQ(end(*hold), Kind::last);
}

// `unlock_shared()` ends what was locked for writing and lost, where what was locked after it has been downgraded.
TEST_F(ReadersAtLockTable, end_their_lost_writing_as_well) {
    const Wish wish = writing(2);
    const auto write = [&](const char* token) {
        auto hold = std::make_shared<Hold>(wish.terms(), detail::Token{token}, wish.owner);
        hold->taken(locks_.now);
        locks_.take(hold, wish);
        return hold;
    };
    locks_.lose(write("lost"));
    const HoldPtr next = write("next");
    const bool reads = true;
    EXPECT_EQ(locks_.table.end_innermost("key", wish.owner, reads).kind, Kind::past)
        << "of what is over, nothing is left to mistake";
    EXPECT_EQ(locks_.table.end_innermost("key", wish.owner, reads).kind, Kind::nothing);
    ASSERT_TRUE(locks_.table.downgrade(*next, locks_.now));
    EXPECT_EQ(locks_.table.end_innermost("key", wish.owner, reads).kind, Kind::last);
    locks_.free(*next);
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable, join_no_claim_that_came_when_others_waited) {
    take(1, others_wait);
    EXPECT_EQ(join(2).hold, nullptr);
}

TEST_F(ReadersAtLockTable, go_past_no_writer_of_their_process) {
    take(1);
    const Asker& writer = locks_.enter(writing(2));
    const auto while_it_waits = join(3);
    EXPECT_EQ(while_it_waits.hold, nullptr);
    EXPECT_EQ(while_it_waits.to_ask, nullptr);
    locks_.table.end_turn(writer.turn());
    EXPECT_NE(join(4).hold, nullptr);
}

TEST_F(ReadersAtLockTable, join_on_equal_terms_only) {
    take(1);
    Wish longer = reading(2);
    longer.lease = 20s;
    EXPECT_EQ(join(longer).hold, nullptr);
    Wish alone = reading(3);
    alone.joins = false;
    EXPECT_EQ(join(alone).hold, nullptr);
    Wish elsewhere = reading(4);
    elsewhere.key = "another";
    EXPECT_EQ(join(elsewhere).hold, nullptr);
}

TEST_F(ReadersAtLockTable, join_the_last_claim_that_the_server_gave) {
    take(1);
    locks_.now += 5ms;
    const HoldPtr later = take(2);
    EXPECT_EQ(join(3).hold->token().bytes, later->token().bytes);
}

TEST_F(ReadersAtLockTable, release_the_claim_with_the_last_of_them) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    const HoldPtr third = join(3).hold;
    EXPECT_EQ(end(*first), Kind::left);
    EXPECT_TRUE(first->in(Phase::released));
    EXPECT_EQ(end(*third), Kind::left);
    EXPECT_TRUE(detail::is_used_by_others(*third));
    EXPECT_EQ(end(*second), Kind::last);
    EXPECT_FALSE(detail::is_used_by_others(*second));
    EXPECT_FALSE(detail::is_used_by_others(*third)) << "nobody uses it any more";
    EXPECT_TRUE(locks_.table.is_empty());
    EXPECT_EQ(join(4).hold, nullptr) << "it is released";
}

TEST_F(ReadersAtLockTable, keep_the_claim_for_one_that_has_lost_it_and_may_be_at_work) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    lose(first);
    const auto joining = join(reading_with_delay(3));
    EXPECT_EQ(joining.first, second) << "alone until now";
    const HoldPtr third = joining.hold;
    EXPECT_EQ(third->token().bytes, second->token().bytes);
    EXPECT_EQ(end(*third), Kind::left);
    locks_.now += 12s;
    const auto last = ending(second);
    EXPECT_EQ(last.kind, Kind::left);
    EXPECT_EQ(last.clean_up, (CleanUp{.once_more = true, .is_delayed = true}));
    EXPECT_EQ(second->left_until, first->valid_until() + 3s) << "not for longer";
    EXPECT_TRUE(second->in(Phase::released));
    EXPECT_FALSE(locks_.table.deliver(grant_of(4)));
    EXPECT_TRUE(locks_.table.deliver(grant_of(1))) << "whoever sends it does not release the claim";
    EXPECT_EQ(join(reading_with_delay(4)).hold, nullptr) << "nobody goes on with it";
    give_up();
    const auto lost = ending(first);
    EXPECT_EQ(lost.kind, Kind::past);
    EXPECT_EQ(lost.clean_up, (CleanUp{.at_once = true})) << "nobody is at work any more";
    EXPECT_FALSE(locks_.table.deliver(grant_of(1)));
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable, do_not_hide_a_writer_that_may_be_at_work_in_its_lock_delay) {
    Wish wish = writing(1);
    wish.lock_delay = 3s;
    const HoldPtr writer = take(wish);
    lose(writer);
    EXPECT_EQ(locks_.enter(writing(2)).said.outcome, LockTable::Outcome::turn);
    EXPECT_TRUE(locks_.table.deliver(grant_of(1))) << "a grant that comes late, or twice";
    EXPECT_EQ(ending(writer).kind, Kind::past);
    EXPECT_FALSE(locks_.table.deliver(grant_of(1)));
}

TEST_F(ReadersAtLockTable, release_the_claim_when_that_one_is_done_or_its_time_is_over) {
    for (const bool is_done : {false, true}) {
        SCOPED_TRACE(is_done);
        const HoldPtr first = take(reading_with_delay(1));
        const HoldPtr second = join(reading_with_delay(2)).hold;
        lose(first);
        if (is_done) {
            EXPECT_FALSE(ending(first).clean_up.needed()) << "another one goes on";
        } else {
            locks_.now += 13s;
        }
        const auto last = ending(second);
        EXPECT_EQ(last.kind, Kind::last);
        EXPECT_FALSE(last.clean_up.needed());
        locks_.free(*second);
        if (!is_done) {
            EXPECT_FALSE(ending(first).clean_up.needed()) << "it is released";
        }
        EXPECT_TRUE(locks_.table.is_empty());
    }
}

TEST_F(ReadersAtLockTable, that_have_all_lost_the_claim_free_it_when_the_last_one_is_done) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    lose(first);
    second->extended = true;
    lose(second);
    EXPECT_EQ(ending(second).clean_up, (CleanUp{.once_more = true, .is_delayed = true}));
    EXPECT_EQ(second->left_until, first->valid_until() + 3s) << "the first one may be at work";
    EXPECT_EQ(ending(first).clean_up, (CleanUp{.at_once = true}));
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable,
       that_have_all_lost_the_claim_free_it_twice_where_a_question_may_be_under_way) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    locks_.now += 5ms;
    const auto claim = join(reading_with_delay(3)).to_ask;
    constexpr bool maybe_executed = true;
    EXPECT_FALSE(LockTable::join_unanswered(*claim, maybe_executed, locks_.now).clean_up.needed());
    lose(first);
    lose(second);
    EXPECT_TRUE(ending(first).clean_up.is_delayed);
    EXPECT_EQ(ending(second).clean_up, (CleanUp{.at_once = true, .once_more = true}));
    EXPECT_FALSE(LockTable::join_unanswered(*claim, !maybe_executed, locks_.now).failed);
    EXPECT_FALSE(answered(claim, others_wait).clean_up.needed()) << "it is released";
}

TEST_F(ReadersAtLockTable, are_done_with_what_they_lose_at_that_moment) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    first->advance(Phase::held, Phase::lost);
    EXPECT_EQ(ending(first).kind, Kind::past) << "before the table has heard of it";
    locks_.table.leave_claim(*first);
    locks_.table.lost(first);
    EXPECT_EQ(ending(second).kind, Kind::last);
}

TEST_F(ReadersAtLockTable, keep_nothing_for_one_that_has_lost_what_the_server_has_no_more) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    lose(first);
    detail::close_claim_of(*second);
    lose(second);
    EXPECT_FALSE(ending(first).clean_up.needed());
    EXPECT_FALSE(ending(second).clean_up.needed());
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable, that_ask_in_vain_end_no_lock_delay) {
    const HoldPtr first = take(reading_with_delay(1));
    locks_.now += 5ms;
    const auto claim = join(reading_with_delay(2)).to_ask;
    lose(first);
    const CleanUp later{.once_more = true, .is_delayed = true};
    EXPECT_EQ(answered(claim, !others_wait).clean_up, later);
    constexpr bool maybe_executed = true;
    EXPECT_EQ(LockTable::join_unanswered(*claim, maybe_executed, locks_.now).clean_up, later);
    locks_.now += 13s;
    EXPECT_EQ(LockTable::join_unanswered(*claim, maybe_executed, locks_.now).clean_up,
              (CleanUp{.at_once = true, .once_more = true}));
}

TEST_F(ReadersAtLockTable, that_ask_in_vain_leave_the_claim_to_those_that_go_on_with_it) {
    const HoldPtr first = take(reading_with_delay(1));
    const HoldPtr second = join(reading_with_delay(2)).hold;
    locks_.now += 5ms;
    const auto claim = join(reading_with_delay(3)).to_ask;
    lose(first);
    constexpr bool maybe_executed = true;
    EXPECT_FALSE(LockTable::join_unanswered(*claim, maybe_executed, locks_.now).clean_up.needed());
    EXPECT_EQ(end(*second), Kind::left) << "it is kept for the first one";
}

TEST_F(ReadersAtLockTable, join_no_claim_that_was_released_while_they_asked) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto asks = join(2);
    EXPECT_EQ(end(*first), Kind::last);
    const auto joining = answered(asks.to_ask, !others_wait);
    EXPECT_EQ(joining.hold, nullptr);
    EXPECT_FALSE(joining.clean_up.needed()) << "the reader's own release is to find it";
}

TEST_F(ReadersAtLockTable, that_are_lost_leave_the_claim_to_the_others) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    lose(first);
    EXPECT_TRUE(detail::is_used_by_others(*first));
    lose(second);
    EXPECT_FALSE(detail::is_used_by_others(*second));
    EXPECT_FALSE(second->may_be_prolonged) << "both had the same end";
}

TEST_F(ReadersAtLockTable, leave_what_is_to_be_cleaned_up_to_the_last_of_them) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    lose(first);
    EXPECT_FALSE(detail::may_clean_up(*first));
    lose(second);
    EXPECT_TRUE(detail::may_clean_up(*second));
    EXPECT_TRUE(second->may_be_prolonged);
    EXPECT_TRUE(detail::may_clean_up(*first)) << "nobody uses it any more";
}

TEST_F(ReadersAtLockTable, know_at_last_what_the_server_keeps_for_longer) {
    const HoldPtr first = take(1);
    locks_.now += 5s;
    const auto asks = join(2);
    const HoldPtr second = answered(asks.to_ask, !others_wait).hold;
    EXPECT_EQ(end(*second), Kind::left);
    EXPECT_FALSE(first->may_be_prolonged);
    lose(first);
    EXPECT_TRUE(first->may_be_prolonged) << "the question has extended the claim";
}

TEST_F(ReadersAtLockTable, know_at_last_of_a_question_that_let_nobody_in) {
    const HoldPtr first = take(1);
    locks_.now += 5s;
    const auto claim = join(2).to_ask;
    locks_.enter(writing(3));
    EXPECT_EQ(answered(claim, !others_wait).hold, nullptr) << "a writer has come meanwhile";
    lose(first);
    EXPECT_TRUE(first->may_be_prolonged) << "the question has extended the claim";
}

TEST_F(ReadersAtLockTable, know_at_last_what_those_have_left_that_went_before) {
    const auto last_knows = [this](auto change) {
        const HoldPtr first = take(1);
        const HoldPtr second = join(2).hold;
        change(*first);
        EXPECT_EQ(end(*first), Kind::left);
        EXPECT_FALSE(second->may_be_prolonged);
        lose(second);
        EXPECT_EQ(end(*second), Kind::past);
        return second->may_be_prolonged || second->unanswered().acquire;
    };
    EXPECT_FALSE(last_knows([](Hold&) {}));
    EXPECT_TRUE(last_knows([this](Hold& hold) { hold.confirm(locks_.now + 5s, 10s); }));
    EXPECT_TRUE(last_knows([](Hold& hold) { hold.renewed_by_watchdog = true; }));
    EXPECT_TRUE(last_knows([](Hold& hold) { hold.may_be_prolonged = true; }));
}

TEST_F(ReadersAtLockTable, know_all_of_a_try_without_an_answer) {
    const Wish wish = reading(1);
    const Asker& asker = locks_.enter(wish);
    auto first = std::make_shared<Hold>(wish.terms(), detail::Token{"token"}, wish.owner);
    first->begin(wish.acquisition(), locks_.now, 7, true);
    ASSERT_TRUE(locks_.table.finish(asker.turn(), first, !others_wait, locks_.now));
    const HoldPtr second = join(2).hold;
    EXPECT_TRUE(second->unanswered().acquire) << "it may be the last one";
    EXPECT_EQ(second->fence, 7U);
}

TEST_F(ReadersAtLockTable, know_at_last_of_a_question_without_an_answer) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto claim = join(2).to_ask;
    constexpr bool maybe_executed = true;
    const auto unsent = LockTable::join_unanswered(*claim, !maybe_executed, locks_.now);
    EXPECT_TRUE(unsent.failed);
    EXPECT_FALSE(unsent.clean_up.needed());
    const auto sent = LockTable::join_unanswered(*claim, maybe_executed, locks_.now);
    EXPECT_TRUE(sent.failed);
    EXPECT_FALSE(sent.clean_up.needed()) << "somebody goes on with it";
    lose(first);
    EXPECT_TRUE(first->may_be_prolonged);
    EXPECT_EQ(LockTable::join_unanswered(*claim, maybe_executed, locks_.now).clean_up,
              (CleanUp{.at_once = true, .once_more = true}))
        << "nobody goes on with it";
    EXPECT_FALSE(LockTable::join_unanswered(*claim, !maybe_executed, locks_.now).failed)
        << "its release has taken the question out";
}

TEST_F(ReadersAtLockTable, know_at_last_of_an_extension_that_may_be_under_way) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    EXPECT_TRUE(first->begin_extension(locks_.now));
    EXPECT_EQ(end(*first), Kind::left);
    EXPECT_FALSE(first->begin_extension(locks_.now)) << "nothing more goes out";
    lose(second);
    EXPECT_TRUE(second->may_be_prolonged);
}

TEST_F(ReadersAtLockTable, alone_have_nothing_to_see_to) {
    const HoldPtr only = take(1);
    only->begin_extension(locks_.now);
    lose(only);
    EXPECT_FALSE(only->may_be_prolonged);
}

TEST_F(ReadersAtLockTable, all_lose_a_claim_that_the_server_does_not_know_any_more) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto claim = join(2).to_ask;
    const auto joining = locks_.table.join_asked(asker_->turn(), asker_->request, claim,
                                                 {.is_there = false}, locks_.now, locks_.now);
    EXPECT_EQ(joining.lost, std::vector{first});
    EXPECT_EQ(joining.hold, nullptr);
    EXPECT_FALSE(joining.failed);
}

TEST_F(ReadersAtLockTable, all_lose_a_claim_that_was_removed) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    EXPECT_EQ(detail::close_claim_of(*first), (std::vector{first, second}));
    EXPECT_EQ(join(3).hold, nullptr);
    EXPECT_TRUE(detail::close_claim_of(*locks_.taken()).empty()) << "of no reader";
}

TEST_F(ReadersAtLockTable, are_told_of_a_grant_when_the_first_of_them_has_left) {
    detail::Grant late{};
    late.key = "key";
    late.token = "token 1";
    late.weight = ClaimTerms::reader;
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    end(*first);
    EXPECT_TRUE(locks_.table.deliver(late)) << "else the client would give the claim back";
    end(*second);
    EXPECT_FALSE(locks_.table.deliver(late));
}

TEST_F(ReadersAtLockTable, are_told_of_a_grant_when_the_first_of_them_is_lost_and_not_returned) {
    const Wish wish = reading(1);
    const Asker& asker = locks_.enter(wish);
    auto first = std::make_shared<Hold>(wish.terms(), detail::Token{"token 1"}, wish.owner);
    locks_.table.announce(asker.turn(), *first);
    first->nest.push_back(wish.acquisition());
    first->taken(locks_.now);
    ASSERT_TRUE(locks_.table.finish(asker.turn(), first, !others_wait, locks_.now));
    const HoldPtr second = join(2).hold;
    lose(first);
    detail::Grant late{};
    late.key = "key";
    late.token = "token 1";
    late.weight = ClaimTerms::reader;
    EXPECT_TRUE(locks_.table.deliver(late)) << "else the client would give the claim back";
    end(*second);
    EXPECT_FALSE(locks_.table.deliver(late));
}

TEST_F(ReadersAtLockTable, that_wait_get_in_with_the_first_of_them) {
    const Asker& front = locks_.enter(reading(1));
    Asker& second = locks_.enter(reading(2));
    Asker& third = locks_.enter(reading(3));
    EXPECT_EQ(second.said.outcome, Locks::Outcome::queued);
    EXPECT_TRUE(locks_.table.has_waiters(front.turn()));
    const HoldPtr first = take(front, others_wait);
    EXPECT_TRUE(finished_.is_shared) << "then its end is watched";
    EXPECT_EQ(locks_.woken(), (Woken{&second, &third}));
    ASSERT_EQ(locks_.resume(second), Locks::Outcome::handed);
    ASSERT_EQ(locks_.resume(third), Locks::Outcome::handed);
    for (const Asker* other : {&second, &third}) {
        EXPECT_EQ(other->said.hold->token().bytes, first->token().bytes);
        EXPECT_EQ(other->said.hold->owner(), other->request.owner);
        EXPECT_EQ(other->said.hold->valid_until(), first->valid_until());
    }
    EXPECT_EQ(locks_.table.size(), 3U) << "nobody waits any more";
    EXPECT_EQ(end(*first), Kind::left);
    EXPECT_EQ(end(*second.said.hold), Kind::left);
    EXPECT_EQ(end(*third.said.hold), Kind::last);
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable, that_wait_get_in_with_one_that_asks_and_hears_that_nobody_does) {
    const HoldPtr first = take(1);
    locks_.now += 5ms;
    const auto asks = join(2);
    Asker& behind = locks_.enter(reading(3));
    EXPECT_EQ(behind.said.outcome, Locks::Outcome::queued);
    const HoldPtr second = answered(asks.to_ask, !others_wait).hold;
    ASSERT_EQ(locks_.resume(behind), Locks::Outcome::handed);
    EXPECT_EQ(behind.said.hold->token().bytes, first->token().bytes);
    EXPECT_EQ(behind.said.hold->valid_until(), second->valid_until());
}

TEST_F(ReadersAtLockTable, that_come_behind_a_writer_wait_in_a_place_of_their_own) {
    const Asker& front = locks_.enter(reading(1));
    Asker& before = locks_.enter(reading(2));
    locks_.enter(writing(3));
    Asker& behind = locks_.enter(reading(4));
    EXPECT_EQ(behind.said.outcome, Locks::Outcome::turn);
    Asker& last = locks_.enter(reading(5));
    take(front);
    EXPECT_EQ(locks_.resume(before), Locks::Outcome::handed);
    EXPECT_EQ(locks_.resume(last), Locks::Outcome::queued);
    take(behind);
    EXPECT_EQ(locks_.resume(last), Locks::Outcome::handed);
    EXPECT_EQ(last.said.hold->token().bytes, "token 4");
}

TEST_F(ReadersAtLockTable, that_come_behind_a_waiting_writer_wait_in_a_place_of_their_own) {
    locks_.enter(writing(1));
    const Asker& front = locks_.enter(reading(2));
    locks_.enter(writing(3));
    EXPECT_EQ(locks_.enter(reading(4)).said.outcome, Locks::Outcome::turn);
    locks_.ask(writing(5));
    EXPECT_EQ(locks_.enter(reading(6)).said.outcome, Locks::Outcome::queued)
        << "one that does not wait stands nowhere";
    take(front);
}

TEST_F(ReadersAtLockTable, do_not_get_in_after_their_deadline) {
    const Asker& front = locks_.enter(reading(1));
    Wish brief = reading(2);
    brief.wait = 1s;
    Asker& late = locks_.enter(brief);
    Asker& patient = locks_.enter(reading(3));
    locks_.now += 1s;
    take(front);
    EXPECT_FALSE(late.is_handed());
    EXPECT_TRUE(patient.is_handed());
}

TEST_F(ReadersAtLockTable, pass_their_place_on_to_the_next_of_them) {
    const Asker& front = locks_.enter(reading(1));
    Asker& second = locks_.enter(reading(2));
    Asker& third = locks_.enter(reading(3));
    const Hold asked{front.request.terms, detail::Token{"place"}, front.request.owner};
    locks_.table.announce(front.turn(), asked);
    EXPECT_TRUE(locks_.table.pass_place_on(front.turn(), true));
    EXPECT_EQ(locks_.woken(), (Woken{&second}));
    ASSERT_EQ(locks_.resume(second), Locks::Outcome::turn);
    ASSERT_TRUE(locks_.table.place(second.turn()));
    EXPECT_EQ(locks_.table.place(second.turn())->token.bytes, "place");
    Wish tries_once = reading(4);
    tries_once.wait = Wait::none();
    take(locks_.enter(tries_once));
    EXPECT_EQ(locks_.table.join(second.turn(), second.request, locks_.now).hold, nullptr)
        << "the place would be left behind";
    take(second);
    EXPECT_EQ(locks_.resume(third), Locks::Outcome::handed);
    EXPECT_EQ(third.said.hold->token().bytes, "token 2");
}

TEST_F(ReadersAtLockTable, wait_together_on_equal_terms_only) {
    locks_.enter(reading(1));
    Wish longer = reading(2);
    longer.lease = 20s;
    EXPECT_EQ(locks_.enter(longer).said.outcome, Locks::Outcome::turn);
    Wish alone = reading(3);
    alone.joins = false;
    EXPECT_EQ(locks_.enter(alone).said.outcome, Locks::Outcome::turn);
    Wish tries_once = reading(4);
    tries_once.wait = Wait::none();
    EXPECT_EQ(locks_.enter(tries_once).said.outcome, Locks::Outcome::turn);
    EXPECT_EQ(locks_.enter(reading(5)).said.outcome, Locks::Outcome::queued);
}

TEST_F(ReadersAtLockTable, wait_together_until_their_own_crowd_has_got_in) {
    const Asker& front = locks_.enter(reading(1));
    Wish longer = reading(2);
    longer.lease = 20s;
    EXPECT_EQ(locks_.enter(longer).said.outcome, Locks::Outcome::turn);
    take(front);
    longer.id = 3;
    longer.owner = thread(3);
    longer.own_entry = "thread 3";
    EXPECT_EQ(locks_.enter(longer).said.outcome, Locks::Outcome::queued);
}

TEST_F(ReadersAtLockTable, know_a_late_grant_of_who_has_waited_with_others) {
    const Asker& front = locks_.enter(reading(1));
    const Hold asked{front.request.terms, detail::Token{"token 1"}, front.request.owner};
    locks_.table.announce(front.turn(), asked);
    const HoldPtr first = take(front);
    EXPECT_TRUE(locks_.table.deliver(grant_of(1))) << "else the client would give the claim back";
    end(*first);
    EXPECT_FALSE(locks_.table.deliver(grant_of(1)));
}

TEST_F(ReadersAtLockTable, that_wait_are_sent_away_at_the_end_of_the_client) {
    const Asker& front = locks_.enter(reading(1));
    Asker& behind = locks_.enter(reading(2));
    locks_.table.close();
    EXPECT_EQ(locks_.resume(behind), Locks::Outcome::closed);
    locks_.table.end_turn(front.turn());
    EXPECT_TRUE(locks_.table.is_empty());
}

TEST_F(ReadersAtLockTable, are_all_there_at_the_end_of_the_client) {
    const HoldPtr first = take(1);
    const HoldPtr second = join(2).hold;
    EXPECT_EQ(locks_.table.close().holds.size(), 2U);
    lose(first);
    lose(second);
    EXPECT_EQ(locks_.table.size(), 2U) << "until they are returned";
    EXPECT_EQ(end(*first), Kind::past);
    EXPECT_EQ(end(*second), Kind::past);
    EXPECT_TRUE(locks_.table.is_empty());
}

}  // namespace
}  // namespace redlatch::test
