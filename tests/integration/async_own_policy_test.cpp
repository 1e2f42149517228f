// Asynchronous operations with a policy of the user's own: what is wrong with its scripts is nobody else's trouble.

#include "async_tools.hpp"
#include "busy_machine.hpp"
#include "fault_tools.hpp"
#include "support/proxy.hpp"
#include "wrong_policy.hpp"

#include <gtest/gtest.h>

#include <string>

namespace redlatch::test {
namespace {

/// Its scripts do what the library's do.
struct Odd : Simple {
    static const LockScripts& scripts() {
        static const LockScripts same = Simple::scripts();
        return same;
    }
};

/// The library's scripts under another name.
struct Renamed : Simple {};

class AsyncOwnPolicy : public LockTest {
protected:
    /// Links to the server are there, and its scripts are known to them.
    template <class Policy>
    Held warm_up(const std::string& name) {
        Lock<Policy> lock{by_proxy_, name};
        { const Held held = take(lock); }
        return take(lock, {.wait = 60s});
    }

    Proxy proxy_{server_.uri()};
    Client by_proxy_{patient(proxy_.uri())};
};

TEST_F(AsyncOwnPolicy, whose_answers_are_wrong_ends_no_others_connection) {
    const Held warm = warm_up<Simple>("warm");
    Held wrong = warm_up<Wrong>("wrong");
    Lock<Simple> lock{by_proxy_, "key"};
    proxy_.hold_replies();
    Outcome<void> extended;
    wrong.async_extend(30s, extended.callback());
    Outcome<Held> tried;
    lock.async_acquire({.wait = Wait::none()}, {}, tried.callback());
    ASSERT_TRUE(eventually([&] { return redis_.exists("key"); }));
    proxy_.pass();
    EXPECT_TRUE(succeeds(tried.get())) << "by its only try";
    EXPECT_FALSE(extended.get());
    EXPECT_TRUE(warm.held());
}

TEST_F(AsyncOwnPolicy, has_a_connection_of_its_own_only_where_its_scripts_are) {
    const Held simple = warm_up<Simple>("a");
    const int before = proxy_.counts().connections;
    const Held renamed = warm_up<Renamed>("b");
    const Held watched = warm_up<Fenced<Reentrant>>("c");
    EXPECT_EQ(proxy_.counts().connections, before);
    const Held own = warm_up<Wrong>("d");
    const Held same = warm_up<Wrong>("e");
    EXPECT_EQ(proxy_.counts().connections, before + 1);
}

TEST_F(AsyncOwnPolicy, is_renewed_over_a_connection_of_its_own_only_where_its_scripts_are) {
    Lock<Watchdog<Simple>> first{by_proxy_, "a", {.lease = 3s}};
    Lock<Watchdog<Renamed>> second{by_proxy_, "b", {.lease = 3s}};
    Lock<Watchdog<Odd>> third{by_proxy_, "c", {.lease = 3s}};
    Lock<Watchdog<Odd>> fourth{by_proxy_, "d", {.lease = 3s}};
    const Held simple = take(first);
    ASSERT_TRUE(is_renewed(simple));
    const int before = proxy_.counts().connections;
    const Held renamed = take(second);
    ASSERT_TRUE(is_renewed(renamed));
    EXPECT_EQ(proxy_.counts().connections, before);
    const Held own = take(third);
    const Held same = take(fourth);
    ASSERT_TRUE(is_renewed(own));
    ASSERT_TRUE(is_renewed(same));
    EXPECT_EQ(proxy_.counts().connections, before + 2)
        << "one for what the engine sends, and one for the renewal";
}

}  // namespace
}  // namespace redlatch::test
