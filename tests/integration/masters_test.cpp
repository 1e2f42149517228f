// Several independent masters, of which a majority decides.

#include "async_tools.hpp"
#include "fault_tools.hpp"
#include "lock_test.hpp"
#include "support/overlap_detector.hpp"
#include "support/proxy.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace redlatch::test;

const std::string key = "quorum:pay";

template <class T>
testing::AssertionResult accepted(const Result<T>& result) {
    if (result) return testing::AssertionSuccess();
    return testing::AssertionFailure() << result.error().describe();
}

/// A server that can be taken off the net.
struct Master {
    Master() : Master(RedisServerOptions{}) {}
    explicit Master(RedisServerOptions options)
        : server(std::move(options)), raw(server), proxy(server.uri()) {}

    void unplug() {
        proxy.refuse();
        proxy.cut();
    }

    RedisServer server;
    RawRedis raw;
    Proxy proxy;
};

class QuorumTest : public ::testing::Test {
protected:
    explicit QuorumTest(std::size_t masters = 3, RedisServerOptions options = {}) {
        for (std::size_t i = 0; i < masters; ++i) masters_.emplace_back(options);
    }

    /// For servers that have just started.
    ClientOptions options(std::chrono::milliseconds timeout = 5s) const {
        ClientOptions options;
        for (const Master& master : masters_) options.uris.emplace_back(master.proxy.uri());
        options.connect_timeout = timeout;
        options.command_timeout = timeout;
        options.node_timeout = timeout;
        options.longest_lease = 0ms;
        return options;
    }

    /// What the masters say about the owner: an empty text for a free lock.
    std::vector<std::string> owners() {
        std::vector<std::string> all;
        for (Master& master : masters_) all.push_back(master.raw.get(key).value_or(""));
        return all;
    }

    bool all_have(const std::string& owner) {
        const auto all = owners();
        return std::count(all.begin(), all.end(), owner) == std::ssize(all);
    }
    bool all_free() { return all_have(""); }

    /// Takes `lock` at every master and releases it: afterwards nothing of that is still on its way to a slow one.
    testing::AssertionResult had_everywhere(Lock<Simple>& lock) {
        auto held = lock.acquire();
        if (!held) return accepted(held);
        if (!eventually([&] { return all_have(held->token()); }))
            return testing::AssertionFailure() << "a master was not asked";
        const auto release = held->release();
        if (!release) return accepted(release);
        if (!eventually([&] { return all_free(); }))
            return testing::AssertionFailure() << "a master did not hear of the release";
        return testing::AssertionSuccess();
    }

    Master& master(std::size_t i) { return masters_[i]; }

    std::deque<Master> masters_;
};

class FiveMasters : public QuorumTest {
protected:
    FiveMasters() : QuorumTest(5) {}
};

bool mentions(const Error& error, const std::string& text) {
    return error.describe().find(text) != std::string::npos;
}

TEST_F(QuorumTest, a_lock_is_written_to_all_and_gone_from_all) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire();
    ASSERT_TRUE(accepted(held));
    EXPECT_TRUE(eventually([&] { return all_have(held->token()); }));
    EXPECT_TRUE(held->held());

    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, excludes_other_clients) {
    Client client{options()};
    Client other{options()};
    Lock<Simple> lock{client, key};
    Lock<Simple> others{other, key};

    ASSERT_TRUE(lock.try_lock());
    EXPECT_FALSE(others.try_lock());
    lock.unlock();
    EXPECT_TRUE(others.try_lock_for(10s));
}

TEST_F(QuorumTest, leaves_nothing_behind_where_it_was_refused) {
    Client client{options()};
    ASSERT_TRUE(foreign_set(master(0).raw, key));
    ASSERT_TRUE(foreign_set(master(1).raw, key));

    Lock<Simple> lock{client, key};
    EXPECT_FALSE(lock.try_lock());

    EXPECT_TRUE(eventually([&] { return !master(2).raw.exists(key); }));
    EXPECT_EQ(master(0).raw.get(key), "foreign");
    EXPECT_EQ(master(1).raw.get(key), "foreign");
}

