#pragma once

#include "support/raw_redis.hpp"

#include <chrono>
#include <random>
#include <string>
#include <string_view>

namespace redlatch::test {

/// Proves, or disproves, that a lock excludes. Each thread of each process has its own object on
/// the same server and name, and passes through it while it holds the lock under test:
///
///     detector.enter();   // or: OverlapDetector::Section section{detector};
///     detector.leave();
///
/// Two holders at once are seen in two ways that do not depend on each other: a marker in Redis
/// counts who is inside, and a counter is raised by a plain read, pause and write, so that it falls
/// behind the number of sections as soon as two sections mix. At the end:
///
///     EXPECT_EQ(detector.overlaps(), 0);
///     EXPECT_EQ(detector.counter(), detector.sections());
///
/// It throws, also out of a Section, when its server fails: a test that stops or freezes the lock's
/// server gives the detector another one.
class OverlapDetector {
public:
    static constexpr std::chrono::microseconds default_pause{500};

    /// `address` as for RawRedis. Its keys begin with "overlap:<name>:" and should not meet the
    /// lock's own. A section pauses at random for less than `longest_pause`.
    OverlapDetector(std::string_view address, const std::string& name,
                    std::chrono::microseconds longest_pause = default_pause);

    /// The same on a connection made before (with a password, another database).
    OverlapDetector(RawRedis redis, const std::string& name,
                    std::chrono::microseconds longest_pause = default_pause);

    /// Begins a section: one round trip, then the pause. True if nobody else was inside.
    bool enter();

    /// Ends the section: one round trip.
    void leave();

    /// A section as long as a scope.
    class Section {
    public:
        explicit Section(OverlapDetector& detector) : detector_{detector} { detector_.enter(); }
        ~Section() noexcept(false) { detector_.leave(); }
        Section(const Section&) = delete;
        Section& operator=(const Section&) = delete;

    private:
        OverlapDetector& detector_;
    };

    // What all objects of this name saw together.

    /// Sections that began while somebody else was inside.
    [[nodiscard]] long long overlaps();

    /// Sections that ended, counted atomically.
    [[nodiscard]] long long sections();

    /// The counter that is raised without atomicity: equal to `sections()` unless two overlapped.
    [[nodiscard]] long long counter();

    /// How many are inside now.
    [[nodiscard]] long long inside();

    /// For a test that has killed a process in the middle of its section, before the lock goes to
    /// the next one: nobody is inside.
    void forget_inside();

private:
    long long number(const std::string& key);

    RawRedis redis_;
    std::string inside_key_;
    std::string overlaps_key_;
    std::string sections_key_;
    std::string counter_key_;
    std::minstd_rand random_;
    std::chrono::microseconds longest_pause_;
    long long seen_counter_ = 0;
};

}  // namespace redlatch::test
