#pragma once

#include <redlatch/compilation.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace redlatch::inline v0::detail {

/// Memory for the objects that make up one asynchronous operation, kept for the next one. The objects of a
/// whole turn of a thread are made together and destroyed together, in part by another thread. The memory
/// that `malloc` keeps for a thread is too little for that, and going to its shared memory was a fifth of an
/// operation's cost. Any thread may use it. It allocates as `operator new` does.
class RecycledMemory {
public:
    // Not with AddressSanitizer, which looks for objects that are used after their end.
#if defined(__SANITIZE_ADDRESS__)
    static constexpr bool recycles = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    static constexpr bool recycles = false;
#else
    static constexpr bool recycles = true;
#endif
#else
    static constexpr bool recycles = true;
#endif

    static void* take(std::size_t size) {
        const std::size_t kind = kind_of(size);
        if (!recycles || kind >= kinds) return ::operator new(size);
        Stock& stock = own.stocks[kind];
        if (stock.first == nullptr) refill(kind);
        Block* const block = stock.first;
        if (block == nullptr) return ::operator new((kind + 1) * step);
        stock.first = block->next;
        --stock.count;
        return block;
    }

    static void give_back(void* memory, std::size_t size) noexcept {
        const std::size_t kind = kind_of(size);
        if (!recycles || kind >= kinds || own.has_ended) return ::operator delete(memory);
        if (!own.is_watched) watch.begin();
        Stock& stock = own.stocks[kind];
        if (stock.count == 2 * bundle) unload(kind);
        stock.first = ::new (memory) Block{stock.first, nullptr};
        ++stock.count;
    }

private:
    /// A free block, with the next one of its bundle, and the bundle behind that.
    struct Block {
        Block* next;
        Block* next_bundle;
    };

    struct Stock {
        Block* first;
        std::size_t count;
    };

    static constexpr std::size_t kinds = 24;
    static constexpr std::size_t step = 64;          // from one kind to the next
    static constexpr std::size_t bundle = 64;        // how many go from thread to thread together
    static constexpr std::size_t most_bundles = 16;  // of a kind, kept for all threads

    /// What one thread keeps.
    struct Own {
        std::array<Stock, kinds> stocks;
        bool is_watched;
        bool has_ended;
    };

    /// Frees the thread's blocks at its end.
    struct Watch {
        ~Watch() {
            own.has_ended = true;
            for (Stock& stock : own.stocks) free(std::exchange(stock.first, nullptr));
        }
        void begin() const noexcept { own.is_watched = true; }
    };

    /// What all threads share. One thread at a time uses it.
    struct Shared {
        std::atomic_flag in_use;
        std::array<Stock, kinds> bundles;
    };

    /// The right to use it. A thread that does not get it does without. A forked child may do so for ever.
    class Use {
    public:
        Use() noexcept : granted_(!shared.in_use.test_and_set(std::memory_order_acquire)) {}
        Use(const Use&) = delete;
        Use& operator=(const Use&) = delete;
        ~Use() {
            if (granted_) shared.in_use.clear(std::memory_order_release);
        }
        explicit operator bool() const noexcept { return granted_; }

    private:
        bool granted_;
    };

    static std::size_t kind_of(std::size_t size) noexcept {
        return (size - 1) / step;
    }

    static void refill(std::size_t kind) noexcept {
        if (own.has_ended) return;
        if (!own.is_watched) watch.begin();
        const Use use;
        Stock& bundles = shared.bundles[kind];
        if (!use || bundles.first == nullptr) return;
        own.stocks[kind] = {bundles.first, bundle};
        bundles.first = bundles.first->next_bundle;
        --bundles.count;
    }

    /// Gives one of two bundles away.
    static void unload(std::size_t kind) noexcept {
        Stock& stock = own.stocks[kind];
        Block* const first = stock.first;
        Block* last = first;
        for (std::size_t i = 1; i < bundle; ++i) last = last->next;
        stock = {std::exchange(last->next, nullptr), stock.count - bundle};
        {
            const Use use;
            Stock& bundles = shared.bundles[kind];
            if (use && bundles.count < most_bundles) {
                first->next_bundle = std::exchange(bundles.first, first);
                ++bundles.count;
                return;
            }
        }
        free(first);
    }

    static void free(Block* first) noexcept {
        while (first != nullptr) ::operator delete(std::exchange(first, first->next));
    }

    static inline constinit thread_local Own own{};
    static inline thread_local Watch watch{};
    static inline constinit Shared shared{};
};

/// The same for objects of a class that are made with `new`.
template <class T>
class Recycled final : public T {
public:
    using T::T;
    static void* operator new(std::size_t size) { return RecycledMemory::take(size); }
    static void operator delete(void* memory, std::size_t size) noexcept {
        RecycledMemory::give_back(memory, size);
    }
};

/// The same for `std::allocate_shared`.
template <class T>
struct RecyclingAllocator {
    using value_type = T;

    RecyclingAllocator() = default;
    template <class Other>
    RecyclingAllocator(const RecyclingAllocator<Other>&) noexcept {}

    T* allocate(std::size_t count) { return static_cast<T*>(RecycledMemory::take(bytes(count))); }
    void deallocate(T* memory, std::size_t count) noexcept {
        RecycledMemory::give_back(memory, bytes(count));
    }
    bool operator==(const RecyclingAllocator&) const noexcept = default;

private:
    // A map's buckets are pointers.
    static constexpr std::size_t bytes(std::size_t count) noexcept {
        return count * sizeof(T);  // NOLINT(bugprone-sizeof-expression)
    }
};

template <class T, class... Args>
std::shared_ptr<T> make_recycled(Args&&... args) {
    return std::allocate_shared<T>(RecyclingAllocator<T>{}, std::forward<Args>(args)...);
}

}  // namespace redlatch::inline v0::detail
