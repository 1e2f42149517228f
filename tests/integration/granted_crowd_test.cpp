// Many who wait at once: nobody is forgotten, nobody gets the lock twice, and they cost the server
// no connections.

#include "granted_tools.hpp"
#include "support/overlap_detector.hpp"
#include "support/sanitizers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
constexpr int crowd = 250;  // each thread costs a sanitizer several times as much
#else
constexpr int crowd = 1000;
#endif

ClientOptions crowd_options(const RedisServer& server, std::size_t max_connections = 64) {
    ClientOptions options = options_for(server.uri(), 10s);
    options.client_name = "crowd";
    options.max_connections = max_connections;
    return options;
}

long long connections_of_crowd(RawRedis& redis) {
    const auto all = redis.client_list();
    return std::count_if(all.begin(), all.end(),
                         [](const auto& connection) { return connection.at("name") == "crowd"; });
}

/// What the crowd's connections are for.
std::string crowd_list(RawRedis& redis) {
    std::string list;
    for (const auto& connection : redis.client_list()) {
        if (connection.at("name") != "crowd") continue;
        for (const char* field : {"age", "idle", "sub", "cmd"}) {
            list += std::string{field} + '=' + connection.at(field) + ' ';
        }
        list += '\n';
    }
    return list;
}

/// Whether the crowd has no more connections than `most`. One that was given up, as its answer came too late on a busy
/// machine, is there until the server has noticed.
testing::AssertionResult has_at_most(RawRedis& redis, std::size_t most) {
    const auto wanted = static_cast<long long>(most);
    if (eventually([&] { return connections_of_crowd(redis) <= wanted; })) {
        return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << crowd_list(redis);
}

/// Threads, as many as the machine grants of those that are wanted.
template <class Body>
std::vector<std::jthread> start_crowd(Body body) {
    std::vector<std::jthread> threads;
    try {
        for (int i = 0; i < crowd; ++i) threads.emplace_back(body, i);
    } catch (const std::system_error& error) {
        std::cerr << "only " << threads.size() << " threads: " << error.what() << '\n';
    }
    return threads;
}

template <class Policy>
class Crowd : public ::testing::Test {
protected:
    RedisServer server_;
    RawRedis redis_{server_};
    Client holding_{options_for(server_.uri(), 10s)};
};
using Shapes = ::testing::Types<Simple, Reentrant>;
TYPED_TEST_SUITE(Crowd, Shapes);

TYPED_TEST(Crowd, on_one_name_needs_few_connections_and_one_place) {
    Client client{crowd_options(this->server_)};
    Held held = take<TypeParam>(this->holding_, {.lease = 10min});
    std::atomic<int> asking{0};
    std::atomic<int> had{0};
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    auto threads = start_crowd([&](int) {
        Lock<TypeParam> lock{client, "job"};
        ++asking;
        auto own = lock.acquire({.wait = patience});
        if (!own) return;
        if (++inside > 1) ++overlaps;
        ++had;
        --inside;
        static_cast<void>(own->release());
    });
    const auto count = static_cast<int>(threads.size());
    EXPECT_TRUE(eventually([&] { return asking == count; }));
    EXPECT_TRUE(settles(this->redis_));
    EXPECT_EQ(waiters(this->redis_), 1);
    // One for messages, one for the waiters' commands, and one more where the first of them asked while
    // a message was sent to see whether it arrives.
    EXPECT_TRUE(has_at_most(this->redis_, 3));
    EXPECT_EQ(had, 0);
    let_go(held);
    threads.clear();
    EXPECT_EQ(had, count);
    EXPECT_EQ(overlaps, 0);
    // While one is being served, the next one may be asking.
    EXPECT_TRUE(has_at_most(this->redis_, 4));
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

TYPED_TEST(Crowd, on_as_many_names_needs_no_more_connections_than_a_few) {
    constexpr std::size_t at_most = 4;
    Client client{crowd_options(this->server_, at_most)};
    const auto name = [](int i) { return "job " + std::to_string(i); };
    std::vector<Held> holds;
    for (int i = 0; i < crowd; ++i) {
        Lock<TypeParam> lock{this->holding_, name(i), {.lease = 10min}};
        holds.push_back(lock.acquire().value());
    }
    std::atomic<int> had{0};
    auto threads = start_crowd([&](int i) {
        auto own = Lock<TypeParam>{client, name(i)}.acquire({.wait = patience});
        if (own && own->held()) ++had;
    });
    const auto count = static_cast<int>(threads.size());
    const auto keys = [this] { return this->redis_.command({"DBSIZE"}).integer; };
    EXPECT_TRUE(eventually([&] { return keys() == crowd + 2 * count; }, patience));
    EXPECT_TRUE(has_at_most(this->redis_, at_most + 1));
    EXPECT_EQ(this->redis_.command({"PUBSUB", "CHANNELS"}).elements.size(), 1U);
    EXPECT_EQ(had, 0);
    for (Held& held : holds) let_go(held);
    threads.clear();
    EXPECT_EQ(had, count);
    EXPECT_TRUE(eventually([&] { return keys() == 0; }));
    // Renewal has one of its own, to end what was unclear.
    EXPECT_TRUE(has_at_most(this->redis_, at_most + 2));
}

// ------------------------------------------------------------------------- no lost wake-up

/// Ends waits in the middle: each thread lays its stop source into a place of its own.
class Canceller {
public:
    static constexpr std::size_t places = 16;

    explicit Canceller(unsigned seed) : random_{seed} {}

    std::stop_token offer(std::size_t place) {
        const std::lock_guard lock{mutex_};
        return sources_.at(place).emplace().get_token();
    }
    void withdraw(std::size_t place) {
        const std::lock_guard lock{mutex_};
        sources_.at(place).reset();
    }
    void stop_somebody() {
        const std::lock_guard lock{mutex_};
        auto& source = sources_.at(random_() % places);
        if (source) source->request_stop();
    }

private:
    std::mutex mutex_;
    std::minstd_rand random_;
    std::array<std::optional<std::stop_source>, places> sources_;
};

/// Counts how often the machine, or the server, did not go on for a while.
class Standstills {
public:
    /// To be called often.
    void look(RawRedis& redis) {
        redis.ping();
        if (since_last_.elapsed() > 100ms) ++number_;
        since_last_.restart();
    }
    int number() const { return number_; }

private:
    Stopwatch since_last_;
    int number_ = 0;
};

/// What the threads of one run saw; the holder of the lock tells.
class Log {
public:
    void section_begins() {
        const std::lock_guard lock{mutex_};
        const auto pause = std::chrono::steady_clock::now() - last_end_;
        if (last_end_ != std::chrono::steady_clock::time_point{}) {
            longest_pause_ = std::max(longest_pause_, pause);
            if (pause > 500ms) ++long_pauses_;
        }
    }
    void section_ends() {
        const std::lock_guard lock{mutex_};
        last_end_ = std::chrono::steady_clock::now();
    }
    void late_by(std::chrono::nanoseconds time) {
        const std::lock_guard lock{mutex_};
        latest_ = std::max(latest_, time);
    }
    void wrong(const std::string& what) {
        const std::lock_guard lock{mutex_};
        if (wrong_.size() < 10) wrong_.push_back(what);
    }

    std::chrono::nanoseconds longest_pause() const { return longest_pause_; }
    int long_pauses() const { return long_pauses_; }
    std::chrono::nanoseconds latest() const { return latest_; }
    const std::vector<std::string>& wrong() const { return wrong_; }

private:
    std::mutex mutex_;
    std::chrono::steady_clock::time_point last_end_{};
    std::chrono::nanoseconds longest_pause_{0};
    int long_pauses_ = 0;
    std::chrono::nanoseconds latest_{0};
    std::vector<std::string> wrong_;
};

TYPED_TEST(Crowd, of_two_misses_no_lock_that_comes_right_behind_the_question) {
    constexpr int rounds = 2000;
    Log log;
    std::atomic<int> running{2};
    const auto contend = [&](unsigned seed) {
        Client client{options_for(this->server_.uri(), 10s)};
        Lock<TypeParam> lock{client, "job"};
        std::minstd_rand random{seed};
        for (int i = 0; i < rounds; ++i) {
            auto held = lock.acquire({.wait = patience});
            if (!held) return log.wrong(held.error().describe());
            log.section_begins();
            const auto stay = std::chrono::microseconds{random() % 150};
            for (const Stopwatch watch; watch.elapsed() < stay;) std::this_thread::yield();
            log.section_ends();
            if (!held->release()) log.wrong("not released");
        }
    };
    const auto run = [&](unsigned seed) {
        contend(seed);
        --running;
    };
    Standstills standstills;
    {
        const std::jthread one{run, 1U};
        const std::jthread two{run, 2U};
        while (running > 0) {
            std::this_thread::sleep_for(5ms);
            standstills.look(this->redis_);
        }
    }
    EXPECT_EQ(log.wrong(), std::vector<std::string>{});
    // Who was not told finds out by himself a second or so later.
    EXPECT_LE(log.long_pauses(), 3 + standstills.number());
    EXPECT_TRUE(eventually([&] { return this->redis_.keys().empty(); }));
}

/// How often the lock is taken in all, over both runs: the environment's REDLATCH_STRESS, or so many
/// that the tests stay short.
long long acquisitions() {
    const char* wanted = std::getenv("REDLATCH_STRESS");
    if (wanted != nullptr) return std::max(2LL, std::atoll(wanted));
#if defined(REDLATCH_TEST_ASAN) || defined(REDLATCH_TEST_TSAN)
    return 4'000;
#else
    return 20'000;
#endif
}

template <class Policy>
class Contended : public ::testing::Test {
protected:
    static constexpr unsigned seed = 20'260;
    static constexpr std::size_t clients = 4;
    static constexpr std::size_t threads_per_client = 4;
    static_assert(clients * threads_per_client == Canceller::places);

    /// Takes the lock `total` times, by sixteen threads of four clients.
    void run(long long total) {
        std::deque<Client> all;
        for (std::size_t i = 0; i < clients; ++i) all.emplace_back(options_for(server_.uri(), 10s));
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < Canceller::places; ++i) {
            threads.emplace_back(
                [this, &client = all[i % clients], i, total] { contend(client, i, total); });
        }
        std::minstd_rand random{seed};
        while (taken_ < total) {
            canceller_.stop_somebody();
            disturb(random());
            standstills_.look(redis_);
            std::this_thread::sleep_for(std::chrono::microseconds{random() % 2000});
        }
    }

    virtual void disturb(unsigned long) {}

    void expect_fine(long long total) {
        OverlapDetector detector{server_.socket_path(), "sections"};
        EXPECT_EQ(detector.overlaps(), 0);
        EXPECT_EQ(detector.counter(), detector.sections());
        EXPECT_EQ(detector.sections(), taken_);
        EXPECT_GE(taken_, total);
        EXPECT_EQ(log_.wrong(), std::vector<std::string>{});
        EXPECT_LT(log_.latest(), 10s);  // and not until they have waited long enough
        EXPECT_GT(timed_out_, 0);
        EXPECT_GT(cancelled_, 0);
        // Once for each thread, the machine may stand still.
        EXPECT_LE(unanswered_, timed_out_ / 20 + static_cast<int>(Canceller::places));
        // The place of somebody who was killed or cut off in the middle ends by itself.
        EXPECT_TRUE(eventually([&] { return keys_left() == 0; }))
            << testing::PrintToString(redis_.keys());
        EXPECT_TRUE(eventually([&] {
            return redis_.command({"PUBSUB", "CHANNELS"}).elements.empty();
        }));
        RecordProperty("longest_pause_us", static_cast<int>(log_.longest_pause() / 1us));
        std::cerr << "taken " << taken_ << ", timed out " << timed_out_ << ", cancelled "
                  << cancelled_ << ", longest pause " << log_.longest_pause() / 1us
                  << " us, long pauses " << log_.long_pauses() << ", latest " << log_.latest() / 1us
                  << " us\n";
    }

    RedisServer server_;
    RawRedis redis_{server_};
    Canceller canceller_{seed};
    Log log_;
    Standstills standstills_;
    std::atomic<long long> taken_{0};
    std::atomic<int> timed_out_{0};
    std::atomic<int> cancelled_{0};
    std::atomic<int> unanswered_{0};

private:
    void contend(Client& client, std::size_t number, long long total) {
        OverlapDetector detector{server_.socket_path(), "sections", 20us};
        Lock<Policy> lock{client, "job"};
        std::minstd_rand random{seed + static_cast<unsigned>(number)};
        while (taken_ < total) {
            const auto dice = random() % 10;
            AcquireOptions options{.wait = patience};
            std::chrono::nanoseconds wait = patience;
            if (dice < 2) {
                wait = std::chrono::microseconds{random() % 15'000};
                options.wait = wait;
            } else if (dice < 4) {
                options.stop = canceller_.offer(number);
            }
            const Stopwatch watch;
            auto held = lock.acquire(options);
            log_.late_by(watch.elapsed() - wait);
            canceller_.withdraw(number);
            if (held) {
                use(lock, *held, detector, random() % 8 == 0);
            } else if (held.error().code == Errc::timed_out && dice < 2) {
                ++timed_out_;
            } else if (held.error().code == Errc::cancelled && dice >= 2 && dice < 4) {
                ++cancelled_;
            } else if (held.error().code == Errc::unavailable && watch.elapsed() >= wait + 50ms) {
                ++unanswered_;  // so long is waited for an answer, and the machine stood still
            } else {
                log_.wrong("acquire: " + held.error().describe());
            }
        }
    }

    void use(Lock<Policy>& lock, Held& held, OverlapDetector& detector, bool nested) {
        log_.section_begins();
        {
            const OverlapDetector::Section section{detector};
            if (is_hash<Policy> && nested && !lock.acquire()) log_.wrong("cannot nest");
            if (!held.held()) log_.wrong("not held");
        }
        ++taken_;
        log_.section_ends();
        const auto released = held.release();
        if (!released) log_.wrong("release: " + released.error().describe());
        if (released && *released != Release::released) log_.wrong("not released");
    }

    long long keys_left() {
        const auto keys = redis_.keys();
        return std::count_if(keys.begin(), keys.end(),
                             [](const auto& key) { return !key.starts_with("overlap:"); });
    }
};
using StressedPolicies = ::testing::Types<Simple, Watchdog<Reentrant>>;
TYPED_TEST_SUITE(Contended, StressedPolicies);

TYPED_TEST(Contended, lock_forgets_nobody) {
    const long long total = acquisitions() / 2;
    this->run(total);
    this->expect_fine(total);
    // A waiter who was not told finds out by himself a second or so later. A busy machine may stop
    // for as long, but not often where nothing is seen of it.
    EXPECT_LE(this->log_.long_pauses(), 3 + this->standstills_.number());
}

/// The same while the server drops what it can drop without harm.
template <class Policy>
class ContendedBadly : public Contended<Policy> {
protected:
    void disturb(unsigned long dice) override {
        if (dice % 40 == 0) this->redis_.command({"CLIENT", "KILL", "TYPE", "pubsub"});
        if (dice % 60 == 1) this->redis_.script_flush();
    }
};
TYPED_TEST_SUITE(ContendedBadly, StressedPolicies);

TYPED_TEST(ContendedBadly, lock_still_goes_to_one_at_a_time) {
    const long long total = acquisitions() / 8;
    this->run(total);
    this->expect_fine(total);
}

}  // namespace
}  // namespace redlatch::test