// Each of the five is free, taken by somebody, or out of reach: 243 patterns.
TEST_F(FiveMasters, decide_as_their_majority_does_in_every_pattern) {
    enum class State { free, taken, dead };
    int patterns = 0;
    for (int pattern = 0; pattern < 243; ++pattern) {
        std::vector<State> states;
        for (int rest = pattern, i = 0; i < 5; ++i, rest /= 3) {
            states.push_back(static_cast<State>(rest % 3));
        }
        SCOPED_TRACE(pattern);
        for (std::size_t i = 0; i < states.size(); ++i) {
            if (states[i] == State::taken) {
                master(i).raw.set(key, "foreign");
            } else {
                master(i).raw.del(key);
            }
            master(i).proxy.pass();
            if (states[i] == State::dead) master(i).unplug();
        }
        {
            Client client{options()};
            Lock<Simple> lock{client, key};
            const auto free = std::count(states.begin(), states.end(), State::free);
            const auto dead = std::count(states.begin(), states.end(), State::dead);
            Result<Held> held = Held{};
            // Once more where one of a majority was silent for too long, as on a busy machine.
            EXPECT_TRUE(eventually([&] {
                held = lock.acquire({.wait = 0s, .lease = 20s});
                return dead > 2 || code_of(held) != Errc::no_quorum;
            }));
            ASSERT_EQ(held.has_value(), free >= 3)
                << (held ? "it has it" : held.error().describe());
            if (held) {
                EXPECT_TRUE(held->held());
            } else if (dead <= 2) {
                EXPECT_EQ(code_of(held), Errc::timed_out) << "a majority has answered";
            } else if (dead + free == 5) {
                EXPECT_EQ(code_of(held), Errc::no_quorum) << "nobody else has it";
            }
        }  // released, whether it was had or not
        for (std::size_t i = 0; i < states.size(); ++i) {
            const bool taken = states[i] == State::taken;
            ASSERT_TRUE(eventually([&] {
                return master(i).raw.get(key).value_or("") == (taken ? "foreign" : "");
            })) << i;
        }
        ++patterns;
    }
    EXPECT_EQ(patterns, 243);
}

TEST_F(QuorumTest, one_that_is_frozen_slows_nobody) {
    Client client{options(1s)};
    Lock<Simple> lock{client, key};
    lock.lock();
    lock.unlock();

    master(1).server.freeze();
    const Stopwatch stopwatch;
    for (int i = 0; i < 50; ++i) {
        lock.lock();
        lock.unlock();
    }
    EXPECT_LT(stopwatch.elapsed(), 40s) << "to wait for it takes a second each time";
    master(1).server.thaw();
    EXPECT_TRUE(eventually([&] { return all_free(); })) << "what it was asked meanwhile is undone";
}

TEST_F(QuorumTest, one_that_still_owes_an_answer_is_asked_too) {
    Client client{options()};
    Lock<Simple> taken{client, key};
    Lock<Simple> free_lock{client, "free"};
    for (const std::size_t i : {0U, 1U}) master(i).raw.set(key, "somebody");
    ASSERT_FALSE(taken.try_lock());
    master(2).proxy.delay(100ms, 0ms, Way::replies);
    ASSERT_FALSE(taken.try_lock()) << "two refuse, so the third one's answer is left to come";
    ASSERT_TRUE(free_lock.try_lock());
    EXPECT_TRUE(eventually([&] { return master(2).raw.exists("free"); }));
    free_lock.unlock();
}

TEST_F(QuorumTest, none_is_taken_for_silent_where_a_call_had_no_time_for_it) {
    Client client{options(60s)};
    Lock<Simple> lock{client, key};
    const auto ends_early = [&] {
        for (Master& m : masters_) m.proxy.hold_replies();
        const auto had = lock.acquire({.wait = 1ms});
        for (Master& m : masters_) m.proxy.pass();
        return code_of(had) == Errc::no_quorum;
    };
    const auto works = [&] {
        const bool had = lock.try_lock();
        if (had) lock.unlock();
        return had && eventually([&] { return all_free(); });
    };
    ASSERT_TRUE(works());
    ASSERT_TRUE(ends_early());
    ASSERT_TRUE(works());
    const auto connections = [&] {
        std::vector<std::string> all;
        for (Master& m : masters_) all.push_back(m.raw.info("stats")["total_connections_received"]);
        return all;
    };
    // What cleans up in the background has a connection of its own, made when it is first needed.
    bool keeps_all = false;
    for (int round = 0; round < 10 && !keeps_all; ++round) {
        const auto before = connections();
        EXPECT_TRUE(ends_early());
        EXPECT_TRUE(works());
        keeps_all = connections() == before;
    }
    EXPECT_TRUE(keeps_all) << "each is connected to anew";
}

TEST_F(QuorumTest, one_that_was_never_there_slows_nobody) {
    masters_[2].server.freeze();
    Client client{options(1s)};
    Lock<Simple> lock{client, key};
    const Stopwatch stopwatch;
    for (int i = 0; i < 50; ++i) {
        lock.lock();
        lock.unlock();
    }
    EXPECT_LT(stopwatch.elapsed(), 40s);
    masters_[2].server.thaw();
}

TEST_F(QuorumTest, one_that_comes_back_votes_again) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    master(0).unplug();
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();

    master(0).proxy.pass();
    master(1).unplug();
    EXPECT_TRUE(eventually([&] {
        auto held = lock.acquire({.wait = 0s});
        return held.has_value();
    }));
}

