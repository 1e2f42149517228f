#include <redlatch/core/grant.hpp>
#include <redlatch/core/random.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using namespace std::string_literals;
using detail::ClockSample;
using detail::Grant;
using detail::granted_at;
using detail::longest_grant;
using detail::parse_grant;
using detail::TimePoint;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::string_view run_id = "6d6cb1f0e3a4b5c6d7e8f90123456789abcdef01";

/// As the Lua writes it: string.format('%s %.0f %s %s %.0f %d ', …) .. token .. lock.
std::string message(const Grant& grant) {
    return std::to_string(grant.ttl.count()) + ' ' + std::to_string(grant.time.count()) + ' ' +
           grant.server + ' ' + grant.key_type + ' ' + std::to_string(grant.fence) + ' ' +
           std::to_string(grant.token.size()) + ' ' + grant.token + grant.key;
}

Grant grant(std::string token = "token", std::string key = "key") {
    return {.ttl = 30s,
            .time = 1'700'000'000'000'000us,
            .server = std::string{run_id},
            .key_type = 's',
            .fence = 1'700'000'000'000'001,
            .token = std::move(token),
            .key = std::move(key)};
}

void expect_round_trip(const Grant& sent) {
    const auto got = parse_grant(message(sent));
    ASSERT_TRUE(got) << message(sent);
    EXPECT_EQ(got->ttl, sent.ttl);
    EXPECT_EQ(got->time, sent.time);
    EXPECT_EQ(got->server, sent.server);
    EXPECT_EQ(got->key_type, sent.key_type);
    EXPECT_EQ(got->fence, sent.fence);
    EXPECT_EQ(got->token, sent.token);
    EXPECT_EQ(got->key, sent.key);
}

TEST(ParseGrant, understands_what_the_script_writes) {
    expect_round_trip(grant());
    const auto got =
        parse_grant("30000 1700000000000000 " + std::string{run_id} + " h 17 5 tokenkey");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->ttl, 30s);
    EXPECT_EQ(got->time, 1'700'000'000'000'000us);
    EXPECT_EQ(got->server, run_id);
    EXPECT_EQ(got->key_type, 'h');
    EXPECT_EQ(got->fence, 17U);
    EXPECT_EQ(got->token, "token");
    EXPECT_EQ(got->key, "key");
}

TEST(ParseGrant, a_claim_tells_its_kind_and_its_weight) {
    const auto reader = parse_grant("30000 17 - shared:1 5 5 tokenkey");
    ASSERT_TRUE(reader);
    EXPECT_EQ(reader->key_type, 'z');
    EXPECT_EQ(reader->kind, "shared");
    EXPECT_EQ(reader->weight, 1);
    EXPECT_EQ(reader->fence, 5U);
    EXPECT_EQ(reader->token, "token");
    const auto some = parse_grant("30000 17 - permits:1000000000 0 5 tokenkey");
    ASSERT_TRUE(some);
    EXPECT_EQ(some->kind, "permits");
    EXPECT_EQ(some->weight, 1'000'000'000);
    const auto mutex = parse_grant("30000 17 - s 0 5 tokenkey");
    EXPECT_EQ(mutex->weight, 0);
    EXPECT_EQ(mutex->kind, "");
}

TEST(ParseGrant, a_claim_without_a_kind_or_a_weight_is_nothing) {
    for (const std::string word : {"z", "shared", "permits", "shared:", "shared:0", "shared:-1",
                                   "shared:x", ":1", "others:1", "s:1", "shared:1:1"}) {
        EXPECT_FALSE(parse_grant("30000 17 - " + word + " 0 5 tokenkey")) << word;
    }
}

TEST(ParseGrant, token_and_key_are_any_bytes) {
    const std::vector<std::string> texts{"a",         "a b",      " ",   "  s 3 ",    "\r\n"s,
                                         "\0"s,       "a\0b"s,    "\n",  "{a}",       "12 34 - s",
                                         "\xff\x80"s, "a\r\n\0"s, ":1:", "5 tokenkey"};
    for (const std::string& token : texts) {
        for (const std::string& key : texts) expect_round_trip(grant(token, key));
    }
    expect_round_trip(grant(std::string(100'000, ' '), std::string(100'000, '\0')));
}

TEST(ParseGrant, server_may_be_unknown) {
    Grant unknown = grant();
    unknown.server = "-";
    expect_round_trip(unknown);
}

TEST(ParseGrant, understands_a_notice_that_grants_nothing) {
    const auto got = parse_grant("0 0 - - 0 5 tokenkey");
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->is_notice());
    EXPECT_EQ(got->token, "token");
    EXPECT_EQ(got->key, "key");
    EXPECT_FALSE(grant().is_notice());
}

