// A thread that listens on a connection. No server: every attempt to connect is counted, and refused.

#include "support/wait.hpp"
#include <redlatch/service/listener.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace {

using namespace redlatch;
using namespace redlatch::detail;
using namespace redlatch::test;
using namespace std::chrono_literals;

class AListener : public ::testing::Test {
protected:
    bool connects() {
        const int before = asked_;
        return eventually([&] { return asked_ > before; });
    }

    std::atomic<int> asked_{0};
    std::atomic<bool> needed_{true};
    Listener listener_{{.connect = [this]() -> Expected<Connection, Fault> {
                            ++asked_;
                            return Unexpected{Fault{}};
                        },
                        .listen = [](Connection&) { return Listener::Outcome::failed; },
                        .ended = [](Listener::Outcome) {},
                        .needed = [this] { return needed_.load(); }}};
};

TEST_F(AListener, tries_again_and_again_while_it_is_needed) {
    EXPECT_FALSE(listener_.is_running());
    EXPECT_TRUE(listener_.start());
    EXPECT_TRUE(listener_.is_running());
    EXPECT_TRUE(connects());
    EXPECT_TRUE(connects());
}

TEST_F(AListener, ends_once_it_is_not_needed_and_can_be_started_again) {
    EXPECT_TRUE(listener_.start());
    EXPECT_TRUE(connects());
    needed_ = false;
    EXPECT_TRUE(eventually([&] { return !listener_.is_running(); }));
    const int before = asked_;
    EXPECT_TRUE(listener_.start()) << "for nothing";
    EXPECT_TRUE(eventually([&] { return !listener_.is_running(); }));
    EXPECT_EQ(asked_, before);
    needed_ = true;
    EXPECT_TRUE(listener_.start());
    EXPECT_TRUE(connects());
}

TEST_F(AListener, that_closes_begins_no_more) {
    listener_.close();
    EXPECT_TRUE(listener_.start());
    EXPECT_FALSE(listener_.is_running());
    EXPECT_EQ(asked_, 0);
}

}  // namespace