TEST_F(QuorumTest, without_a_majority_the_error_tells_of_each_master) {
    master(0).unplug();
    master(2).unplug();
    const auto journal = std::make_shared<Journal>();
    ClientOptions with_observer = options();
    with_observer.observer = journal;
    Client client{with_observer};
    Lock<Simple> lock{client, key};

    const auto held = lock.acquire({.wait = 0s});
    ASSERT_EQ(code_of(held), Errc::no_quorum);
    const Error& error = held.error();
    EXPECT_EQ(error.key, key);
    EXPECT_TRUE(mentions(error, "2 of 3 masters gave no usable answer")) << error.describe();
    ASSERT_EQ(error.causes.size(), 2U) << error.describe();
    EXPECT_TRUE(mentions(error, master(0).proxy.uri().substr(7))) << error.describe();
    EXPECT_TRUE(mentions(error, master(2).proxy.uri().substr(7))) << error.describe();
}

TEST_F(QuorumTest, what_nobody_may_do_is_said_at_once) {
    for (Master& master : masters_) master.raw.command({"LPUSH", key, "somebody's data"});
    Client client{options()};
    Lock<Simple> lock{client, key};
    EXPECT_EQ(code_of(lock.acquire()), Errc::wrong_type);
}

TEST_F(QuorumTest, a_request_that_arrives_late_is_undone) {
    Client client{options(2s)};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(had_everywhere(lock));

    master(2).proxy.hold_requests();
    ASSERT_TRUE(foreign_set(master(0).raw, key));
    EXPECT_EQ(code_of(lock.acquire({.wait = 0s, .lease = 60s})), Errc::timed_out);

    master(2).proxy.pass();
    EXPECT_TRUE(eventually([&] { return !master(2).raw.exists(key); }));
    EXPECT_TRUE(eventually([&] { return !master(1).raw.exists(key); }));
}

TEST_F(QuorumTest, an_answer_that_is_late_leaves_nothing_after_the_release) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(had_everywhere(lock));

    master(2).proxy.hold_requests();
    auto held = lock.acquire({.wait = 0s, .lease = 60s});
    ASSERT_TRUE(accepted(held)) << "by the other two";
    EXPECT_EQ(held->release().value(), Release::released);
    const long long before = master(2).raw.command_calls("set");
    master(2).proxy.pass();
    EXPECT_TRUE(eventually([&] { return master(2).raw.command_calls("set") > before; }))
        << "what was held back arrives";
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, a_release_that_overtakes_the_acquisition_is_repeated) {
    Client client{options(3s)};
    Lock<Simple> lock{client, key, {.lease = 1h}};
    lock.lock();
    lock.unlock();
    Lock<Simple> another{client, key + ":2"};
    Outcome<Held> linked;
    another.async_acquire({}, {}, linked.callback());
    ASSERT_TRUE(accepted(linked.get()));
    master(2).proxy.delay_requests(150ms);
    auto held = lock.acquire({.wait = 0s});
    ASSERT_TRUE(accepted(held)) << "two masters are enough";
    master(2).proxy.delay_requests(0ms);
    for (const std::size_t i : {0U, 1U}) master(i).proxy.delay_replies(400ms);
    Outcome<Release>
        released;  // over the link, and when the late answer to the acquisition has come too
    held->async_release(released.callback());
    EXPECT_EQ(released.get().value(), Release::released);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, votes_are_returned_behind_the_try_that_asked_for_them) {
    Client client{options(60s)};  // what is released once more is so after that
    for (Master& each : masters_) each.proxy.delay_replies(50ms);
    std::vector<std::future<bool>> several;  // connections to each
    for (int i = 0; i < 3; ++i) {
        several.push_back(in_background([&client, i] {
            return Lock<Simple>{client, key + std::to_string(i)}.try_lock();
        }));
    }
    for (auto& one : several) EXPECT_TRUE(one.get());
    for (Master& each : masters_) each.proxy.pass();

    const auto asked = [&] {
        RawRedis& raw = master(0).raw;
        return raw.command_calls("set") + raw.command_calls("eval") + raw.command_calls("evalsha");
    };
    const auto taken_at_third = [&] { return master(2).raw.command_calls("set"); };
    const auto leaves_nothing = [&](const std::string& name) {
        for (const std::size_t i : {0U, 1U}) EXPECT_TRUE(foreign_set(master(i).raw, name));
        const long long before = asked();
        const long long before_at_third = taken_at_third();
        for (const std::size_t i : {0U, 1U}) master(i).proxy.hold_replies();
        master(2).proxy.delay_requests(300ms);
        Lock<Simple> lock{client, name, {.lease = 1h}};
        auto taken = in_background([&lock] { return lock.try_lock(); });
        EXPECT_TRUE(eventually([&] { return asked() > before; }));
        master(2).proxy.delay_requests(0ms);
        for (const std::size_t i : {0U, 1U}) master(i).proxy.pass();
        EXPECT_FALSE(taken.get());
        EXPECT_TRUE(eventually([&] { return taken_at_third() > before_at_third; }));
        return eventually([&] { return !master(2).raw.exists(name); });
    };
    // Where a busy machine returns them 20 ms late, somebody else already waits for that answer, and they are
    // returned once more after `command_timeout`.
    EXPECT_TRUE(leaves_nothing("job 1") || leaves_nothing("job 2") || leaves_nothing("job 3"));
}