TEST(ParseGrant, numbers_may_be_as_large_as_they_can) {
    Grant extreme = grant();
    extreme.ttl = longest_grant;
    extreme.time = microseconds::max();
    extreme.fence = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    expect_round_trip(extreme);
    extreme.ttl = 0ms;
    extreme.time = 0us;
    extreme.fence = 0;
    expect_round_trip(extreme);
}

TEST(ParseGrant, garbage_is_nothing) {
    const std::vector<std::string> garbage{
        "",
        " ",
        "          ",
        "\0"s,
        "\r\n",
        "hello",
        "hello world and everybody who listens here",
        "30000",
        "30000 17 - s",
        "30000 17 - s 0",
        "30000 17 - s 0 5",
        "30000 17 - s 0 5 ",
        // numbers that are none
        "x 17 - s 0 5 tokenkey",
        " 17 - s 0 5 tokenkey",
        "30000x 17 - s 0 5 tokenkey",
        "30000.0 17 - s 0 5 tokenkey",
        "3e4 17 - s 0 5 tokenkey",
        "+30000 17 - s 0 5 tokenkey",
        "0x10 17 - s 0 5 tokenkey",
        "-1 17 - s 0 5 tokenkey",
        "30000 x - s 0 5 tokenkey",
        "30000 1.7e+15 - s 0 5 tokenkey",
        "30000 -17 - s 0 5 tokenkey",
        "30000  17 - s 0 5 tokenkey",
        "9223372036854775808 17 - s 0 5 tokenkey",
        "30000 99999999999999999999 - s 0 5 tokenkey",
        "30000 nan - s 0 5 tokenkey",
        // a lease that nobody asks for
        "4147200001 17 - s 0 5 tokenkey",
        "9223372036854775807 17 - s 0 5 tokenkey",
        "30000 inf - s 0 5 tokenkey",
        "30000\0 17 - s 0 5 tokenkey"s,
        // no such key type
        "30000 17 - x 0 5 tokenkey",
        "30000 17 - S 0 5 tokenkey",
        "30000 17 - sh 0 5 tokenkey",
        "30000 17 -  0 5 tokenkey",
        "30000 17 s 0 5 tokenkey",
        // a fencing token that is none
        "30000 17 - s x 5 tokenkey",
        "30000 17 - s -1 5 tokenkey",
        "30000 17 - s  5 tokenkey",
        "30000 17 - s 1.7e+15 5 tokenkey",
        "30000 17 - s 9223372036854775808 5 tokenkey",
        // a length that does not fit
        "30000 17 - s 0 -1 tokenkey",
        "30000 17 - s 0 0 tokenkey",
        "30000 17 - s 0 x tokenkey",
        "30000 17 - s 0  tokenkey",
        "30000 17 - s 0 8 tokenkey",
        "30000 17 - s 0 9 tokenkey",
        "30000 17 - s 0 9223372036854775807 tokenkey",
        "30000 17 - s 0 18446744073709551615 tokenkey",
        "30000 17 - s 0 18446744073709551617 tokenkey",
        // other separators
        "30000\t17\t-\ts\t0\t5\ttokenkey",
        "30000,17,-,s,0,5,tokenkey",
    };
    for (const std::string& text : garbage) EXPECT_FALSE(parse_grant(text)) << '"' << text << '"';
}

TEST(ParseGrant, cut_short_anywhere_before_the_key_is_nothing) {
    const std::string whole = message(grant("token", "k"));
    for (std::size_t size = 0; size < whole.size(); ++size) {
        EXPECT_FALSE(parse_grant(std::string_view{whole}.substr(0, size))) << size;
    }
    EXPECT_TRUE(parse_grant(whole));
}

TEST(ParseGrant, no_message_is_read_past_its_end) {
    // Its end is the end of the allocation, so that a sanitizer sees one byte too many.
    detail::Random random{1};
    constexpr std::string_view alphabet{"0123456789 sh-\0x", 16};
    for (int i = 0; i < 100'000; ++i) {
        const auto size = static_cast<std::size_t>(random.between(0, 24));
        const auto bytes = std::make_unique<char[]>(size);
        for (std::size_t at = 0; at < size; ++at) {
            bytes[at] = alphabet[static_cast<std::size_t>(random.between(0, 16))];
        }
        const auto got = parse_grant({bytes.get(), size});
        if (!got) continue;
        EXPECT_GE(got->ttl, 0ms);
        EXPECT_GE(got->time, 0us);
        EXPECT_FALSE(got->token.empty());
        EXPECT_FALSE(got->key.empty());
        EXPECT_LT(got->token.size() + got->key.size(), size);
    }
}

constexpr TimePoint sent{1000s};
constexpr TimePoint late = sent + 50s;

ClockSample sample() {
    return {.sent = sent,
            .time = 1'700'000'000'000'000us,
            .ttl = 30s,
            .server = std::make_shared<const std::string>(run_id)};
}

