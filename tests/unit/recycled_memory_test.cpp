// What one thread or another gives back is taken again, whatever its size.

#include <redlatch/recycled_memory.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using redlatch::detail::make_recycled;
using redlatch::detail::Recycled;
using redlatch::detail::RecycledMemory;

constexpr std::array<std::size_t, 9> sizes{1, 63, 64, 65, 128, 1535, 1536, 1537, 100'000};

/// That many blocks, each written to from end to end.
std::vector<void*> take(std::size_t count, std::size_t size) {
    std::vector<void*> blocks;
    for (std::size_t i = 0; i < count; ++i) {
        blocks.push_back(RecycledMemory::take(size));
        std::memset(blocks.back(), 0xa5, size);
    }
    return blocks;
}

void give_back(const std::vector<void*>& blocks, std::size_t size) {
    for (void* const block : blocks) RecycledMemory::give_back(block, size);
}

TEST(RecycledMemory, nobody_else_has_what_was_taken) {
    for (const std::size_t size : sizes) {
        for (int round = 0; round < 3; ++round) {
            const auto blocks = take(500, size);
            EXPECT_EQ(std::set<void*>(blocks.begin(), blocks.end()).size(), blocks.size());
            give_back(blocks, size);
        }
    }
}

TEST(RecycledMemory, is_taken_again_for_another_size_of_its_kind) {
    if (!RecycledMemory::recycles) GTEST_SKIP() << "the sanitizer wants it freed";
    void* const block = RecycledMemory::take(200);
    RecycledMemory::give_back(block, 200);
    EXPECT_EQ(RecycledMemory::take(220), block);
    RecycledMemory::give_back(block, 220);
}

TEST(RecycledMemory, what_another_thread_gives_back_is_taken_again) {
    if (!RecycledMemory::recycles) GTEST_SKIP() << "the sanitizer wants it freed";
    constexpr std::size_t count = 1000;
    constexpr std::size_t size = 900;
    std::set<void*> first;
    std::size_t known = 0;
    for (int round = 0; round < 3; ++round) {
        const auto blocks = take(count, size);
        if (round == 0) first.insert(blocks.begin(), blocks.end());
        known = 0;
        for (void* const block : blocks) known += first.count(block);
        std::thread{[&blocks] { give_back(blocks, size); }}.join();
    }
    EXPECT_GT(known, count / 2);
}

TEST(RecycledMemory, is_given_from_thread_to_thread_by_many_at_once) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([] {
            for (int round = 0; round < 50; ++round) {
                auto blocks = take(300, 300);
                std::thread{[&blocks] { give_back(blocks, 300); }}.join();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

/// Counts those there are.
struct Counted {
    explicit Counted(std::string its) : text(std::move(its)) { ++count; }
    virtual ~Counted() { --count; }
    static inline int count = 0;
    std::string text;
};

TEST(RecycledMemory, holds_objects_of_one_owner_and_of_several) {
    {
        const std::unique_ptr<Counted> one = std::make_unique<Recycled<Counted>>("one");
        const auto several = make_recycled<Counted>("several");
        const auto other = several;
        EXPECT_EQ(one->text + other->text, "oneseveral");
        EXPECT_EQ(Counted::count, 2);
    }
    EXPECT_EQ(Counted::count, 0);
}

}  // namespace