/// The third answers after the other two have decided.
class LateThird : public QuorumTest {
protected:
    LateThird() {
        // Once each of them is waited for.
        for (Master& each : masters_) each.proxy.delay_replies(10ms);
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(takes_part());
        for (const std::size_t i : {0U, 1U}) master(i).proxy.pass();
        for (int i = 0; i < 5; ++i) EXPECT_TRUE(takes_part());
    }

    bool takes_part(std::chrono::milliseconds limit = generous_limit) {
        lock_.lock();
        const bool taken = eventually([&] { return master(2).raw.exists(key); }, limit);
        lock_.unlock();
        return eventually([&] { return !master(2).raw.exists(key); }) && taken;
    }

    Client client_{options(3s)};  // a release that it did not know is repeated after that
    Lock<Reentrant> lock_{client_, key};
};

TEST_F(LateThird, gets_scripts_again_that_it_has_forgotten) {
    master(2).raw.script_flush();
    EXPECT_TRUE(eventually([&] { return takes_part(200ms); }));
}

TEST_F(LateThird, is_sent_each_script_once) {
    const auto sent = [&](std::size_t i) { return master(i).proxy.counts().request_bytes; };
    const std::size_t before = sent(0);
    const std::size_t before_at_third = sent(2);
    for (int i = 0; i < 50; ++i) EXPECT_TRUE(takes_part());
    // Three times, as one more connection may have come.
    EXPECT_LT(sent(2) - before_at_third, 3 * (sent(0) - before));
}

TEST_F(QuorumTest, one_that_was_out_of_reach_at_the_release_hears_of_it_later) {
    Client client{options(3s)};
    Lock<Watchdog<Simple>> lock{client, key, {.lease = 60s}};
    Lock<Simple> another{client, key + ":2", {.lease = 60s}};
    auto held = lock.acquire();
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));

    master(2).unplug();
    ASSERT_TRUE(another.try_lock());  // now it is known to be out of reach
    another.unlock();
    EXPECT_EQ(held->release().value(), Release::released);
    ASSERT_TRUE(master(2).raw.exists(key));
    master(2).proxy.pass();
    EXPECT_TRUE(eventually([&] { return all_free(); })) << "long before the end of its lease";
}

TEST_F(QuorumTest, what_is_lost_is_not_left_to_a_minority) {
    Client client{options(3s)};
    Lock<Simple> lock{client, key, {.lease = 60s}};
    auto held = lock.acquire();
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));
    master(0).raw.flushall();
    master(1).raw.flushall();
    EXPECT_EQ(code_of(held->extend(60s)), Errc::lost);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, what_is_kept_for_a_lock_delay_is_left_to_the_holder_that_has_lost_it) {
    Client client{options()};
    Lock<Simple> lock{client, key, {.lease = 300ms, .lock_delay = 60s}};
    Held held = lock.acquire().value();
    const std::string token = held.token();
    ASSERT_TRUE(eventually([&] { return all_have(token); }));
    ASSERT_TRUE(fires(held.lost()));
    EXPECT_TRUE(stays([&] { return all_have(token); }, 300ms));
    EXPECT_EQ(held.release().value(), Release::expired);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, a_server_that_says_it_is_busy_has_no_vote) {
    for (const std::size_t i : {0U, 1U}) {
        master(i).raw.command({"CONFIG", "SET", "maxmemory", "1"});
    }
    Client client{options(3s)};
    Lock<Simple> lock{client, key};
    const auto held = lock.acquire({.wait = 0s});
    ASSERT_EQ(code_of(held), Errc::no_quorum);
    EXPECT_TRUE(mentions(held.error(), "OOM")) << held.error().describe();
    EXPECT_TRUE(eventually([&] { return all_free(); }));
    master(0).raw.command({"CONFIG", "SET", "maxmemory", "0"});
    EXPECT_TRUE(accepted(lock.acquire({.wait = generous_limit})));
}

