// `Held::detach()` and `Lock::adopt()`: a lock goes from one process to another without being free.

#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"

#include <optional>
#include <thread>

namespace redlatch::test {
namespace {

template <class Policy>
class HandedOver : public CountedWaits {
protected:
    Lock<Policy> lock_{client_, "job", {.lease = 20s}};
    Lock<Policy> theirs_{other_client_, "job", {.lease = 40s}};

    std::string owner() { return lock_.inspect().value().owner; }
};
TYPED_TEST_SUITE(HandedOver, EveryPolicy);

TYPED_TEST(HandedOver, goes_on_with_whoever_adopts_it) {
    auto held = this->lock_.acquire();
    const std::string token = held->token();
    const auto ticket = held->detach();
    ASSERT_TRUE(ticket.has_value()) << ticket.error().describe();
    EXPECT_EQ(held->state(), HoldState::none);
    EXPECT_EQ(held->release().value(), Release::not_held);
    EXPECT_EQ(this->owner(), ticket->text());
    EXPECT_FALSE(this->lock_.held());
    EXPECT_FALSE(this->lock_.try_lock()) << "nobody has it, and it is not free";

    auto adopted = this->theirs_.adopt(Ticket{ticket->text()});
    ASSERT_TRUE(adopted.has_value()) << adopted.error().describe();
    EXPECT_TRUE(adopted->held());
    EXPECT_TRUE(this->theirs_.held());
    EXPECT_EQ(this->owner(), adopted->token());
    EXPECT_NE(adopted->token(), token);
    EXPECT_GT(adopted->remaining(), 30s) << "its own lease";
    EXPECT_TRUE(adopted->extend(50s).has_value());
    EXPECT_EQ(adopted->release().value(), Release::released);
    this->redis_.del("redlatch:fence:{job}");
    EXPECT_TRUE(this->redis_.keys().empty());
}

TYPED_TEST(HandedOver, has_a_full_lease_on_the_way) {
    auto held = this->lock_.acquire({.lease = 20s});
    this->redis_.command({"PEXPIRE", "job", "8000"});
    ASSERT_TRUE(held->detach().has_value());
    EXPECT_GT(this->redis_.pttl("job"), 12'000);
    EXPECT_LE(this->redis_.pttl("job"), 20'000);
}

TYPED_TEST(HandedOver, is_lost_to_a_second_who_adopts_it) {
    const Ticket ticket = this->lock_.acquire()->detach().value();
    const auto first = this->theirs_.adopt(ticket);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(code_of(this->lock_.adopt(ticket)), Errc::lost);
    EXPECT_EQ(code_of(this->theirs_.adopt(ticket)), Errc::lost);
    EXPECT_TRUE(first->held());
    EXPECT_EQ(this->owner(), first->token());
}

TYPED_TEST(HandedOver, that_nobody_adopts_ends_with_its_lease) {
    Lock<TypeParam> brief{this->client_, "job", {.lease = 4s}};
    const auto ticket = brief.acquire()->detach();
    ASSERT_TRUE(ticket) << ticket.error().describe();
    ASSERT_TRUE(eventually([&] { return !this->redis_.exists("job"); })) << "nobody renews it";
    EXPECT_EQ(code_of(this->theirs_.adopt(*ticket)), Errc::lost);
    EXPECT_FALSE(this->redis_.exists("job"));
}

TYPED_TEST(HandedOver, is_not_taken_from_who_holds_it) {
    const auto held = this->lock_.acquire();
    for (const std::string& text : {held->token(), std::string{}, std::string{":ticket"},
                                    std::string{"foreign:ticket"}, held->token() + ":min_hold"}) {
        EXPECT_EQ(code_of(this->theirs_.adopt(Ticket{text})), Errc::invalid_argument) << text;
    }
    const char* const null = nullptr;
    EXPECT_EQ(code_of(this->theirs_.adopt(Ticket{null})), Errc::invalid_argument);
    EXPECT_EQ(code_of(this->theirs_.adopt(Ticket{held->token() + ":ticket"})), Errc::lost);
    EXPECT_TRUE(held->held());
    EXPECT_EQ(this->owner(), held->token());
}

TYPED_TEST(HandedOver, of_another_name_is_lost) {
    const Ticket ticket = this->lock_.acquire()->detach().value();
    EXPECT_EQ(code_of(Lock<TypeParam>(this->other_client_, "other").adopt(ticket)), Errc::lost);
}

TYPED_TEST(HandedOver, gives_way_to_who_waits_only_when_it_is_released) {
    Lock<TypeParam> lock{this->counted_, "job", {.lease = 20s}};
    auto held = lock.acquire({.owner = Owner::hold});
    auto next = in_background([&] { return lock.acquire(); });
    ASSERT_TRUE(this->waits_->become(1));
    const auto ticket = held->detach();
    ASSERT_TRUE(ticket.has_value());
    ASSERT_TRUE(eventually([&] { return this->lock_.inspect().value().waiters == 1; }))
        << "the next thread waits at the server now";
    auto adopted = this->theirs_.adopt(*ticket);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_EQ(adopted->release().value(), Release::released);
    EXPECT_TRUE(next.get().has_value());
}

// Who waits at the server here has the lock after the hold that came by a ticket.
TYPED_TEST(HandedOver, may_be_adopted_where_another_thread_waits) {
    const Ticket ticket = this->lock_.acquire()->detach().value();
    std::optional<Result<Held>> waited;
    std::jthread waiter{[&] { waited.emplace(this->theirs_.acquire()); }};
    ASSERT_TRUE(eventually([&] { return this->lock_.inspect().value().waiters == 1; }));
    auto adopted = this->theirs_.adopt(ticket);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_TRUE(this->theirs_.held());
    EXPECT_EQ(adopted->release().value(), Release::released);
    waiter.join();
    ASSERT_TRUE(waited->has_value());
    EXPECT_TRUE((*waited)->held());
}

TYPED_TEST(HandedOver, knows_when_it_was_lost_before) {
    auto held = this->lock_.acquire();
    this->redis_.del("job");
    EXPECT_EQ(code_of(held->detach()), Errc::lost);
    EXPECT_EQ(code_of(held->detach()), Errc::not_held);
    EXPECT_FALSE(this->redis_.exists("job"));
    EXPECT_TRUE(this->lock_.try_lock()) << "nothing is left of it here";
}

TYPED_TEST(HandedOver, tells_the_observer_of_a_loss_as_a_release_does) {
    const auto journal = std::make_shared<Journal>();
    ClientOptions options = options_for(this->server_.uri(), 10s);
    options.observer = journal;
    Client client{options};
    Held held = Lock<TypeParam>{client, "job"}.acquire().value();
    this->redis_.del("job");
    EXPECT_EQ(code_of(held.detach()), Errc::lost);
    ASSERT_TRUE(eventually([&] { return !journal->releases().empty(); }));
    const auto outcome = journal->releases().front();
    ASSERT_TRUE(outcome.has_value()) << outcome.error().describe();
    EXPECT_EQ(*outcome, Release::expired);
}

TYPED_TEST(HandedOver, belongs_to_its_thread_or_to_itself) {
    const Ticket first = this->lock_.acquire()->detach().value();
    auto adopted = this->theirs_.adopt(first, Owner::hold);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_FALSE(this->theirs_.held());
    on_another_thread([&] { return adopted->release().value(); });
    EXPECT_FALSE(this->redis_.exists("job"));
}

using HandedOverAndWatched = LockTest;

TEST_F(HandedOverAndWatched, is_renewed_again) {
    Lock<> lock{client_, "job"};
    Lock<> theirs{other_client_, "job", {.lease = 6s}};
    const auto ticket = lock.acquire()->detach();
    ASSERT_TRUE(ticket.has_value());
    const auto adopted = theirs.adopt(*ticket);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_TRUE(is_renewed(*adopted));
}

using HandedOverWithANumber = LockTest;

TEST_F(HandedOverWithANumber, has_a_greater_one) {
    Lock<Fenced<Simple>> lock{client_, "job"};
    auto held = lock.acquire();
    const std::uint64_t before = held->fence();
    const auto adopted = Lock<Fenced<Simple>>{other_client_, "job"}.adopt(held->detach().value());
    ASSERT_TRUE(adopted.has_value());
    EXPECT_GT(adopted->fence(), before);
}

using NotHandedOver = LockTest;

TEST_F(NotHandedOver, where_others_of_its_nest_would_lose_it) {
    Lock<Reentrant> lock{client_, "job"};
    auto outer = lock.acquire();
    auto inner = lock.acquire();
    EXPECT_EQ(code_of(outer->detach()), Errc::invalid_argument);
    EXPECT_TRUE(outer->held());
    EXPECT_EQ(inner->release().value(), Release::still_held);
    EXPECT_TRUE(outer->detach().has_value());
}

TEST_F(NotHandedOver, over_several_masters) {
    RedisServer second;
    RedisServer third;
    Client client{{.uris = {server_.uri(), second.uri(), third.uri()},
                   .node_timeout = 1s,
                   .longest_lease = 0ms}};
    Lock<Simple> lock{client, "job"};
    auto held = lock.acquire();
    ASSERT_TRUE(held.has_value()) << held.error().describe();
    EXPECT_EQ(code_of(held->detach()), Errc::invalid_argument);
    EXPECT_TRUE(held->held());
    const Ticket ticket = Lock<Simple>{other_client_, "other"}.acquire()->detach().value();
    EXPECT_EQ(code_of(lock.adopt(ticket)), Errc::invalid_argument);
}

TEST_F(NotHandedOver, without_a_script_that_moves_it) {
    struct Unmoved : Simple {
        static const LockScripts& scripts() {
            static const LockScripts unmoved = [] {
                LockScripts all = Simple::scripts();
                all.move = Script{""};
                return all;
            }();
            return unmoved;
        }
    };
    Lock<Unmoved> lock{client_, "job"};
    auto held = lock.acquire();
    EXPECT_EQ(code_of(held->detach()), Errc::invalid_argument);
    EXPECT_EQ(held->release().value(), Release::released);
}

using HandedOverInTrouble = LockTest;

TEST_F(HandedOverInTrouble, is_over_here_whatever_the_answer_and_released_in_the_background) {
    Proxy proxy{server_.uri()};
    Client cut_off{{.uris = {proxy.uri()}, .connect_timeout = 100ms, .command_timeout = 300ms}};
    Lock<Simple> lock{cut_off, "job"};
    auto held = lock.acquire();
    ASSERT_TRUE(held.has_value());
    proxy.refuse();
    proxy.cut();
    const auto ticket = held->detach();
    EXPECT_EQ(code_of(ticket), Errc::unavailable);
    EXPECT_EQ(held->state(), HoldState::none);
    proxy.pass();
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); }));
}