/// Given so long after the sample's answer.
Grant given_after(microseconds elapsed) {
    Grant given = grant();
    given.time += elapsed;
    return given;
}

TEST(GrantedAt, counts_the_servers_time_from_the_question) {
    EXPECT_EQ(granted_at(sample(), given_after(1s), late, 0), sent + 1s);
    EXPECT_EQ(granted_at(sample(), given_after(1us), late, 0), sent + 1us);
    EXPECT_EQ(granted_at(sample(), given_after(49s), late, 0), sent + 49s);
}

TEST(GrantedAt, is_earlier_by_the_drift) {
    EXPECT_EQ(granted_at(sample(), given_after(10s), late, 0.01), sent + 9900ms);
    EXPECT_EQ(granted_at(sample(), given_after(10s), late, 0.5), sent + 5s);
    EXPECT_EQ(granted_at(sample(), given_after(10s), late, 1), sent);
}

TEST(GrantedAt, is_never_later_than_the_arrival) {
    const TimePoint arrived = sent + 2s;
    EXPECT_EQ(granted_at(sample(), given_after(2s), arrived, 0), arrived);
    EXPECT_EQ(granted_at(sample(), given_after(2s + 1us), arrived, 0), arrived);
    EXPECT_EQ(granted_at(sample(), given_after(24h), arrived, 0), arrived)
        << "the server's clock was set forward";
    EXPECT_EQ(granted_at(sample(), given_after(24h), sent, 0), sent);
}

TEST(GrantedAt, another_server_or_an_unknown_one_is_not_believed) {
    Grant other = given_after(1s);
    other.server.back() = '2';
    EXPECT_EQ(granted_at(sample(), other, late, 0), std::nullopt);
    other.server = "-";
    EXPECT_EQ(granted_at(sample(), other, late, 0), std::nullopt);
    other.server = "";
    EXPECT_EQ(granted_at(sample(), other, late, 0), std::nullopt);

    ClockSample unknown = sample();
    unknown.server = nullptr;
    for (const std::string& server : {std::string{run_id}, "-"s, ""s}) {
        other.server = server;
        EXPECT_EQ(granted_at(unknown, other, late, 0), std::nullopt) << server;
    }
}

TEST(GrantedAt, another_lease_is_not_believed) {
    for (const milliseconds ttl : {29'999ms, 30'001ms, 0ms, milliseconds::max()}) {
        Grant other = given_after(1s);
        other.ttl = ttl;
        EXPECT_EQ(granted_at(sample(), other, late, 0), std::nullopt) << ttl.count();
    }
}

TEST(GrantedAt, one_not_younger_than_the_last_answer_is_not_believed) {
    for (const microseconds elapsed : {0us, -1us, microseconds{-1h}}) {
        EXPECT_EQ(granted_at(sample(), given_after(elapsed), late, 0), std::nullopt)
            << elapsed.count();
    }
}

TEST(GrantedAt, an_answer_too_long_ago_is_no_measure) {
    const Grant given = given_after(1s);
    EXPECT_EQ(granted_at(sample(), given, sent + 60s, 0), sent + 1s);
    EXPECT_EQ(granted_at(sample(), given, sent + 60s + 1ns, 0), std::nullopt);
    EXPECT_EQ(granted_at(sample(), given, sent + 24h, 0), std::nullopt);
    EXPECT_EQ(granted_at(sample(), given, TimePoint::max(), 0), std::nullopt);
}

TEST(GrantedAt, an_answer_without_a_time_is_no_measure) {
    ClockSample timeless = sample();
    timeless.time = 0us;
    EXPECT_EQ(granted_at(timeless, given_after(1s), late, 0), std::nullopt);
    EXPECT_EQ(granted_at(timeless, given_after(1s), late, 1), std::nullopt);
}

TEST(GrantedAt, does_not_overflow_at_extremes) {
    ClockSample oldest = sample();
    oldest.time = 1us;
    for (const TimePoint at : {TimePoint::min(), TimePoint{}, TimePoint{-1ns}, sent,
                               TimePoint::max() - 1ns, TimePoint::max()}) {
        oldest.sent = at;
        for (const double factor : {0.0, 0.01, 0.5, 1.0}) {
            for (const microseconds time : {2us, microseconds{1h}, microseconds::max()}) {
                Grant given = grant();
                given.time = time;
                for (const TimePoint arrived :
                     {at, detail::saturating_add(at, 1s), TimePoint{}, TimePoint::max()}) {
                    const auto since = granted_at(oldest, given, arrived, factor);
                    if (!since) continue;
                    EXPECT_LE(*since, arrived);
                    EXPECT_GE(*since, std::min(at, arrived));
                }
            }
        }
    }
    ClockSample youngest = sample();
    youngest.time = microseconds::max();
    EXPECT_EQ(granted_at(youngest, grant(), late, 0), std::nullopt);
}

}  // namespace
