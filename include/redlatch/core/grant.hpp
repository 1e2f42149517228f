#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/parse_number.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// A try that its sender has given up, whose answer came all the same.
struct AbandonedTry {
    TimePoint sent;
    std::uint64_t number;  ///< among the tries of its token
};

/// What the server tells a waiter that it has given the lock to.
struct Grant {
    std::chrono::milliseconds ttl;   ///< how long the server keeps the lock for it
    std::chrono::microseconds time;  ///< the server's clock when it gave the lock
    std::string server;              ///< the server's run id, `-` if unknown
    char key_type;  ///< `s` for a string, `h` for a hash, `z` for a sorted set; `-` in a notice
    std::uint64_t fence = 0;  ///< the fencing token; 0 for a lock without
    std::string token;
    std::string key;
    std::string kind{};       ///< of a claim in a sorted set: `shared` or `permits`
    std::int64_t weight = 0;  ///< likewise: how much it takes

    /// Where it is no message but the late answer to a try: to which one. Then it has no server and no time.
    std::optional<AbandonedTry> answers{};

    /// The waiter has got nothing yet: the lock's end has changed, and it should ask for that.
    bool is_notice() const noexcept { return key_type == '-'; }
};

/// The server keeps no lock for longer: the longest lease with the longest delay behind it. A message
/// that says more was not sent by a script of ours.
inline constexpr std::chrono::milliseconds longest_grant = 2 * Lease::max().duration();

/// Takes a grant's message apart, `ttl time server key_type fence length token key`, of which the last two
/// are any bytes, without a space between them. A claim has `kind:weight` in the place of the key type.
/// Nothing for a text that is no grant.
inline std::optional<Grant> parse_grant(std::string_view message) {
    const auto next_word = [&message] {
        const std::size_t space = std::min(message.find(' '), message.size());
        const std::string_view word = message.substr(0, space);
        message.remove_prefix(std::min(space + 1, message.size()));
        return word;
    };
    const auto number_in = [](std::string_view word) -> std::optional<std::int64_t> {
        const auto number = whole_number<std::int64_t>(word);
        return number && *number >= 0 ? number : std::nullopt;
    };
    const auto next_number = [&] { return number_in(next_word()); };
    const auto ttl = next_number();
    const auto time = next_number();
    const std::string_view server = next_word();
    const std::string_view key_type = next_word();
    const std::size_t colon = std::min(key_type.find(':'), key_type.size());
    const std::string_view kind = key_type.substr(0, colon);
    const auto weight = number_in(key_type.substr(std::min(colon + 1, key_type.size())));
    const bool is_claim = (kind == "shared" || kind == "permits") && weight && *weight > 0;
    const auto fence = next_number();
    const auto length = next_number();
    if (!ttl || *ttl > longest_grant.count()) return std::nullopt;
    const bool known = is_claim || key_type == "s" || key_type == "h" || key_type == "-";
    if (!time || !known || !fence || !length) return std::nullopt;
    const auto token_size = static_cast<std::size_t>(*length);
    if (token_size == 0 || token_size >= message.size()) return std::nullopt;
    return Grant{.ttl = std::chrono::milliseconds{*ttl},
                 .time = std::chrono::microseconds{*time},
                 .server = std::string{server},
                 .key_type = is_claim ? 'z' : key_type.front(),
                 .fence = static_cast<std::uint64_t>(*fence),
                 .token = std::string{message.substr(0, token_size)},
                 .key = std::string{message.substr(token_size)},
                 .kind = std::string{is_claim ? kind : ""},
                 .weight = is_claim ? *weight : 0};
}

/// One moment on two clocks: what the server's showed when it answered, and ours just before the
/// question was sent. With it goes what was asked for and who answered.
struct ClockSample {
    TimePoint sent;
    std::chrono::microseconds time;             ///< the server's clock; zero if unknown
    std::chrono::milliseconds ttl;              ///< what the token wants to be given
    std::shared_ptr<const std::string> server;  ///< the run id; null if unknown
};

inline constexpr std::chrono::seconds oldest_sample{60};

/// A moment on our clock that is not after the one at which the server gave the lock, told by a
/// message that arrived at `arrived`: from there the validity counts. The server's clock is trusted
/// with the time between its last answer and the grant only, less `drift_factor`.
///
/// Empty where one more command has to confirm the message:
/// - It is about another lease than the one asked for last.
/// - It comes from another server or a restarted one.
/// - It is older than the last answer, which said "not yours".
/// - That answer told no time, or is too long ago.
inline std::optional<TimePoint> granted_at(const ClockSample& sample, const Grant& grant,
                                           TimePoint arrived, double drift_factor) noexcept {
    if (sample.server == nullptr || *sample.server != grant.server) return std::nullopt;
    if (sample.ttl != grant.ttl || grant.time <= sample.time) return std::nullopt;
    if (sample.time <= std::chrono::microseconds::zero()) return std::nullopt;
    if (saturating_sub(arrived, sample.sent) > oldest_sample) return std::nullopt;
    const std::chrono::duration<double, std::micro> certain =
        std::chrono::duration<double, std::micro>{grant.time - sample.time} * (1 - drift_factor);
    return std::min(saturating_add(sample.sent, saturating_cast<Clock::duration>(certain)),
                    arrived);
}

}  // namespace redlatch::inline v0::detail
