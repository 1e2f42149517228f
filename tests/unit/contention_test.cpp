#include <redlatch/service/contention.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Contention;
using detail::TimePoint;

constexpr TimePoint now{1000s};

TEST(Contention, is_unknown_at_first) {
    const Contention contention;
    EXPECT_FALSE(contention.lately("key", now));
    EXPECT_FALSE(contention.lately("", now));
    EXPECT_FALSE(contention.lately("key", TimePoint{1s})) << "the machine has just been started";
    EXPECT_FALSE(contention.lately("key", TimePoint{1ns}));
}

TEST(Contention, is_remembered_for_ten_seconds) {
    Contention contention;
    contention.note("key", now);
    EXPECT_TRUE(contention.lately("key", now));
    EXPECT_TRUE(contention.lately("key", now + 10s - 1ns));
    EXPECT_FALSE(contention.lately("key", now + 10s));
    EXPECT_FALSE(contention.lately("key", now + 24h));
}

TEST(Contention, is_remembered_from_its_last_time_on) {
    Contention contention;
    contention.note("key", now);
    contention.note("key", now + 8s);
    EXPECT_TRUE(contention.lately("key", now + 17s));
    EXPECT_FALSE(contention.lately("key", now + 18s));
}

TEST(Contention, noted_by_another_thread_a_moment_ahead_counts) {
    Contention contention;
    contention.note("key", now + 1ms);
    EXPECT_TRUE(contention.lately("key", now));
}

TEST(Contention, of_one_name_is_hardly_ever_taken_for_anothers) {
    Contention contention;
    contention.note("key", now);
    int mistaken = 0;
    for (int i = 0; i < 1000; ++i) {
        if (contention.lately("other" + std::to_string(i), now)) ++mistaken;
    }
    EXPECT_LT(mistaken, 20) << "one in a thousand shares its place";
}

TEST(Contention, names_are_bytes) {
    Contention contention;
    const std::string with_nul{"a\0b", 3};
    contention.note(with_nul, now);
    EXPECT_TRUE(contention.lately(with_nul, now));
    EXPECT_TRUE(contention.lately(std::string{"a\0b", 3}, now)) << "wherever they are stored";
}

TEST(Contention, many_names_take_no_memory) {
    static_assert(sizeof(Contention) <= 16 * 1024);
    const auto contention = std::make_unique<Contention>();
    for (int i = 0; i < 100'000; ++i) contention->note(std::to_string(i), now);
    EXPECT_TRUE(contention->lately("1", now));
    EXPECT_FALSE(contention->lately("1", now + 10s));
}

TEST(Contention, may_be_noted_by_many_threads) {
    Contention contention;
    std::atomic<bool> go{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            while (!go) std::this_thread::yield();
            for (int i = 0; i < 10'000; ++i) {
                const std::string key = std::to_string(i % 10);
                contention.note(key, now);
                EXPECT_TRUE(contention.lately(key, now));
            }
        });
    }
    go = true;
    for (auto& thread : threads) thread.join();
}

}  // namespace
