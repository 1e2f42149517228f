// An operator removes the owner that he has seen, and nobody who came after that one.

#include "async_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/proxy.hpp"

namespace redlatch::test {
namespace {

template <class Policy>
class ForceUnlockOfOwner : public LockTest {
protected:
    Lock<Policy> operators_{client_, "job"};
    Lock<Policy> theirs_{other_client_, "job", {.lease = 60s}};
};
TYPED_TEST_SUITE(ForceUnlockOfOwner, EveryPolicy);

TYPED_TEST(ForceUnlockOfOwner, removes_the_one_that_inspect_has_shown) {
    auto held = this->theirs_.acquire();
    const std::string owner = this->operators_.inspect().value().owner;
    EXPECT_EQ(owner, held->token());
    EXPECT_EQ(this->operators_.force_unlock(owner).value(), Forced::removed);
    EXPECT_FALSE(this->redis_.exists("job"));
    EXPECT_EQ(this->operators_.force_unlock(owner).value(), Forced::absent);
}

TYPED_TEST(ForceUnlockOfOwner, leaves_whoever_came_after_that_one) {
    const std::string gone = this->theirs_.acquire().value().token();
    const auto held = this->theirs_.acquire();
    EXPECT_EQ(this->operators_.force_unlock(gone).value(), Forced::absent);
    EXPECT_EQ(this->operators_.force_unlock("somebody").value(), Forced::absent);
    EXPECT_EQ(this->operators_.inspect().value().owner, held->token());
}

TYPED_TEST(ForceUnlockOfOwner, gives_the_lock_to_the_next_waiter) {
    const auto held = this->theirs_.acquire();
    Client third{patient(this->server_.uri())};
    Lock<TypeParam> waits{third, "job"};
    auto next = in_background([&] { return waits.acquire({.wait = 30s}).has_value(); });
    ASSERT_TRUE(eventually([&] { return this->operators_.inspect().value().waiters == 1; }));
    EXPECT_EQ(this->operators_.force_unlock(held->token()).value(), Forced::removed);
    EXPECT_TRUE(next.get());
}

TYPED_TEST(ForceUnlockOfOwner, is_noticed_at_once_by_a_holder_of_the_same_client) {
    auto held = this->operators_.acquire();
    const std::stop_token lost = held->lost();
    EXPECT_EQ(this->operators_.force_unlock(held->token()).value(), Forced::removed);
    EXPECT_EQ(held->state(), HoldState::lost);
    EXPECT_TRUE(fires(lost));
}

TYPED_TEST(ForceUnlockOfOwner, leaves_another_holder_of_the_same_client_alone) {
    const std::string gone = this->operators_.acquire()->token();
    const auto held = this->operators_.acquire();
    EXPECT_EQ(this->operators_.force_unlock(gone).value(), Forced::absent);
    EXPECT_TRUE(held->held());
}

TYPED_TEST(ForceUnlockOfOwner, ends_an_acquisition_of_the_same_client_whose_answer_is_under_way) {
    Proxy proxy{this->server_.uri()};
    Client client{patient(proxy.uri())};
    Lock<TypeParam> lock{client, "job"};
    const auto acquire = [&](Outcome<Held>& outcome) {
        lock.async_acquire({}, {}, outcome.callback());
    };
    Outcome<Held> first;  // a connection for asynchronous calls, and one for the others
    acquire(first);
    ASSERT_TRUE(is_outcome(first.get()->release(), Release::released));
    ASSERT_EQ(lock.force_unlock("nobody").value(), Forced::absent);  // the script is known

    proxy.hold_replies();
    Outcome<Held> taken;
    acquire(taken);
    ASSERT_TRUE(eventually([this] { return this->redis_.exists("job"); }));
    const std::string owner = this->operators_.inspect().value().owner;
    auto forced = in_background([&] { return lock.force_unlock(owner); });
    EXPECT_TRUE(eventually([this] { return !this->redis_.exists("job"); }));
    proxy.pass();
    EXPECT_EQ(forced.get().value(), Forced::removed);
    const auto held = taken.get();
    EXPECT_FALSE(held && held->held());
}

using ForceUnlock = LockTest;

TEST_F(ForceUnlock, of_a_waiter_removes_nothing) {
    ASSERT_TRUE(foreign_set(redis_, "job"));
    Lock<Simple> waits{other_client_, "job"};
    std::stop_source stop;
    auto waiter = in_background([&] { return code_of(waits.acquire({.stop = stop.get_token()})); });
    ASSERT_TRUE(eventually([&] { return redis_.exists("redlatch:queue:{job}"); }));
    const std::string token =
        redis_.command({"ZRANGE", "redlatch:queue:{job}", "0", "0"}).elements.at(0).text;
    Lock<Simple> operators{client_, "job"};
    EXPECT_EQ(operators.force_unlock(token).value(), Forced::absent);
    EXPECT_EQ(operators.inspect().value().waiters, 1U);
    stop.request_stop();
    EXPECT_EQ(waiter.get(), Errc::cancelled);
}

TEST_F(ForceUnlock, of_a_foreign_owner_removes_it) {
    ASSERT_TRUE(foreign_set(redis_, "job", "theirs"));
    EXPECT_EQ((Lock<Simple>{client_, "job"}.force_unlock("theirs").value()), Forced::removed);
    EXPECT_FALSE(redis_.exists("job"));
}

TEST_F(ForceUnlock, of_no_owner_is_refused_before_any_io) {
    ASSERT_TRUE(foreign_set(redis_, "job", ""));
    Lock<Simple> lock{client_, "job"};
    const char* const null = nullptr;
    for (const auto& refused :
         {lock.force_unlock(""), lock.force_unlock(std::string{}), lock.force_unlock(null)}) {
        ASSERT_EQ(code_of(refused), Errc::invalid_argument);
        EXPECT_EQ(refused.error().key, "job");
    }
    EXPECT_TRUE(redis_.exists("job"));
}

}  // namespace
}  // namespace redlatch::test