TEST_F(QuorumTest, one_that_does_nothing_but_a_script_has_no_vote) {
    master(0).raw.command({"CONFIG", "SET", "lua-time-limit", "20"});
    auto endless = in_background([&] {
        return RawRedis{master(0).server}.command({"EVAL", "while true do end", "0"});
    });
    ASSERT_TRUE(eventually([&] { return master(0).raw.command({"PING"}).is_error(); })) << "BUSY";

    Client client{options()};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire({.wait = generous_limit});
    ASSERT_TRUE(accepted(held));
    EXPECT_EQ(held->release().value(), Release::released);
    master(1).unplug();
    const auto refused = lock.acquire({.wait = 0s});
    ASSERT_EQ(code_of(refused), Errc::no_quorum);
    EXPECT_TRUE(mentions(refused.error(), "BUSY")) << refused.error().describe();

    EXPECT_FALSE(master(0).raw.command({"SCRIPT", "KILL"}).is_error());
    ASSERT_TRUE(finishes(endless));
    EXPECT_TRUE(accepted(lock.acquire({.wait = generous_limit})));
    EXPECT_TRUE(eventually([&] { return !master(0).raw.exists(key); }));
}

TEST_F(QuorumTest, one_connection_to_each_is_enough_for_many_threads) {
    ClientOptions narrow = options();
    narrow.max_connections = 1;
    Client client{narrow};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            Lock<Simple> lock{client, key + std::to_string(i)};
            for (int n = 0; n < 25; ++n) {
                lock.lock();
                EXPECT_TRUE(lock.held());
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(eventually([&] {
        return std::all_of(masters_.begin(), masters_.end(),
                           [](Master& master) { return master.raw.keys().empty(); });
    }));
}

TEST_F(QuorumTest, a_short_silence_leaves_room_for_new_connections) {
    ClientOptions narrow = options();
    narrow.max_connections = 1;
    narrow.node_timeout = 100ms;
    Client client{narrow};
    Lock<Simple> lock{client, key};
    // A busy machine may have one of them miss so short a time, but not always.
    ASSERT_TRUE(eventually([&] {
        const auto held = lock.acquire({.wait = 1s});
        return held && eventually([&] { return all_have(held->token()); }, 500ms);
    }));
    ASSERT_TRUE(eventually([&] { return all_free(); }));
    for (Master& master : masters_) master.server.freeze();
    EXPECT_EQ(code_of(lock.acquire({.wait = 0ms})), Errc::no_quorum);
    for (Master& master : masters_) master.server.thaw();
    EXPECT_TRUE(eventually([&] { return lock.acquire({.wait = 1s}).has_value(); }));
}

TEST_F(QuorumTest, connections_that_died_unnoticed_are_replaced_without_a_word) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(had_everywhere(lock));

    for (Master& master : masters_) master.proxy.cut();
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();
    for (Master& master : masters_) master.raw.script_flush();
    for (Master& master : masters_) master.proxy.cut();
    EXPECT_TRUE(accepted(lock.acquire({.wait = 0s})));
}

TEST_F(QuorumTest, a_script_that_was_forgotten_is_sent_whole) {
    Client client{options()};
    Lock<Reentrant> lock{client, key};
    ASSERT_TRUE(lock.try_lock());
    for (Master& master : masters_) master.raw.script_flush();
    EXPECT_TRUE(lock.try_lock());
    for (Master& master : masters_) master.raw.script_flush();
    lock.unlock();
    for (Master& master : masters_) master.raw.script_flush();
    EXPECT_EQ(lock.release().value(), Release::released);
    EXPECT_TRUE(eventually([&] {
        return std::none_of(masters_.begin(), masters_.end(),
                            [](Master& master) { return master.raw.exists(key); });
    }));
}

TEST_F(QuorumTest, is_extended_by_a_majority) {
    Client client{options(3s)};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire({.lease = 40s});
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));

    master(0).unplug();
    EXPECT_TRUE(accepted(held->extend(60s)));
    EXPECT_GT(held->remaining(), 45s);

    master(1).raw.del(key);
    EXPECT_EQ(code_of(held->extend(70s)), Errc::no_quorum) << "one has it, one has not";
    EXPECT_TRUE(held->held()) << "an extension without an outcome takes nothing away";

    master(0).proxy.pass();
    EXPECT_TRUE(eventually([&] { return accepted(held->extend(80s)); }));
}

TEST_F(QuorumTest, is_lost_where_a_majority_has_lost_it) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire({.lease = 60s});
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));
    const std::stop_token lost = held->lost();
    master(0).raw.flushall();
    master(2).raw.flushall();

    EXPECT_EQ(code_of(held->extend(60s)), Errc::lost);
    EXPECT_TRUE(fires(lost));
    EXPECT_FALSE(held->held());
}

