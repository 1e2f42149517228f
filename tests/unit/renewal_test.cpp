// Which holds are renewed, and for how long what is buried is released again. No server: every attempt
// to connect is counted, and refused.

#include "service_tools.hpp"
#include "support/wait.hpp"
#include <redlatch/service/renewal.hpp>
#include <redlatch/topology/single_master.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::Connection;
using detail::Dialer;
using detail::Fault;
using detail::Hold;
using detail::Limit;
using detail::Phase;
using detail::TimePoint;

class RefusingDialer final : public Dialer {
public:
    explicit RefusingDialer(std::atomic<int>& asked) : asked_(&asked) {}

    Expected<Connection, Fault> open(const Limit&) override {
        ++*asked_;
        return Unexpected{detail::io_fault("refused")};
    }
    std::string name() const override { return "nowhere"; }

private:
    std::atomic<int>* asked_;
};

class RenewalOf : public ::testing::Test {
protected:
    /// Whether it is asked for at least so often.
    bool asks(int times) {
        return eventually([&] { return asked_ >= times; });
    }

    /// Renewed at once, and again every 500 ms where nobody answers.
    std::shared_ptr<Hold> hold_ = taken_hold({.lease = 1h});
    TimePoint long_ago_ = Clock::now() - 1h;

    std::atomic<int> asked_{0};
    detail::SingleMaster topology_{std::make_unique<RefusingDialer>(asked_),
                                   {.command_timeout = 1s, .max_connections = 1},
                                   {}};
    detail::Renewal renewal_{topology_,
                             {.lost = [](const std::shared_ptr<Hold>&, detail::ServerKeeps) {},
                              .renewed = [](const Hold&) {},
                              .failed = [](const Error&) {}},
                             1s};
};

using RenewalOfANest = RenewalOf;

TEST_F(RenewalOfANest, goes_on_for_an_acquisition_that_was_announced_before_the_last_one_ended) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.arm(hold_, Clock::now());
    ASSERT_TRUE(renewal_.enlist(*hold_)) << "by one thread";
    renewal_.dismiss_one(*hold_);    // by another, which has ended the first
    renewal_.arm(hold_, long_ago_);  // by the one thread again
    EXPECT_TRUE(asks(1));
}

TEST_F(RenewalOfANest, ends_with_the_last_acquisition_that_wants_it) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.dismiss_one(*hold_);
    renewal_.dismiss_one(*hold_);
    renewal_.arm(hold_, long_ago_);
    // The thread takes what is due in order: this comes behind it.
    ASSERT_TRUE(renewal_.release_at(taken_hold({.token = "another"}), {0ns}));
    EXPECT_TRUE(asks(1));
    EXPECT_EQ(hold_.use_count(), 1) << "forgotten";
}

TEST_F(RenewalOfANest, ends_with_the_hold_however_many_want_it) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.arm(hold_, Clock::now());
    renewal_.dismiss(*hold_);
    EXPECT_EQ(hold_.use_count(), 1);
    renewal_.dismiss_one(*hold_);  // of a thread that is late
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.arm(hold_, long_ago_);
    EXPECT_TRUE(asks(1)) << "nothing is owed";
}

TEST_F(RenewalOf, a_hold_at_the_address_of_one_that_is_gone_is_not_renewed_for_it) {
    std::optional<Hold> place;
    place.emplace(terms_of({}), detail::Token{"gone"}, detail::this_thread());
    ASSERT_TRUE(renewal_.enlist(*place)) << "and never dismissed: it was lost before";
    place.emplace(terms_of({.lease = 1h}), detail::Token{"next"}, detail::this_thread());
    place->taken(Clock::now());
    const std::shared_ptr<Hold> next{&*place, [](Hold*) {}};
    renewal_.arm(next, long_ago_);
    ASSERT_TRUE(renewal_.release_at(taken_hold({.token = "another"}), {0ns}));
    EXPECT_TRUE(asks(1));
    EXPECT_EQ(next.use_count(), 1) << "nobody wants it to be renewed";
}

TEST_F(RenewalOf, what_is_buried_is_released_again_until_its_key_is_gone_however_late) {
    const auto forged = asked_hold({.lease = std::chrono::milliseconds::max()});
    ASSERT_TRUE(renewal_.release_at(forged, {0ns}));
    EXPECT_TRUE(asks(3)) << "as nobody has answered";
}

TEST_F(RenewalOf, what_is_buried_twice_is_released_at_both_times) {
    ASSERT_TRUE(renewal_.release_at(hold_, {50ms}));
    ASSERT_TRUE(renewal_.release_at(hold_, {1h}));
    EXPECT_TRUE(asks(1));
}

}  // namespace
