// That the thread does what the machine says. No server: attempts to connect are counted and refused, or
// the test is at the other end.

#include "service_tools.hpp"
#include "support/socket.hpp"
#include "support/wait.hpp"
#include <redlatch/service/renewal_thread.hpp>
#include <redlatch/topology/single_master.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using namespace std::chrono_literals;
using detail::Connection;
using detail::Fault;
using detail::Hold;
using detail::Limit;
using detail::TimePoint;

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
    detail::RenewalThread renewal_{
        topology_,
        {.lost = [](const std::shared_ptr<Hold>&, detail::ServerKeeps) {},
         .renewed = [](const Hold&) {},
         .failed = [](const Error&) {}},
        {.command_timeout = 1s, .late_window = 1h}};
};

using RenewalOfANest = RenewalOf;

TEST_F(RenewalOfANest, goes_on_for_an_acquisition_that_was_announced_before_the_last_one_ended) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.arm(hold_, Clock::now());
    ASSERT_TRUE(renewal_.enlist(*hold_)) << "by one thread";
    renewal_.dismiss_one(*hold_, 1);  // by another, which has ended the first
    renewal_.arm(hold_, long_ago_);   // by the one thread again
    EXPECT_TRUE(asks(1));
}

TEST_F(RenewalOfANest, ends_with_the_last_acquisition_that_wants_it) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.dismiss_one(*hold_, 1);
    renewal_.dismiss_one(*hold_, 2);
    renewal_.arm(hold_, long_ago_);
    // The thread takes what is due in order: this comes behind it.
    ASSERT_TRUE(renewal_.clean_up(taken_hold({.token = "another"}), {.at_once = true}));
    EXPECT_TRUE(asks(1));
    EXPECT_EQ(hold_.use_count(), 1) << "forgotten";
}

TEST_F(RenewalOfANest, ends_with_the_hold_however_many_want_it) {
    ASSERT_TRUE(renewal_.enlist(*hold_));
    ASSERT_TRUE(renewal_.enlist(*hold_));
    renewal_.arm(hold_, Clock::now());
    renewal_.dismiss(*hold_);
    EXPECT_EQ(hold_.use_count(), 1);
    renewal_.dismiss_one(*hold_, 1);  // of a thread that is late
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
    ASSERT_TRUE(renewal_.clean_up(taken_hold({.token = "another"}), {.at_once = true}));
    EXPECT_TRUE(asks(1));
    EXPECT_EQ(next.use_count(), 1) << "nobody wants it to be renewed";
}

TEST_F(RenewalOf, what_is_buried_is_released_again_until_its_key_is_gone_however_late) {
    const auto forged = asked_hold({.lease = std::chrono::milliseconds::max()});
    ASSERT_TRUE(renewal_.clean_up(forged, {.at_once = true}));
    EXPECT_TRUE(asks(3)) << "as nobody has answered";
}

TEST_F(RenewalOf, what_is_buried_twice_is_released_at_both_times) {
    ASSERT_TRUE(renewal_.clean_up(hold_, {.once_more = true}));
    ASSERT_TRUE(renewal_.clean_up(hold_, {.at_once = true}));
    EXPECT_TRUE(asks(1));
}

/// The other end of the connection that was made last. The test is the server.
class OtherEnd final : public detail::Dialer {
public:
    Expected<Connection, Fault> open(const Limit& limit) override {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return refusal();
        const std::lock_guard lock{mutex_};
        end_ = UniqueFd{ends[1]};
        write("$0\r\n\r\n$0\r\n\r\n*2\r\n$1\r\n1\r\n$1\r\n1\r\n");  // to what a new one is asked
        auto connection = detail::adopt_connection(detail::ContextPtr{redisConnectFd(ends[0])},
                                                   "here", nullptr, limit);
        read();
        return connection;
    }
    std::string name() const override { return "here"; }

