#pragma once

#include <redlatch/net/sha1.hpp>

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0 {

/// A Lua script and the name that the server caches it under.
class Script {
public:
    /// Computes the SHA-1 of `source`. An empty text stands for a script that a policy does
    /// without.
    explicit Script(std::string source)
        : source_(std::move(source)), sha_(detail::Sha1::hex(source_)) {}

    /// The Lua.
    std::string_view source() const noexcept { return source_; }
    /// The SHA-1 of the source, in hexadecimal, as `EVALSHA` wants it.
    std::string_view sha() const noexcept { return {sha_.data(), sha_.size()}; }

private:
    std::string source_;
    std::array<char, 40> sha_;
};

}  // namespace redlatch::inline v0
