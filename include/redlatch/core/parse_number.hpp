#pragma once

#include <redlatch/compilation.hpp>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace redlatch::inline v0::detail {

/// The number that `digits` is; nothing where anything else stands there too, or where it is too large for the type.
template <class Number>
std::optional<Number> whole_number(std::string_view digits) noexcept {
    Number number{};
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return number;
}

}  // namespace redlatch::inline v0::detail
