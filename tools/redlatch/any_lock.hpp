#pragma once

#include <redlatch/redlatch.hpp>

#include <string>
#include <string_view>

namespace tool {

/// A lock of whatever kind it is: asks as one kind, and where the key turns out to be of another, as that.
template <class Ask>
auto with_any_lock(redlatch::Client& client, const std::string& name, Ask ask) {
    redlatch::Lock<redlatch::Simple> simple{client, name};
    auto answer = ask(simple);
    if (answer || answer.error().code != redlatch::Errc::wrong_type) return answer;
    redlatch::Lock<redlatch::Reentrant> reentrant{client, name};
    auto other = ask(reentrant);
    if (!other && other.error().code == redlatch::Errc::wrong_type) {
        redlatch::Lock<redlatch::Shared> shared{client, name};
        other = ask(shared);
    }
    const bool neither = !other && other.error().code == redlatch::Errc::wrong_type;
    return neither ? answer : other;
}

/// Bytes as text for a terminal: all but printable ASCII as `\xNN`.
std::string printable(std::string_view bytes);

}  // namespace tool
