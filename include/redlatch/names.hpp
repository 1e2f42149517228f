#pragma once

#include <redlatch/error.hpp>
#include <redlatch/types.hpp>

namespace redlatch::inline v0 {

/// @{
/// The enumerator's name, as programs read it: for a log, a label, a test. `unknown` for a value that is none.
/// The text is there as long as the program. For people there is `Error::describe()`.
constexpr const char* enumerator_name(Errc code) noexcept {
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

constexpr const char* enumerator_name(Release outcome) noexcept {
    switch (outcome) {
        case Release::released: return "released";
        case Release::still_held: return "still_held";
        case Release::expired: return "expired";
        case Release::not_held: return "not_held";
    }
    return "unknown";
}

constexpr const char* enumerator_name(Forced outcome) noexcept {
    switch (outcome) {
        case Forced::removed: return "removed";
        case Forced::absent: return "absent";
    }
    return "unknown";
}

constexpr const char* enumerator_name(HoldState state) noexcept {
    switch (state) {
        case HoldState::none: return "none";
        case HoldState::held: return "held";
        case HoldState::uncertain: return "uncertain";
        case HoldState::lost: return "lost";
    }
    return "unknown";
}
/// @}

}  // namespace redlatch::inline v0
