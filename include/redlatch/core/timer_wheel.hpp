#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/intrusive_list.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace redlatch::inline v0::detail {

/// Deadlines of others' objects: set and cleared in constant time, without an allocation. One is
/// told at most a millisecond late.
class TimerWheel {
public:
    class Timer : public IntrusiveList<Timer>::Hook {
    public:
        bool is_set() const noexcept { return slot_ != none; }

    private:
        friend TimerWheel;
        TimePoint due_{};
        std::size_t slot_ = none;
    };

    explicit TimerWheel(TimePoint now) : slots_(size), tick_(tick_of(now)) {}

    /// Also one that is set already.
    void set(Timer& timer, TimePoint due) noexcept {
        clear(timer);
        timer.due_ = due;
        put(timer, slot_at(std::max(tick_of(due), tick_)));
    }

    void clear(Timer& timer) noexcept {
        if (!timer.is_set()) return;
        list(timer.slot_).remove(timer);
        if (timer.slot_ != ripe && list(timer.slot_).empty()) mark(timer.slot_, false);
        timer.slot_ = none;
    }

    /// Calls `expired` with those that are due, no longer set, `most` at most; it may set and clear any. The
    /// others, and those that it sets to the past, are told the next time.
    template <class Expired>
    void expire(TimePoint now, std::size_t most, Expired expired) {
        const std::int64_t last = tick_of(now);
        const std::int64_t end = std::min(last, tick_ + std::int64_t{size} - 1);
        for (std::int64_t at = tick_; at <= end; ++at) collect(slot_at(at), now);
        tick_ = std::max(tick_, last);
        for (; most != 0 && !ripe_.empty(); --most) {
            Timer& timer = *ripe_.front();
            clear(timer);
            expired(timer);
        }
    }

    /// When to call `expire` next; for ever where none is set. It may be for nothing.
    TimePoint next_due() const noexcept {
        if (!ripe_.empty()) return TimePoint::min();
        for (std::size_t passed = 0; passed < size;) {
            const std::size_t slot = slot_at(tick_ + static_cast<std::int64_t>(passed));
            const std::uint64_t marked = marks_[slot / word] >> (slot % word);
            if (marked == 0) {
                passed += word - slot % word;
                continue;
            }
            passed += static_cast<std::size_t>(std::countr_zero(marked));
            return TimePoint{tick * (tick_ + static_cast<std::int64_t>(passed) + 1)};
        }
        return TimePoint::max();
    }

private:
    static constexpr std::chrono::milliseconds tick{1};
    static constexpr std::size_t size = 4096;
    static constexpr std::size_t word = 64;
    static constexpr std::size_t ripe = size;
    static constexpr std::size_t none = size + 1;

    static std::int64_t tick_of(TimePoint at) noexcept {
        return std::chrono::floor<std::chrono::milliseconds>(at.time_since_epoch()).count();
    }
    static std::size_t slot_at(std::int64_t at) noexcept {
        return static_cast<std::size_t>(at) % size;
    }

    IntrusiveList<Timer>& list(std::size_t slot) noexcept {
        return slot == ripe ? ripe_ : slots_[slot];
    }

    void put(Timer& timer, std::size_t slot) noexcept {
        list(slot).push_back(timer);
        timer.slot_ = slot;
        if (slot != ripe) mark(slot, true);
    }

    void mark(std::size_t slot, bool used) noexcept {
        const std::uint64_t bit = std::uint64_t{1} << (slot % word);
        if (used) {
            marks_[slot / word] |= bit;
        } else {
            marks_[slot / word] &= ~bit;
        }
    }

    /// A slot may hold those of later rounds, too.
    void collect(std::size_t slot, TimePoint now) noexcept {
        slots_[slot].for_each([&](Timer& timer) {
            if (timer.due_ > now) return;
            clear(timer);
            put(timer, ripe);
        });
    }

    std::vector<IntrusiveList<Timer>> slots_;
    IntrusiveList<Timer> ripe_;
    std::array<std::uint64_t, size / word> marks_{};  // which slots are not empty
    std::int64_t tick_;                               // up to which `expire` has looked
};

}  // namespace redlatch::inline v0::detail
