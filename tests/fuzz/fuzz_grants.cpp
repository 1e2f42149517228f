// Any bytes as a message that the lock is ours: it is taken apart, or is none.

#include <redlatch/core/grant.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

namespace {

using namespace std::chrono_literals;
using namespace redlatch::detail;

void require(bool condition) {
    if (!condition) std::abort();
}

/// Believed, it counts from a moment between the last answer and now.
void believe(const Grant& grant, std::chrono::microseconds server_time) {
    const TimePoint now{1h};
    const ClockSample sample{.sent = now - 1s,
                             .time = server_time,
                             .ttl = grant.ttl,
                             .server = std::make_shared<const std::string>(grant.server)};
    const auto since = granted_at(sample, grant, now, 0.01);
    if (since) require(sample.sent <= *since && *since <= now);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view text{reinterpret_cast<const char*>(data), size};
    const auto grant = parse_grant(text);
    if (!grant) return 0;
    require(!grant->token.empty() && !grant->key.empty());
    require(text.ends_with(grant->token + grant->key));
    require(grant->ttl >= 0ms && grant->ttl <= longest_grant && grant->time >= 0us);
    require((grant->key_type == 'z') == (grant->weight > 0) &&
            grant->kind.empty() == (grant->weight == 0));
    for (const std::chrono::microseconds time : {0us, 1us, grant->time / 2}) believe(*grant, time);
    return 0;
}
