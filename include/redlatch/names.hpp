#pragma once

#include <redlatch/error.hpp>
#include <redlatch/types.hpp>

#include <string_view>

namespace redlatch::inline v0::detail {

/// The enumerator's name, for texts that programs read.
constexpr std::string_view name_of(Errc code) noexcept {
    switch (code) {
        case Errc::timed_out: return "timed_out";
        case Errc::cancelled: return "cancelled";
        case Errc::lost: return "lost";
        case Errc::not_held: return "not_held";
        case Errc::unavailable: return "unavailable";
        case Errc::denied: return "denied";
        case Errc::wrong_type: return "wrong_type";
        case Errc::not_replicated: return "not_replicated";
        case Errc::no_quorum: return "no_quorum";
        case Errc::unclear: return "unclear";
        case Errc::deadlock: return "deadlock";
        case Errc::protocol: return "protocol";
        case Errc::invalid_argument: return "invalid_argument";
    }
    return "unknown";
}

constexpr std::string_view name_of(Release outcome) noexcept {
    switch (outcome) {
        case Release::released: return "released";
        case Release::still_held: return "still_held";
        case Release::expired: return "expired";
        case Release::not_held: return "not_held";
    }
    return "unknown";
}

}  // namespace redlatch::inline v0::detail