    void answer(std::string_view bytes) {
        const std::lock_guard lock{mutex_};
        write(bytes);
    }

    /// Whether `text` comes `times` times in what it has been sent.
    bool hears(std::string_view text, int times = 1) {
        return eventually([&] { return count(text) >= times; });
    }

    int count(std::string_view text) {
        const std::lock_guard lock{mutex_};
        heard_ += read();
        int times = 0;
        for (auto at = heard_.find(text); at != std::string::npos; at = heard_.find(text, at + 1)) {
            ++times;
        }
        return times;
    }

private:
    static Unexpected<Fault> refusal() { return Unexpected{detail::io_fault("refused")}; }

    void write(std::string_view bytes) const {
        EXPECT_EQ(::write(end_.get(), bytes.data(), bytes.size()), std::ssize(bytes));
    }

    std::string read() const {
        std::string all;
        std::array<char, 4096> buffer{};
        for (;;) {
            const ssize_t n = ::recv(end_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (n <= 0) return all;
            all.append(buffer.data(), static_cast<std::size_t>(n));
        }
    }

    std::mutex mutex_;
    UniqueFd end_;
    std::string heard_;
};

/// A slot is just being moved from one server to the other.
class MovingSlot final : public detail::Topology {
public:
    detail::Node& master_of(std::string_view) override { return from_; }
    detail::Node& node_of(const detail::Redirection&, detail::Node&) override { return to_; }
    void failed(detail::Node&, const Fault&, const Limit&) override {}

    OtherEnd& from() { return *from_end_; }
    OtherEnd& to() { return *to_end_; }

private:
    static detail::Node node_at(OtherEnd*& end) {
        auto dialer = std::make_unique<OtherEnd>();
        end = dialer.get();
        return {std::move(dialer), {.command_timeout = 20s, .max_connections = 4}, {}};
    }

    OtherEnd* from_end_ = nullptr;
    OtherEnd* to_end_ = nullptr;
    detail::Node from_ = node_at(from_end_);
    detail::Node to_ = node_at(to_end_);
};

TEST(RenewalInACluster, waits_for_the_server_that_it_was_sent_to_and_holds_up_no_other) {
    MovingSlot servers;
    std::atomic<int> renewed{0};
    detail::RenewalThread renewal{servers,
                                  {.lost = [](const std::shared_ptr<Hold>&, detail::ServerKeeps) {},
                                   .renewed = [&](const Hold&) { ++renewed; },
                                   .failed = [](const Error&) {}},
                                  {.command_timeout = 20s, .late_window = 1h}};
    const auto hold = taken_hold({.token = "sent to another"});
    const auto other = taken_hold({.token = "at home"});
    for (const auto& each : {hold, other}) ASSERT_TRUE(renewal.enlist(*each));

    renewal.arm(hold, Clock::now() - 1h);
    ASSERT_TRUE(servers.from().hears("EVALSHA"));
    servers.from().answer("-ASK 0 127.0.0.1:1\r\n");
    ASSERT_TRUE(servers.to().hears("ASKING"));
    renewal.arm(other, Clock::now() - 1h);
    ASSERT_TRUE(servers.from().hears("at home"));
    servers.from().answer(":1\r\n");
    EXPECT_TRUE(eventually([&] { return renewed == 1; }));
    std::this_thread::sleep_for(150ms);  // not at once, but in time
    ASSERT_TRUE(servers.to().hears("EVALSHA"));
    servers.to().answer("+OK\r\n-NOSCRIPT no\r\n");
    ASSERT_TRUE(servers.to().hears("ASKING", 2)) << "once for each command";
    ASSERT_TRUE(servers.to().hears("$4\r\nEVAL\r\n"));
    servers.to().answer("+OK\r\n:1\r\n");
    EXPECT_TRUE(eventually([&] { return renewed == 2; }));
    EXPECT_EQ(servers.from().count("sent to another"), 1) << "at the first try";
}

}  // namespace
