// A stop token fires, or a coroutine is destroyed, at every moment around the success of an acquisition.

#include "async_tools.hpp"
#include "support/lock_table_view.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace redlatch::test {
namespace {

/// One after the other, until there were as many as REDLATCH_CANCEL_RACES says; without that, as many as there is
/// time for.
class Rounds {
public:
    bool next() {
        if (wanted_ != 0 ? number_ == wanted_ : is_enough()) return false;
        ++number_;
        return true;
    }
    int number() const { return number_; }

private:
    static constexpr int least = 200;
    static constexpr auto time = 2s;

    bool is_enough() const { return number_ >= least && watch_.elapsed() > time; }

    static int wanted() {
        const char* const text = std::getenv("REDLATCH_CANCEL_RACES");
        return text != nullptr ? std::max(1, std::atoi(text)) : 0;
    }

    const int wanted_ = wanted();
    const Stopwatch watch_{};
    int number_ = 0;
};

/// When to stop: from at once to twice the time that success takes, each moment as often as any other. Every tenth
/// round lets it succeed, to learn that time.
class Moments {
public:
    bool is_late(int round) const { return round % 10 == 1; }

    /// Sleeps for none of it: the moments lie too close.
    void wait(int round) const {
        constexpr double golden = 0.618'033'988'749'895;
        const double part = std::fmod(round * golden, 1.0);
        const auto until = std::chrono::duration_cast<std::chrono::nanoseconds>(2 * part * usual_);
        while (watch_.elapsed() < until) {
        }
    }
    void began() { watch_.restart(); }
    void succeeded(int round) {
        if (!is_late(round)) return;
        const std::chrono::duration<double, std::nano> took =
            std::min<std::chrono::nanoseconds>(watch_.elapsed(), 10ms);
        usual_ += (took - usual_) / 4;
    }

private:
    Stopwatch watch_;
    std::chrono::duration<double, std::nano> usual_ = 100us;
};

/// What one round's acquisition was told, and how often.
struct Told {
    std::atomic<int> calls{0};
    std::optional<Result<Held>> result{};
};

class CancelRaces : public LockTest {
protected:
    /// One acquisition that `let_succeed` does not let wait, and a stop around its success.
    template <class LetSucceed>
    void race(int round, LetSucceed let_succeed) {
        Told& told = told_.emplace_back();
        std::stop_source stop;
        lock_.async_acquire({.wait = 60s}, stop.get_token(), [&told](Result<Held> result) {
            if (told.calls == 0) told.result.emplace(std::move(result));
            ++told.calls;
        });
        let_succeed();
        moments_.began();
        if (moments_.is_late(round)) {
            ASSERT_TRUE(completes(told));
            moments_.succeeded(round);
        } else {
            moments_.wait(round);
        }
        stop.request_stop();
        ASSERT_TRUE(completes(told));
        const Errc code = code_of(*told.result);
        if (code == Errc{}) {
            ++succeeded_;
            EXPECT_TRUE((*told.result)->held());
        } else {
            ASSERT_EQ(code, Errc::cancelled) << "round " << round;
            ++cancelled_;
        }
    }

    /// Gives back what the last round has got.
    void give_back() { told_.back().result.reset(); }

    static bool completes(const Told& told) {
        const Stopwatch watch;
        while (told.calls == 0) {
            if (watch.elapsed() > generous_limit) return false;
            std::this_thread::yield();
        }
        return true;
    }

    void expect_nothing_is_left(const Rounds& rounds) {
        EXPECT_GT(succeeded_, 0);
        EXPECT_GT(cancelled_, 0);
        EXPECT_EQ(succeeded_ + cancelled_, rounds.number());
        EXPECT_TRUE(eventually([&] { return known_locks(client_) == 0; }));
        EXPECT_TRUE(eventually([&] { return redis_.keys().empty(); }));
        EXPECT_TRUE(stays([&] { return redis_.keys().empty(); }, 50ms)) << "it came back";
        EXPECT_TRUE(std::ranges::all_of(told_, [](const Told& told) { return told.calls == 1; }));
        RecordProperty("rounds", rounds.number());
        RecordProperty("cancelled", cancelled_);
    }

    Lock<Simple> lock_{client_, "key"};
    Moments moments_;
    std::deque<Told> told_;
    int succeeded_ = 0;
    int cancelled_ = 0;
};

TEST_F(CancelRaces, with_the_answer_of_the_server) {
    Rounds rounds;
    while (rounds.next() && !HasFatalFailure()) {
        race(rounds.number(), [] {});
        give_back();
    }
    expect_nothing_is_left(rounds);
}

TEST_F(CancelRaces, with_a_hand_off_in_memory) {
    Rounds rounds;
    while (rounds.next() && !HasFatalFailure()) {
        std::optional<Held> before = take(lock_, {.wait = 60s});
        race(rounds.number(), [&] { before.reset(); });
        give_back();
    }
    expect_nothing_is_left(rounds);
}

TEST_F(CancelRaces, with_a_grant_of_another_client) {
    Lock<Simple> theirs{other_client_, "key"};
    Rounds rounds;
    while (rounds.next() && !HasFatalFailure()) {
        std::optional<Held> before = take(theirs, {.wait = 60s});
        race(rounds.number(), [&] {
            while (!redis_.exists("redlatch:queue:{key}")) {
            }
            before.reset();
        });
        give_back();
    }
    expect_nothing_is_left(rounds);
}

Coroutine acquire_via(Lock<Simple>& lock, Executor& executor, int& resumed,
                      std::optional<Result<Held>>& result) {
    result.emplace(co_await lock.async_acquire({.wait = 60s}).via(executor));
    ++resumed;
}

// As a round that leaves the lock with nobody keeps the next one from it, each has to get it soon.
TEST_F(CancelRaces, with_the_end_of_the_coroutine) {
    Loop loop;
    Rounds rounds;
    while (rounds.next() && !HasFatalFailure()) {
        const int round = rounds.number();
        int resumed = 0;
        std::optional<Result<Held>> result;
        {
            const Coroutine coroutine = acquire_via(lock_, loop, resumed, result);
            moments_.began();
            if (moments_.is_late(round)) {
                const Stopwatch watch;
                while (resumed == 0 && watch.elapsed() < generous_limit) loop.run_ready();
                ASSERT_EQ(resumed, 1);
                moments_.succeeded(round);
            } else {
                moments_.wait(round);
                if (round % 2 == 0) loop.run_ready();
            }
        }
        loop.run_ready();
        ASSERT_EQ(resumed, int{result.has_value()});
        if (!result) {
            ++cancelled_;
        } else {
            ASSERT_EQ(code_of(*result), Errc{}) << "round " << round;
            ++succeeded_;
        }
    }
    ASSERT_TRUE(loop.run_until([&] { return known_locks(client_) == 0; }));
    expect_nothing_is_left(rounds);
}

}  // namespace
}  // namespace redlatch::test