TEST_F(HandedOverInTrouble, is_known_though_an_answer_was_lost) {
    Proxy proxy{server_.uri()};
    Client client{patient(proxy.uri())};
    Lock<Simple> lock{client, "job"};
    for (const bool lossy : {false, true}) {  // the server has to know the script first
        auto held = lock.acquire();
        ASSERT_TRUE(held.has_value());
        if (lossy) proxy.drop_replies_once(1, ":ticket");
        const auto ticket = held->detach();
        ASSERT_TRUE(ticket.has_value()) << ticket.error().describe();
        EXPECT_EQ(proxy.counts().dropped_replies, lossy ? 1 : 0);
        if (lossy) proxy.drop_replies_once(1, ":ticket");
        auto adopted = lock.adopt(*ticket);
        ASSERT_TRUE(adopted.has_value()) << adopted.error().describe();
        EXPECT_EQ(proxy.counts().dropped_replies, lossy ? 2 : 0);
        EXPECT_EQ(redis_.get("job"), adopted->token());
        EXPECT_EQ(adopted->release().value(), Release::released);
    }
}

TEST_F(HandedOverInTrouble, keeps_its_min_hold_where_nobody_gets_the_ticket) {
    ASSERT_TRUE(Lock<Simple>(client_, "warm").acquire()->detach());  // the server knows the script
    Proxy proxy{server_.uri()};
    Client cut_off{{.uris = {proxy.uri()}, .connect_timeout = 2s, .command_timeout = 2s}};
    Lock<Simple> lock{cut_off, "job", {.lease = 20s, .min_hold = 1h}};
    auto held = lock.acquire();
    ASSERT_TRUE(held.has_value());
    proxy.black_hole(Way::replies);
    EXPECT_EQ(code_of(held->detach()), Errc::unavailable);
    ASSERT_TRUE(eventually([&] { return redis_.get("job").value_or("").ends_with(":ticket"); }));
    proxy.pass();
    EXPECT_TRUE(
        eventually([&] { return redis_.get("job").value_or("").ends_with(":ticket:min_hold"); }));
    EXPECT_GT(redis_.pttl("job"), 50 * 60'000);
}

TEST_F(HandedOverInTrouble, leaves_nothing_to_its_lock_delay_where_it_was_lost_before) {
    Lock<Simple> lock{client_, "job", {.lease = 200ms, .lock_delay = 60s}};
    Held held = lock.acquire().value();
    ASSERT_TRUE(fires(held.lost()));
    EXPECT_TRUE(redis_.exists("job"));
    EXPECT_EQ(code_of(held.detach()), Errc::lost);
    EXPECT_TRUE(eventually([&] { return !redis_.exists("job"); })) << "its holder has ended it";
}

TEST_F(HandedOverInTrouble, whose_place_another_one_has_taken_is_told_so_by_the_server) {
    Lock<Watchdog<Simple>> lock{client_, "job", {.lease = 60s}};
    auto before = lock.acquire({.owner = Owner::hold});
    ASSERT_TRUE(before.has_value());
    redis_.del("job");
    const Ticket ticket = Lock<Simple>{other_client_, "job"}.acquire()->detach().value();
    auto adopted = lock.adopt(ticket, Owner::hold);
    ASSERT_TRUE(adopted.has_value());
    EXPECT_EQ(code_of(before->detach()), Errc::lost);
    EXPECT_FALSE(before->held());
    EXPECT_TRUE(adopted->held());
    EXPECT_EQ(adopted->release().value(), Release::released);
}

TEST_F(HandedOverInTrouble, is_not_adopted_over_a_link_that_is_gone_and_the_ticket_stays) {
    Proxy proxy{server_.uri()};
    Client cut_off{{.uris = {proxy.uri()}, .connect_timeout = 2s, .command_timeout = 2s}};
    Lock<Simple> lock{cut_off, "job"};
    const Ticket ticket = Lock<Simple>{client_, "job"}.acquire()->detach().value();
    proxy.refuse();
    EXPECT_EQ(code_of(lock.adopt(ticket)), Errc::unavailable);
    proxy.pass();
    EXPECT_TRUE(lock.adopt(ticket).has_value());
}

}  // namespace
}  // namespace redlatch::test
