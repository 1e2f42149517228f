// How a client comes to hear of grants. No server: every attempt to connect is counted, and refused.

#include "service_tools.hpp"
#include "support/no_more_threads.hpp"
#include "support/wait.hpp"
#include <redlatch/service/subscription.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;

class SubscriptionAt : public ::testing::Test {
protected:
    ~SubscriptionAt() override { subscription_.close(); }

    bool connects() {
        return eventually([&] { return asked_ > 0; });
    }

    std::atomic<int> asked_{0};
    detail::Node node_{std::make_unique<RefusingDialer>(asked_),
                       {.command_timeout = 1s, .max_connections = 1},
                       {}};
    detail::Subscription subscription_{
        node_, "channel", {.granted = [](const detail::Grant&) {}, .listening = [] {}}};
};

TEST_F(SubscriptionAt, begins_when_it_is_started) {
    EXPECT_EQ(asked_, 0);
    subscription_.start();
    subscription_.start();
    EXPECT_TRUE(connects());
    EXPECT_TRUE(subscription_.is_possible());
    EXPECT_FALSE(subscription_.is_listening());
}

TEST_F(SubscriptionAt, that_got_no_thread_begins_as_soon_as_the_system_has_one) {
    std::optional<NoMoreThreads> none{std::in_place};
    subscription_.start();
    EXPECT_FALSE(subscription_.is_possible()) << "waiters have to ask";
    none.reset();
    subscription_.start();
    EXPECT_TRUE(connects());
    EXPECT_TRUE(subscription_.is_possible());
}

TEST_F(SubscriptionAt, that_closes_begins_no_more) {
    subscription_.begin_to_close();
    subscription_.start();
    subscription_.close();
    EXPECT_EQ(asked_, 0);
}

}  // namespace
