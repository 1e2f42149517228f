#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <type_traits>

namespace redlatch::bench {

/// One object that this process and all processes it forks later have in common.
template <class T>
class SharedMemory {
public:
    static_assert(std::is_trivially_destructible_v<T>, "nobody knows who comes last");

    SharedMemory() {
        void* const memory =
            ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::system_error{errno, std::generic_category(), "mmap"};
        object_ = ::new (memory) T{};
    }
    ~SharedMemory() { ::munmap(object_, sizeof(T)); }
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    T& operator*() const noexcept { return *object_; }
    T* operator->() const noexcept { return object_; }

private:
    T* object_ = nullptr;
};

}  // namespace redlatch::bench
