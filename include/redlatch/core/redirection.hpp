#pragma once

#include <redlatch/core/fault.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace redlatch::inline v0::detail {

/// Whether what a server calls a host may be one.
inline bool may_be_host(std::string_view name) noexcept {
    constexpr std::size_t longest = 255;
    return !name.empty() && name.size() <= longest &&
           std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
}

/// A server of a Cluster says which other one a command belongs to. Nothing was executed.
struct Redirection {
    bool once = false;  ///< for this command only (ASK); else from now on (MOVED)
    unsigned slot = 0;
    std::string host;  ///< empty: the host that said so
    std::uint16_t port = 0;
};

/// What `MOVED slot host:port` or `ASK slot host:port` says; the host may be an IPv6 address without
/// brackets, and empty or `?` where the server does not know it. Nothing for another fault.
inline std::optional<Redirection> redirection_of(const Fault& fault) {
    std::string_view text = fault.error.message;
    Redirection to;
    if (text.starts_with("ASK ")) {
        to.once = true;
        text.remove_prefix(4);
    } else if (text.starts_with("MOVED ")) {
        text.remove_prefix(6);
    } else {
        return std::nullopt;
    }
    const std::size_t space = text.find(' ');
    const std::size_t colon = text.rfind(':');
    if (space == std::string_view::npos || colon == std::string_view::npos || colon < space) {
        return std::nullopt;
    }
    const auto read = [](std::string_view digits, auto& number) {
        const char* const end = digits.data() + digits.size();
        const auto [stop, error] = std::from_chars(digits.data(), end, number);
        return error == std::errc{} && stop == end;
    };
    if (!read(text.substr(0, space), to.slot) || !read(text.substr(colon + 1), to.port)) {
        return std::nullopt;
    }
    const std::string_view host = text.substr(space + 1, colon - space - 1);
    if (host != "?") to.host = host;
    return to;
}

}  // namespace redlatch::inline v0::detail