TEST_F(QuorumTest, release_of_what_a_majority_has_lost_says_so) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire({.lease = 60s});
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));
    master(0).raw.flushall();
    master(1).raw.flushall();
    EXPECT_EQ(held->release().value(), Release::expired);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(QuorumTest, a_watchdog_renews_at_a_majority) {
    const auto journal = std::make_shared<Journal>();
    ClientOptions with_observer = options(1s);
    with_observer.observer = journal;
    Client client{with_observer};
    Lock<Watchdog<Simple>> lock{client, key, {.lease = 6s}};
    auto held = lock.acquire();
    ASSERT_TRUE(accepted(held));
    const std::stop_token lost = held->lost();

    master(0).server.freeze();
    master(1).raw.script_flush();
    const int before = journal->renewals();
    EXPECT_TRUE(eventually([&] { return journal->renewals() >= before + 4; }))
        << "more than a lease";
    EXPECT_FALSE(lost.stop_requested());
    EXPECT_TRUE(held->held());
    master(0).server.thaw();

    master(1).raw.flushall();
    master(2).raw.flushall();
    EXPECT_TRUE(fires(lost));
}

TEST_F(QuorumTest, nests) {
    Client client{options()};
    Client other{options()};
    Lock<Reentrant> lock{client, key};
    ASSERT_TRUE(lock.try_lock());
    ASSERT_TRUE(lock.try_lock());
    master(1).unplug();
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();
    lock.unlock();
    EXPECT_TRUE(lock.held());
    Lock<Reentrant> others{other, key};
    EXPECT_FALSE(others.try_lock());
    lock.unlock();
    EXPECT_TRUE(others.try_lock_for(generous_limit));
}

