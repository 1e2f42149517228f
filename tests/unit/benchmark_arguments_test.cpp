// What the benchmarks with processes of their own understand of their command line.

#include "harness/arguments.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

namespace {

using namespace redlatch::bench;
using namespace std::chrono_literals;

Arguments read(std::string word) {
    std::string program = "benchmark";
    std::array<char*, 2> words{program.data(), word.data()};
    return read_arguments(2, words.data(), {});
}

TEST(BenchmarkArguments, have_fractions_of_a_millisecond) {
    EXPECT_EQ(read("--round-trip-ms=0.5").round_trip, 500us);
    EXPECT_EQ(read("--round-trip-ms=35").round_trip, 35ms);
    EXPECT_EQ(read("--seconds=0.25").seconds, 250ms);
    EXPECT_EQ(read("--rounds=3").rounds, 3);
}

TEST(BenchmarkArgumentsDeathTest, what_is_no_number_is_refused) {
    for (const char* const word :
         {"--round-trip-ms=0.5ms", "--round-trip-ms=-1", "--round-trip-ms=nan",
          "--round-trip-ms=1e30", "--rounds=1.5", "--rounds=", "--seconds=0", "--unknown=1"}) {
        EXPECT_EXIT(static_cast<void>(read(word)), testing::ExitedWithCode(2), "not understood")
            << word;
    }
}

}  // namespace
