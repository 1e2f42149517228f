#include "exit_codes.hpp"

#include <algorithm>

namespace tool {

bool ExitCodes::set(std::string_view name, int code) {
    constexpr std::array<std::string_view, 7> names{"usage", "type",   "server", "internal",
                                                    "busy",  "denied", "lost"};
    const auto found = std::ranges::find(names, name);
    if (found == names.end() || code < 0 || code > 255) return false;
    codes_[static_cast<std::size_t>(found - names.begin())] = code;
    return true;
}

int ExitCodes::of(const redlatch::Error& error) const {
    using redlatch::Errc;
    switch (error.code) {
        case Errc::timed_out: return of(Failure::busy);
        case Errc::lost:
        case Errc::not_held: return of(Failure::lost);
        case Errc::unavailable:
        case Errc::not_replicated:
        case Errc::no_quorum:
        case Errc::unclear: return of(Failure::server);
        case Errc::denied: return of(Failure::denied);
        case Errc::wrong_type: return of(Failure::type);
        case Errc::invalid_argument: return of(Failure::usage);
        case Errc::cancelled:
        case Errc::deadlock:
        case Errc::protocol: break;
    }
    return of(Failure::internal);
}

}  // namespace tool
