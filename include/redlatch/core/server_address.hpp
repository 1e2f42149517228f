#pragma once

#include <redlatch/core/parse_number.hpp>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// Where one server says that another one is.
struct ServerAddress {
    std::string host;
    std::uint16_t port = 0;

    friend auto operator<=>(const ServerAddress&, const ServerAddress&) = default;
};

/// Whether what a server calls a host may be one. In an error message, a byte that is not printable
/// stands behind a backslash.
inline bool may_be_host(std::string_view name) noexcept {
    constexpr std::size_t longest = 255;
    return !name.empty() && name.size() <= longest &&
           std::all_of(name.begin(), name.end(),
                       [](char c) { return c > ' ' && c <= '~' && c != '\\'; });
}

/// A port as text; nothing for 0 and for what is no port.
inline std::optional<std::uint16_t> parse_port(std::string_view digits) noexcept {
    const auto port = whole_number<std::uint16_t>(digits);
    if (port == 0) return std::nullopt;
    return port;
}

/// Nothing where that cannot be a server's address.
inline std::optional<ServerAddress> parse_address(std::string_view host, std::string_view port) {
    const auto number = parse_port(port);
    if (!number || !may_be_host(host)) return std::nullopt;
    return ServerAddress{std::string{host}, *number};
}

}  // namespace redlatch::inline v0::detail
