// An operator new of the program's own, which calls a function of the test first. For one source file of a program.
#pragma once

#include "sanitizers.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace redlatch::test {

/// Called on this thread before each of its allocations; null for nothing. May throw `std::bad_alloc`.
inline thread_local void (*before_allocation)() = nullptr;

// ThreadSanitizer's library has these operators, too, and no others can be linked beside them.
#if defined(REDLATCH_TEST_TSAN)
constexpr bool has_own_new = false;
#else
constexpr bool has_own_new = true;

inline void* allocate(std::size_t size) {
    if (before_allocation != nullptr) before_allocation();
    void* const memory = std::malloc(size == 0 ? 1 : size);
    if (memory == nullptr) throw std::bad_alloc{};
    return memory;
}
#endif

}  // namespace redlatch::test

#if !defined(REDLATCH_TEST_TSAN)
void* operator new(std::size_t size) {
    return redlatch::test::allocate(size);
}
void* operator new[](std::size_t size) {
    return redlatch::test::allocate(size);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
#endif
