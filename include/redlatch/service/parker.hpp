#pragma once

#include <redlatch/clock.hpp>

#include <linux/futex.h>
#include <linux/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ratio>
#include <thread>

namespace redlatch::inline v0::detail {

/// Wakes one thread, its owner. Like a condition variable without its mutex: a thread that is woken need not take one
/// before it goes on, where it would meet its waker.
class Parker {
public:
    /// What is left to do of a wake-up: to wake the owner, should it sleep. May be done when the parker is
    /// gone.
    class Wake {
    public:
        Wake() = default;
        explicit Wake(std::atomic<std::uint32_t>* word) noexcept : word_(word) {}
        bool pending() const noexcept { return word_ != nullptr; }
        void operator()() const noexcept;

    private:
        std::atomic<std::uint32_t>* word_ = nullptr;  // an address, and not to be looked at
    };

    Parker() = default;
    Parker(const Parker&) = delete;
    Parker& operator=(const Parker&) = delete;

    /// Ends the owner's sleep, or its next one. The caller knows that the parker is there, and carries out
    /// what is returned as soon as it likes. The owner sees what the caller did before.
    [[nodiscard]] Wake unpark() noexcept;

    /// Sleeps until it is woken or `until` has come; maybe less. Whether it was woken. Only the owner.
    bool park(TimePoint until) noexcept;

    /// The same for what takes a round trip at least: does not look before it sleeps.
    bool sleep(TimePoint until) noexcept;

private:
    /// Sleeps are so long at most: time that the machine is suspended does not count in them.
    static constexpr std::chrono::hours longest_sleep{1};

    static Clock::duration nap(TimePoint until) noexcept {
        return std::clamp<Clock::duration>(saturating_sub(until, Clock::now()),
                                           Clock::duration::zero(), longest_sleep);
    }

    bool is_woken() const noexcept { return woken_.load(std::memory_order_acquire) != 0; }

    /// A time as this system call reads it. On a 32-bit system a program's `timespec` may be larger.
    struct KernelTime {
        __kernel_long_t seconds;
        __kernel_long_t nanoseconds;
    };

    /// How often other threads are let run before a sleep: a core that a thread is still awake on need not be
    /// woken up for the next one. 16 threads pass a lock on 124,000 times a second with four, and 50,000
    /// times with two or none, on two cores with nothing else to do (`benchmarks/run 1x16/empty`). On one
    /// core, or where others want the cores too, four cost a third of what two or none reach there.
    static constexpr int yields = 4;

    std::atomic<std::uint32_t> woken_{0};
};

// The kernel compares and sleeps on an atomic word.
static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

inline void Parker::Wake::operator()() const noexcept {
    constexpr int one_thread = 1;
    if (pending()) ::syscall(SYS_futex, word_, FUTEX_WAKE_PRIVATE, one_thread, nullptr, nullptr, 0);
}

inline Parker::Wake Parker::unpark() noexcept {
    woken_.store(1, std::memory_order_release);
    return Wake{&woken_};
}

inline bool Parker::park(TimePoint until) noexcept {
    for (int i = 0; i < yields && !is_woken(); ++i) std::this_thread::yield();
    return sleep(until);
}

inline bool Parker::sleep(TimePoint until) noexcept {
    if (!is_woken()) {
        const Clock::duration time = nap(until);
        const auto seconds = std::chrono::floor<std::chrono::duration<__kernel_long_t>>(time);
        const std::chrono::duration<__kernel_long_t, std::nano> rest = time - seconds;
        const KernelTime timeout{.seconds = seconds.count(), .nanoseconds = rest.count()};
        ::syscall(SYS_futex, &woken_, FUTEX_WAIT_PRIVATE, 0, &timeout, nullptr, 0);
    }
    return woken_.exchange(0, std::memory_order_acquire) != 0;
}

}  // namespace redlatch::inline v0::detail
