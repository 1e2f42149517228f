#pragma once

#include <redlatch/compilation.hpp>

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace redlatch::inline v0::detail {

/// The number that all of `digits` is; nothing for other text, and for one too large for the type.
template <class Number>
std::optional<Number> whole_number(std::string_view digits) noexcept {
    Number number{};
    const char* const end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return number;
}

}  // namespace redlatch::inline v0::detail
