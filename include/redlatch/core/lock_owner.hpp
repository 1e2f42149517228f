#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>
#include <optional>

namespace redlatch::inline v0::detail {

/// A thread's number: given at its first use of the library, and never again to another thread.
enum class ThreadSerial : std::uint64_t {};

/// Who owns an acquisition, and the hold that it gets: a thread, or the acquisition itself. A thread
/// owns many, an acquisition that owns itself only one.
class LockOwner {
public:
    /// Nobody: of a hold that is there to be released only.
    constexpr LockOwner() = default;

    static constexpr LockOwner thread(ThreadSerial serial) noexcept {
        return {Kind::thread, static_cast<std::uint64_t>(serial)};
    }
    /// The acquisition with this id.
    static constexpr LockOwner acquisition(std::uint64_t id) noexcept {
        return {Kind::acquisition, id};
    }

    /// The thread; nothing where it is none.
    constexpr std::optional<ThreadSerial> thread() const noexcept {
        if (kind_ != Kind::thread) return std::nullopt;
        return static_cast<ThreadSerial>(number_);
    }

    friend constexpr bool operator==(const LockOwner&, const LockOwner&) = default;

private:
    enum class Kind : std::uint8_t { nobody, thread, acquisition };

    constexpr LockOwner(Kind kind, std::uint64_t number) noexcept : kind_(kind), number_(number) {}

    Kind kind_ = Kind::nobody;
    std::uint64_t number_ = 0;
};

}  // namespace redlatch::inline v0::detail