// Three clients that each have one vote would wait for each other for ever.
TEST_F(QuorumTest, split_votes_resolve) {
    RedisServer other_server;
    constexpr int clients = 4;
    constexpr int sections = 25;
    std::vector<std::thread> threads;
    for (int i = 0; i < clients; ++i) {
        threads.emplace_back([&] {
            OverlapDetector detector{other_server.uri(), key};
            Client client{options()};
            Lock<Simple> lock{client, key};
            for (int n = 0; n < sections; ++n) {
                lock.lock(10s);
                { const OverlapDetector::Section section{detector}; }
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    OverlapDetector detector{other_server.uri(), key};
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.sections(), clients * sections);
    EXPECT_EQ(detector.counter(), clients * sections);
}

// One says yes, then one says no, and one is not there: our vote must not be in the way of the next try.
TEST_F(QuorumTest, a_try_that_failed_has_given_its_votes_back_when_it_returns) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(had_everywhere(lock));
    master(0).unplug();
    ASSERT_TRUE(foreign_set(master(1).raw, key));
    master(1).proxy.delay(20ms, 0ms, Way::replies);
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(lock.try_lock());
        EXPECT_FALSE(master(2).raw.exists(key));
    }
}

TEST_F(QuorumTest, threads_of_one_client_take_turns) {
    RedisServer other_server;
    constexpr int crowd = 6;
    constexpr int sections = 20;
    Client client{options()};
    std::vector<std::thread> threads;
    for (int i = 0; i < crowd; ++i) {
        threads.emplace_back([&] {
            OverlapDetector detector{other_server.uri(), key};
            Lock<> lock{client, key};
            for (int n = 0; n < sections; ++n) {
                lock.lock();
                { const OverlapDetector::Section section{detector}; }
                lock.unlock();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    OverlapDetector detector{other_server.uri(), key};
    EXPECT_EQ(detector.overlaps(), 0);
    EXPECT_EQ(detector.counter(), crowd * sections);
}

TEST_F(QuorumTest, a_wait_can_be_cancelled_though_nobody_answers) {
    Client client{options(generous_limit)};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();
    master(0).server.freeze();
    master(1).server.freeze();
    std::stop_source stop;
    std::jthread canceller{[&] {
        std::this_thread::sleep_for(100ms);
        stop.request_stop();
    }};
    const Stopwatch stopwatch;
    EXPECT_EQ(code_of(lock.acquire({.stop = stop.get_token()})), Errc::cancelled);
    EXPECT_LT(stopwatch.elapsed(), generous_limit / 2);
    master(0).server.thaw();
    master(1).server.thaw();
}

TEST_F(QuorumTest, a_client_closes_in_time_though_nobody_answers) {
    std::optional<Client> client{std::in_place, options(2s)};
    Lock<> lock{*client, key};
    lock.lock();
    const std::stop_token lost = lock.lost();
    for (Master& master : masters_) master.server.freeze();
    const Stopwatch stopwatch;
    client.reset();
    EXPECT_LT(stopwatch.elapsed(), 4 * 2s + slack) << "not three timeouts for each of them";
    EXPECT_TRUE(lost.stop_requested());
    for (Master& master : masters_) master.server.thaw();
}

TEST_F(QuorumTest, tells_what_a_majority_knows) {
    Client client{options()};
    Lock<Simple> lock{client, key};
    EXPECT_FALSE(lock.inspect().value().locked);
    auto held = lock.acquire();
    ASSERT_TRUE(accepted(held));
    ASSERT_TRUE(eventually([&] { return all_have(held->token()); }));
    master(0).raw.set(key, "foreign");
    const auto info = lock.inspect();
    ASSERT_TRUE(accepted(info));
    EXPECT_EQ(info->owner, held->token());

    EXPECT_EQ(lock.force_unlock().value(), Forced::removed);
    EXPECT_TRUE(
        eventually([&] { return !master(1).raw.exists(key) && !master(2).raw.exists(key); }));
    EXPECT_TRUE(accepted(client.ping()));
    master(1).unplug();
    EXPECT_TRUE(accepted(client.ping()));
    master(2).unplug();
    EXPECT_EQ(code_of(client.ping()), Errc::no_quorum);
}

// The numbers that two majorities give may stand on masters that only one of them has.
TEST_F(QuorumTest, fencing_tokens_rise_from_one_majority_to_the_next) {
    Client client{options()};
    Lock<Fenced<Simple>> lock{client, key};
    const auto fence_without = [&](std::size_t absent) {
        master(absent).unplug();
        std::uint64_t fence = 0;
        EXPECT_TRUE(eventually([&] {
            auto held = lock.acquire({.wait = 0s});
            if (held) fence = held->fence();
            return held.has_value();
        }));
        master(absent).proxy.pass();
        return fence;
    };
    // The first master has given a number that the clocks will not reach in a century.
    constexpr std::uint64_t ahead = 4'500'000'000'000'000;
    master(0).raw.set("redlatch:fence:{" + key + "}", std::to_string(ahead));

    const std::uint64_t first = fence_without(2);
    EXPECT_GT(first, ahead);
    const std::uint64_t second = fence_without(0);
    EXPECT_GT(second, first) << "the first master's number was stored at the second";
    const std::uint64_t third = fence_without(1);
    EXPECT_GT(third, second);
}

// The answers to the first round arrive, and none to the second one.
TEST_F(QuorumTest, a_fencing_token_that_no_majority_has_stored_is_none) {
    Client client{options(500ms)};
    Lock<Fenced<Simple>> lock{client, key, {.lease = 60s}};
    {
        auto held = lock.acquire();
        ASSERT_TRUE(accepted(held));
    }
    ASSERT_TRUE(eventually([&] { return all_free(); }));
    const std::string second_round = "\r\n$1\r\n2\r\n$10\r\n" + key;  // with two keys, not four
    for (Master& master : masters_) master.proxy.drop_replies_once(1000, second_round);
    EXPECT_EQ(code_of(lock.acquire({.wait = 0s})), Errc::no_quorum);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
    const Stopwatch stopwatch;
    EXPECT_FALSE(lock.acquire({.wait = 100ms}).has_value());
    EXPECT_LT(stopwatch.elapsed(), 100ms + 2 * slack);
    for (Master& master : masters_) master.proxy.pass();
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

class TwoMasters : public QuorumTest {
protected:
    TwoMasters() : QuorumTest(2) {}
};

TEST_F(TwoMasters, both_have_to_agree) {
    Client client{options(3s)};
    Lock<> lock{client, key};
    ASSERT_TRUE(lock.try_lock());
    lock.unlock();
    master(0).unplug();
    EXPECT_EQ(code_of(lock.acquire({.wait = 0s})), Errc::no_quorum);
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

class ForgetfulMasters : public QuorumTest {
protected:
    static constexpr auto longest = 4s;

    ClientOptions options() const {
        ClientOptions options = QuorumTest::options();
        options.longest_lease = longest;
        return options;
    }
};

TEST_F(ForgetfulMasters, that_have_just_started_have_no_vote) {
    ClientOptions patient = options();
    patient.longest_lease = 1h;
    Client client{patient};
    Lock<Simple> lock{client, key};
    const auto held = lock.acquire({.wait = 0s});
    ASSERT_EQ(code_of(held), Errc::no_quorum);
    EXPECT_TRUE(mentions(held.error(), "restarted a moment ago")) << held.error().describe();
    EXPECT_TRUE(eventually([&] { return all_free(); }));
}

TEST_F(ForgetfulMasters, let_nobody_in_beside_a_holder_they_have_forgotten) {
    Client client{options()};
    Client other{options()};
    Lock<Simple> lock{client, key, {.lease = longest}};
    Lock<Simple> others{other, key, {.lease = longest}};
    auto held = lock.acquire({.wait = generous_limit});
    ASSERT_TRUE(accepted(held)) << "when they are old enough";
    ASSERT_TRUE(accepted(held->extend(longest)));

    master(0).server.restart();
    master(1).server.restart();
    ASSERT_FALSE(RawRedis{master(0).server}.exists(key));
    bool overlap = false;
    EXPECT_TRUE(eventually([&] {
        auto theirs = others.acquire({.wait = 0s});
        overlap = overlap || (theirs && held->held());
        return theirs.has_value();
    }));
    EXPECT_FALSE(overlap);
}

// Its lock lies at a bare majority. The renewal finds out that one of those has forgotten it; it gives nothing back
// that somebody else could have a majority with, before the validity is over that the holder knows of.
TEST_F(ForgetfulMasters, let_nobody_in_before_the_validity_that_a_watched_holder_knew) {
    Client client{options()};
    Client other{options()};
    Lock<Watchdog<Simple>> lock{client, key, {.lease = longest}};
    Lock<Simple> others{other, key, {.lease = longest}};
    ASSERT_TRUE(accepted(others.acquire({.wait = generous_limit}))) << "when they are old enough";
    ASSERT_TRUE(eventually([&] { return all_free(); }));
    master(2).server.freeze();
    auto held = lock.acquire({.wait = generous_limit});
    ASSERT_TRUE(accepted(held));
    const Stopwatch watch;
    const auto known = held->remaining();
    master(2).server.thaw();

    master(0).server.restart();
    EXPECT_TRUE(eventually([&] { return held->state() != HoldState::held; }));
    EXPECT_TRUE(eventually([&] { return others.acquire({.wait = 0s}).has_value(); }));
    EXPECT_GE(watch.elapsed(), known);
    EXPECT_FALSE(held->held());
}

TEST_F(ForgetfulMasters, refuse_a_lease_that_they_would_not_stay_away_for) {
    Client client{options()};
    EXPECT_THROW((Lock<Simple>{client, key, {.lease = longest + 1ms}}), LockError);
    EXPECT_THROW((Lock<Simple>{client, key, {.lease = longest, .lock_delay = 1ms}}), LockError);
    Lock<Simple> lock{client, key, {.lease = longest}};
    EXPECT_EQ(code_of(lock.acquire({.lease = longest + 1s})), Errc::invalid_argument);
    auto held = lock.acquire({.wait = generous_limit});
    ASSERT_TRUE(accepted(held));
    EXPECT_EQ(code_of(held->extend(longest + 1s)), Errc::invalid_argument);
    EXPECT_TRUE(held->held());
}

TEST_F(ForgetfulMasters, need_info_to_be_told_from_others) {
    for (Master& master : masters_) {
        master.raw.command({"ACL", "SETUSER", "default", "-info"});
    }
    Client client{options()};
    Lock<Simple> lock{client, key, {.lease = 1s}};
    const auto held = lock.acquire({.wait = 0s});
    EXPECT_EQ(code_of(held), Errc::denied);
    EXPECT_TRUE(mentions(held.error(), "longest_lease")) << held.error().describe();
}

class SameServerTwice : public ::testing::Test {
protected:
    RedisServer first_{RedisServerOptions{.tcp = true}};
    RedisServer second_;
    Proxy second_proxy_{second_.uri()};
};

TEST_F(SameServerTwice, has_one_vote) {
    ClientOptions options;
    options.uris = {first_.uri(), first_.tcp_uri(), second_proxy_.uri()};
    options.connect_timeout = 5s;
    options.command_timeout = 5s;
    options.node_timeout = 5s;
    options.longest_lease = 0ms;
    Client client{options};
    Lock<Simple> lock{client, key};
    ASSERT_TRUE(lock.try_lock()) << "two servers are a majority of three places";
    lock.unlock();

    second_proxy_.refuse();
    second_proxy_.cut();
    const auto held = lock.acquire({.wait = 0s});
    ASSERT_EQ(code_of(held), Errc::no_quorum);
    EXPECT_TRUE(mentions(held.error(), "the same server")) << held.error().describe();
}

TEST(SeveralMasters, can_be_factories_too) {
    RedisServer first;
    RedisServer second;
    ClientOptions options;
    options.uris = {first.uri()};
    options.factories = {{.connect = [&](std::chrono::milliseconds) {
        return redisConnectUnix(second.socket_path().c_str());
    }}};
    options.command_timeout = 5s;
    options.node_timeout = 5s;
    options.longest_lease = 0ms;
    Client client{options};
    Lock<Simple> lock{client, key};
    auto held = lock.acquire({.wait = 0s});
    ASSERT_TRUE(accepted(held));
    EXPECT_EQ(RawRedis{first}.get(key), held->token());
    EXPECT_EQ(RawRedis{second}.get(key), held->token());
}

TEST(SeveralMasters, know_no_replicas) {
    Client client{"redis://a", "redis://b", "redis://c"};
    EXPECT_THROW((Lock<Simple>{client, key, {.replicas = 1}}), LockError);
}

}  // namespace
