#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/random.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::schedules {

using namespace std::chrono_literals;
using detail::TimePoint;
using std::chrono::microseconds;
using std::chrono::milliseconds;

/// A moment of the schedule: the time that no process can see.
using Moment = std::chrono::nanoseconds;

/// A promise that was not kept.
struct Violation : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// All chance of a schedule.
class Dice {
public:
    explicit Dice(std::uint64_t seed) : random_(seed) {}

    /// True once in `n`; never for 0.
    bool one_in(int n) { return n > 0 && random_.between(0, n) == 0; }
    std::int64_t between(std::int64_t low, std::int64_t high) { return random_.between(low, high); }
    Moment span(Moment low, Moment high) {
        return Moment{random_.between(low.count(), high.count())};
    }
    template <class T>
    T pick(std::initializer_list<T> choices) {
        return choices.begin()[random_.between(0, static_cast<std::int64_t>(choices.size()))];
    }
    std::uint64_t seed() { return random_.next(); }

private:
    detail::Random random_;
};

/// What will happen, in order.
class Timeline {
public:
    using Task = std::function<void()>;

    Moment now() const { return now_; }
    bool empty() const { return events_.empty(); }
    Moment next() const { return events_.front().when; }

    void at(Moment when, Task task) {
        events_.push_back({std::max(when, now_), ++count_, std::move(task)});
        std::push_heap(events_.begin(), events_.end());
    }

    /// Goes to the next event, without its effect.
    Task take() {
        std::pop_heap(events_.begin(), events_.end());
        Task task = std::move(events_.back().task);
        now_ = events_.back().when;
        events_.pop_back();
        return task;
    }

private:
    struct Event {
        Moment when;
        std::uint64_t number;
        Task task;
        bool operator<(const Event& other) const {
            return std::pair{when, number} > std::pair{other.when, other.number};
        }
    };

    Moment now_{0};
    std::uint64_t count_ = 0;
    std::vector<Event> events_;
};

/// The steps of a schedule, written down only where somebody will read them.
class Trace {
public:
    Trace(const Timeline& timeline, bool on) : timeline_(&timeline), on_(on) {}

    template <class... Parts>
    void operator()(const Parts&... parts) {
        if (!on_) return;
        text_ << timeline_->now() / 1us << "us ";
        static_cast<void>((text_ << ... << parts));
        text_ << '\n';
    }
    std::string text() const { return text_.str(); }

private:
    const Timeline* timeline_;
    bool on_;
    std::ostringstream text_;
};

/// What a process runs on: a clock with an offset and a rate of its own, and the chance to stop,
/// for a while or for good.
class Host {
public:
    Host(Timeline& timeline, TimePoint start, std::int64_t rate_ppm)
        : timeline_(&timeline), start_(start), rate_ppm_(rate_ppm) {}

    TimePoint clock() const {
        const auto now = timeline_->now().count();
        return start_ + Moment{now + now * rate_ppm_ / million};
    }

    /// When the clock will show `at`.
    Moment moment_of(TimePoint at) const {
        if (at == TimePoint::max()) return Moment::max();
        const auto passed = static_cast<long double>((at - start_).count());
        return Moment{static_cast<std::int64_t>(passed * million / (million + rate_ppm_)) + 2};
    }

    /// What happens here then, if the process lives, or as soon as it runs again.
    void later(Moment when, Timeline::Task task) {
        if (when == Moment::max()) return;
        timeline_->at(when, [this, task = std::move(task)]() mutable {
            if (crashed_) return;
            if (frozen()) return later(frozen_until_, std::move(task));
            task();
        });
    }
    void soon(Moment pause, Timeline::Task task) {
        later(timeline_->now() + pause, std::move(task));
    }

    void crash() { crashed_ = true; }
    void freeze_until(Moment until) { frozen_until_ = until; }
    bool crashed() const { return crashed_; }
    bool frozen() const { return timeline_->now() < frozen_until_; }
    bool runs() const { return !crashed_ && !frozen(); }

    /// The end of the last time that it did not run.
    Moment frozen_until() const { return frozen_until_; }

private:
    static constexpr std::int64_t million = 1'000'000;

    Timeline* timeline_;
    TimePoint start_;
    std::int64_t rate_ppm_;
    bool crashed_ = false;
    Moment frozen_until_{0};
};

}  // namespace redlatch::test::schedules
