#pragma once

#include <redlatch/net/process_id.hpp>

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <new>

namespace redlatch::inline v0::detail {

/// Leaves alone what a forked child has inherited: its mutexes may be locked for ever, its members half
/// changed, its threads are not here to be joined. Keeps it reachable, as it is no leak by mistake, where there is
/// memory for that.
inline void abandon(void* inherited) noexcept {
    struct Abandoned {
        void* what;
        Abandoned* next;
    };
    static std::atomic<Abandoned*> all{nullptr};
    auto* const first = new (std::nothrow) Abandoned{inherited, all.load()};
    if (first == nullptr) return;
    while (!all.compare_exchange_weak(first->next, first)) {
    }
}

/// A `T` of this process's own. A forked child makes one without touching that of its parent, which is
/// abandoned. Thread-safe, but for the end.
template <class T>
class PerProcess {
public:
    template <class... Args>
    explicit PerProcess(const Args&... args) : own_(new Own{args...}) {}
    PerProcess(const PerProcess&) = delete;
    PerProcess& operator=(const PerProcess&) = delete;
    ~PerProcess() {
        Own* const own = own_.load();
        if (is_ours(own)) {
            delete own;
        } else if (own != nullptr) {
            abandon(own);
        }
    }

    /// Null in a child that has none of its own yet.
    T* existing() noexcept {
        Own* const own = own_.load(std::memory_order_acquire);
        return is_ours(own) ? &own->value : nullptr;
    }

    /// The same. Where it is null, nothing is inherited any more: a `renew` that is under way prepares once more.
    T* existing_or_disown() noexcept {
        Own* own = own_.load(std::memory_order_acquire);
        while (own != nullptr && !is_ours(own)) {
            if (!own_.compare_exchange_strong(own, nullptr)) continue;
            abandon(own);
            return nullptr;
        }
        return own == nullptr ? nullptr : &own->value;
    }

    /// For a child that has none of its own yet, unless another of its threads is faster.
    T& renew() {
        return renew([](T&) {});
    }

    /// The same. `prepare(T&)`: before any other thread has it.
    template <class Prepare, class... Args>
    T& renew(const Prepare& prepare, const Args&... args) {
        for (;;) {
            Own* inherited = own_.load(std::memory_order_acquire);
            if (is_ours(inherited)) return inherited->value;
            auto own = std::make_unique<Own>(args...);
            prepare(own->value);
            if (!own_.compare_exchange_strong(inherited, own.get())) continue;
            if (inherited != nullptr) abandon(inherited);
            return own.release()->value;
        }
    }

private:
    struct Own {
        template <class... Args>
        explicit Own(const Args&... args) : value(args...) {}
        bool is_ours() const noexcept { return pid == ProcessId::of_this_process(); }

        const ::pid_t pid = ProcessId::of_this_process();
        T value;
    };

    static bool is_ours(const Own* own) noexcept { return own != nullptr && own->is_ours(); }

    std::atomic<Own*> own_;  // null where a child has disowned what it has inherited
};

}  // namespace redlatch::inline v0::detail
