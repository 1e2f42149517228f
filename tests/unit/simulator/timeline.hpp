#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/random.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

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

/// Chance. Each part of a schedule has a source of its own, so that a part which is taken out leaves the
/// others as they were.
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

/// Something to be done once. Small ones need no memory of their own.
class Task {
public:
    Task() = default;
    template <class F>
        requires(!std::is_same_v<std::decay_t<F>, Task>)
    Task(F&& function) {  // NOLINT: as std::function
        using Held = std::decay_t<F>;
        if constexpr (sizeof(Held) <= size && alignof(Held) <= alignof(std::max_align_t) &&
                      std::is_nothrow_move_constructible_v<Held>) {
            ::new (static_cast<void*>(bytes_)) Held(std::forward<F>(function));
            kind_ = &here<Held>;
        } else {
            ::new (static_cast<void*>(bytes_)) Held*(new Held(std::forward<F>(function)));
            kind_ = &elsewhere<Held>;
        }
    }
    Task(Task&& other) noexcept { take(other); }
    Task& operator=(Task&& other) noexcept {
        if (this == &other) return *this;
        reset();
        take(other);
        return *this;
    }
    ~Task() { reset(); }

    void operator()() { kind_->run(bytes_); }

private:
    static constexpr std::size_t size = 96;

    struct Kind {
        void (*run)(void*);
        void (*move)(void* from, void* to) noexcept;
        void (*destroy)(void*) noexcept;
    };

    template <class Held>
    static constexpr Kind here{[](void* at) { (*static_cast<Held*>(at))(); },
                               [](void* from, void* to) noexcept {
                                   ::new (to) Held(std::move(*static_cast<Held*>(from)));
                                   static_cast<Held*>(from)->~Held();
                               },
                               [](void* at) noexcept { static_cast<Held*>(at)->~Held(); }};
    template <class Held>
    static constexpr Kind elsewhere{
        [](void* at) { (**static_cast<Held**>(at))(); },
        [](void* from, void* to) noexcept { ::new (to) Held*(*static_cast<Held**>(from)); },
        [](void* at) noexcept { delete *static_cast<Held**>(at); }};

    void take(Task& other) noexcept {
        kind_ = std::exchange(other.kind_, nullptr);
        if (kind_ != nullptr) kind_->move(other.bytes_, bytes_);
    }
    void reset() noexcept {
        if (kind_ != nullptr) std::exchange(kind_, nullptr)->destroy(bytes_);
    }

    const Kind* kind_ = nullptr;
    alignas(std::max_align_t) std::byte bytes_[size]{};
};

class Host;

/// What will happen, in order.
class Timeline {
public:
    Moment now() const { return now_; }
    bool empty() const { return events_.empty(); }
    Moment next() const { return events_.front().when; }

    void at(Moment when, Task task) { put(when, nullptr, std::move(task)); }

    /// What `host` does then, if it lives, or as soon as it runs again.
    void at(Moment when, const Host& host, Task task) { put(when, &host, std::move(task)); }

    /// Goes to the next event, without its effect. Empty where its host is dead or stopped.
    std::unique_ptr<Task> take();

private:
    struct Event {
        Moment when;
        std::uint64_t number;
        const Host* host;
        std::unique_ptr<Task> task;
        bool operator<(const Event& other) const {
            return when > other.when || (when == other.when && number > other.number);
        }
    };

    void put(Moment when, const Host* host, Task task) {
        auto there = spare_.empty() ? std::make_unique<Task>() : std::move(spare_.back());
        if (!spare_.empty()) spare_.pop_back();
        *there = std::move(task);
        push({std::max(when, now_), ++count_, host, std::move(there)});
    }
    void push(Event event) {
        events_.push_back(std::move(event));
        std::push_heap(events_.begin(), events_.end());
    }

public:
    /// For the next event.
    void give_back(std::unique_ptr<Task> task) {
        *task = Task{};
        spare_.push_back(std::move(task));
    }

private:
    Moment now_{0};
    std::uint64_t count_ = 0;
    std::vector<Event> events_;
    std::vector<std::unique_ptr<Task>> spare_;
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
    Host(const Host&) = delete;
    Host& operator=(const Host&) = delete;

    TimePoint clock() const {
        const auto now = timeline_->now().count();
        return start_ +
               Moment{now + now / million * rate_ppm_ + now % million * rate_ppm_ / million};
    }

    /// When the clock will show `at`.
    Moment moment_of(TimePoint at) const {
        if (at == TimePoint::max()) return Moment::max();
        const auto passed = static_cast<long double>((at - start_).count());
        const long double moment = passed * million / static_cast<long double>(million + rate_ppm_);
        constexpr long double longest = 4e18L;
        return Moment{static_cast<std::int64_t>(std::min(moment, longest)) + 2};
    }

    /// What happens here then, if the process lives, or as soon as it runs again.
    void later(Moment when, Task task) {
        if (when == Moment::max()) return;
        timeline_->at(when, *this, std::move(task));
    }
    void soon(Moment pause, Task task) { later(timeline_->now() + pause, std::move(task)); }

    void crash() { crashed_ = true; }
    void freeze_until(Moment until) { frozen_until_ = std::max(frozen_until_, until); }
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

inline std::unique_ptr<Task> Timeline::take() {
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = event.when;
    if (event.host == nullptr || event.host->runs()) return std::move(event.task);
    if (event.host->crashed()) {
        give_back(std::move(event.task));
    } else {
        event.when = event.host->frozen_until();
        push(std::move(event));
    }
    return nullptr;
}

}  // namespace redlatch::test::simulator
