#pragma once

#include <chrono>
#include <thread>

namespace redlatch::test {

/// How long tests wait for something that has to happen. It is a bound for failing tests only, so
/// it is generous: machines under sanitizers and parallel builds are slow, and nobody waits for it
/// else.
inline constexpr std::chrono::seconds generous_limit{20};

/// Polls `predicate` every few milliseconds until it holds; false when `limit` is over first.
/// The predicate runs at least once, and once more at the very end.
template <typename Predicate>
[[nodiscard]] bool eventually(Predicate&& predicate,
                              std::chrono::nanoseconds limit = generous_limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
        if (predicate()) {
            return true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    return static_cast<bool>(predicate());
}

/// Measures how long something took. Starts running when it is made.
class Stopwatch {
public:
    [[nodiscard]] std::chrono::nanoseconds elapsed() const {
        return std::chrono::steady_clock::now() - start_;
    }

    /// The same in whole milliseconds, for readable messages of failed comparisons.
    [[nodiscard]] long long elapsed_ms() const {
        return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed()).count();
    }

    void restart() { start_ = std::chrono::steady_clock::now(); }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace redlatch::test
