#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/error.hpp>

#include <concepts>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace redlatch::inline v0 {

/// Marks a value as the error of an `Expected`, as `std::unexpected` does.
template <class E>
class Unexpected {
public:
    /// Marks `error`.
    explicit Unexpected(E error) : error_(std::move(error)) {}
    /// @{
    /// What was marked.
    const E& error() const& noexcept { return error_; }
    E&& error() && noexcept { return std::move(error_); }
    /// @}

private:
    E error_;
};

namespace detail {

struct Nothing {};

// A file without exceptions may read the headers as declarations, so nothing else in these throws.
[[noreturn]] void raise(Error error);

#if REDLATCH_DEFINITIONS
[[noreturn]] REDLATCH_INLINE void raise(Error error) {
    throw LockError{std::move(error)};
}
#endif

/// `text` as a string. A null pointer is `invalid_argument`: `std::getenv` returns one for a variable
/// that is not set.
inline std::string string_of(const char* text, const char* meaning) {
    if (text == nullptr) {
        raise({Errc::invalid_argument,
               {},
               {},
               std::string{meaning} + " is a null pointer; is an environment variable unset?",
               {}});
    }
    return text;
}

}  // namespace detail

/// A value or the reason why there is none: the part of C++23's `std::expected` that a C++20
/// library can offer, with the same names. `value()` without a value throws `LockError`; the
/// other accessors have `std::expected`'s preconditions. There is no `==` of two of them, and nothing that
/// takes a function, such as `and_then()`.
template <class T, class E>
class [[nodiscard]] Expected {
    using Value = std::conditional_t<std::is_void_v<T>, detail::Nothing, T>;

public:
    using value_type = T;  ///< what it has if all went well
    using error_type = E;  ///< what it has if not

    /// All went well: there is no error.
    Expected() requires std::is_void_v<T> : value_() {}
    /// Has a value.
    Expected(Value value) requires(!std::is_void_v<T>) : value_(std::move(value)) {}
    /// Has an error.
    Expected(Unexpected<E> error) : error_(std::in_place, std::move(error).error()) {}

    /// @{
    /// As the other one.
    Expected(const Expected& other) requires(
        std::is_copy_constructible_v<Value>&& std::is_copy_constructible_v<E>)
        : error_(other.error_) {
        if (has_value()) ::new (place()) Value(other.value_);
    }
    Expected(Expected&& other) noexcept(
        std::is_nothrow_move_constructible_v<Value>&& std::is_nothrow_move_constructible_v<E>)
        : error_(std::move(other.error_)) {
        if (has_value()) ::new (place()) Value(std::move(other.value_));
    }
    /// @}
    /// @{
    /// Becomes as the other one. Where a copy or a move throws, it still has a value, or still has an error.
    Expected& operator=(const Expected& other) requires std::copyable<Value> {
        return assign(other);
    }
    Expected& operator=(Expected&& other) noexcept(
        std::is_nothrow_move_constructible_v<Value>&& std::is_nothrow_move_assignable_v<Value>&&
            std::is_nothrow_move_assignable_v<std::optional<E>>) requires std::movable<Value> {
        return assign(std::move(other));
    }
    /// @}
    ~Expected() {
        if (has_value()) value_.~Value();
    }

    /// @{
    /// Whether it has a value.
    bool has_value() const noexcept { return !error_; }
    explicit operator bool() const noexcept { return has_value(); }
    /// @}

    /// @{
    /// The value, which has to be there.
    const Value& operator*() const& noexcept requires(!std::is_void_v<T>) { return value_; }
    Value& operator*() & noexcept requires(!std::is_void_v<T>) { return value_; }
    Value&& operator*() && noexcept requires(!std::is_void_v<T>) { return std::move(value_); }
    const Value* operator->() const noexcept requires(!std::is_void_v<T>) {
        return std::addressof(value_);
    }
    Value* operator->() noexcept requires(!std::is_void_v<T>) { return std::addressof(value_); }
    /// @}

    /// @{
    /// The value. Throws `LockError` with the error where there is none.
    void value() const& requires std::is_void_v<T> {
        if (!has_value()) detail::raise(error());
    }
    const Value& value() const& requires(!std::is_void_v<T>) {
        if (!has_value()) detail::raise(error());
        return **this;
    }
    Value& value() & requires(!std::is_void_v<T>) {
        if (!has_value()) detail::raise(error());
        return **this;
    }
    Value value() && requires(!std::is_void_v<T>) {
        if (!has_value()) detail::raise(std::move(*this).error());
        return *std::move(*this);
    }
    /// @}

    /// @{
    /// The value, or `other` where there is none.
    template <class U>
    Value value_or(U&& other) const& requires(!std::is_void_v<T>) {
        return has_value() ? **this : static_cast<Value>(std::forward<U>(other));
    }
    template <class U>
        Value value_or(U&& other) && requires(!std::is_void_v<T>) {
        return has_value() ? *std::move(*this) : static_cast<Value>(std::forward<U>(other));
    }
    /// @}

    /// @{
    /// The error, which has to be there.
    const E& error() const& noexcept { return *error_; }
    E& error() & noexcept { return *error_; }
    E&& error() && noexcept { return std::move(*error_); }
    /// @}

    /// Whether it has that value.
    template <class U>
    bool operator==(const U& value) const
        requires(!std::is_void_v<T> && !std::same_as<U, Expected> &&
                 requires(const Value& own) { static_cast<bool>(own == value); }) {
        return has_value() && static_cast<bool>(**this == value);
    }

private:
    /// Destroys the old content last: by then nothing throws, and `other` may be a part of it.
    template <class Other>
    Expected& assign(Other&& other) {
        if (has_value() && other.has_value()) {
            value_ = std::forward<Other>(other).value_;
        } else if (other.has_value()) {
            ::new (place()) Value(std::forward<Other>(other).value_);
            error_.reset();
        } else if (has_value()) {
            error_ = std::forward<Other>(other).error_;
            value_.~Value();
        } else {
            error_ = std::forward<Other>(other).error_;
        }
        return *this;
    }

    void* place() noexcept { return std::addressof(value_); }

    // The value is there where no error is. A std::variant, or two optional ones, would take some fifty
    // functions for each type.
    std::optional<E> error_;
    union {
        Value value_;  // NOLINT(readability-identifier-naming): no public name
    };
};

/// What a call that does not throw returns: a `T`, or the `Error` that says why there is none.
template <class T>
using Result = Expected<T, Error>;

}  // namespace redlatch::inline v0
