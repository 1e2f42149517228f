#include <redlatch/client.hpp>
#include <redlatch/lock.hpp>
#include <redlatch/policy/fenced.hpp>
#include <redlatch/policy/reentrant.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/steps/check_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::LockSpec;
using std::chrono::milliseconds;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

/// Refused, with a message that has `part` in it.
template <class T>
testing::AssertionResult refused(const Result<T>& result, std::string_view part) {
    if (result) return testing::AssertionFailure() << "accepted";
    if (result.error().code != Errc::invalid_argument) {
        return testing::AssertionFailure() << "another error: " << result.error().describe();
    }
    if (result.error().message.find(part) == std::string::npos) {
        return testing::AssertionFailure()
               << "\"" << result.error().message << "\" does not name \"" << part << "\"";
    }
    return testing::AssertionSuccess();
}

template <class T>
testing::AssertionResult accepted(const Result<T>& result) {
    if (result) return testing::AssertionSuccess();
    return testing::AssertionFailure() << result.error().describe();
}

ClientOptions client_options() {
    return {.uris = {"redis://h"}};
}

TEST(ClientOptions, defaults_are_accepted) {
    const auto setup = detail::check_client(client_options());
    ASSERT_TRUE(accepted(setup));
    EXPECT_EQ(setup->uris.front().host, "h");
    EXPECT_EQ(setup->options.connect_timeout, 1s);
    EXPECT_EQ(setup->options.command_timeout, 1s);
    EXPECT_EQ(setup->options.max_connections, 64U);
    EXPECT_EQ(setup->options.observer, nullptr);
}

TEST(ClientOptions, want_a_uri) {
    EXPECT_TRUE(refused(detail::check_client(ClientOptions{}), "URI"));
}

TEST(ClientOptions, may_name_several_masters) {
    const auto setup = detail::check_client({.uris = {"redis://a", "redis://b", "unix:///c"}});
    ASSERT_TRUE(accepted(setup));
    EXPECT_EQ(setup->masters(), 3U);
    EXPECT_EQ(setup->options.node_timeout, 100ms);
    EXPECT_EQ(setup->options.longest_lease, 30s);
}

TEST(ClientOptions, several_masters_are_servers_of_their_own) {
    const auto names = [](Uri first, Uri second) {
        return detail::check_client({.uris = {std::move(first), std::move(second)}});
    };
    EXPECT_TRUE(refused(names("redis://a", "redis://a:6379/2"), "a:6379 is listed twice"));
    EXPECT_TRUE(refused(names("redis://a.example", "redis://A.Example"), "listed twice"));
    EXPECT_TRUE(refused(names("unix:///s", "unix:///s"), "listed twice"));
    EXPECT_TRUE(refused(names("redis://a", "redis+sentinel://b/s"), "stands alone"));
    EXPECT_TRUE(refused(names("redis+cluster://a", "redis://b"), "stands alone"));
}

TEST(ClientOptions, terms_of_several_masters_are_checked_for_one_too) {
    for (const auto& masters : {std::vector<Uri>{"redis://a", "redis://b"}, {"redis://a"}}) {
        ClientOptions options;
        options.uris = masters;
        options.node_timeout = 0ms;
        EXPECT_TRUE(refused(detail::check_client(options), "node_timeout"));
        options.node_timeout = 1ms;
        options.longest_lease = -1ms;
        EXPECT_TRUE(refused(detail::check_client(options), "longest_lease"));
        options.longest_lease = 0ms;
        EXPECT_TRUE(accepted(detail::check_client(options)));
    }
}

TEST(ClientOptions, a_factory_stands_in_for_the_uri) {
    const ConnectionFactory factory{.connect = [](milliseconds) { return nullptr; }};
    EXPECT_TRUE(accepted(detail::check_client({.factories = {factory}})));
    EXPECT_TRUE(refused(detail::check_client({.factories = {ConnectionFactory{}}}), "empty"));
    EXPECT_TRUE(accepted(detail::check_client({.uris = {"redis://a"}, .factories = {factory}})));
    EXPECT_TRUE(accepted(detail::check_client({.factories = {factory, factory}})));
    EXPECT_TRUE(
        refused(detail::check_client({.uris = {"redis://a"}, .factories = {ConnectionFactory{}}}),
                "empty"));
}

TEST(ClientOptions, tls_without_its_header_says_what_is_missing) {
    const auto setup = detail::check_client({.uris = {"rediss://h"}});
    EXPECT_TRUE(refused(setup, "<redlatch/tls.hpp>"));
    EXPECT_TRUE(refused(setup, "redlatch::tls"));
}

TEST(ClientOptions, bad_uri_is_refused) {
    EXPECT_TRUE(refused(detail::check_client({.uris = {"redis://h:x"}}), "port"));
    EXPECT_TRUE(refused(detail::check_client({.uris = {"redis://a", "redis://b:x", "redis://c"}}),
                        "(number 2 of the list)"));
}

TEST(ClientOptions, uri_overrides_timeouts) {
    auto options = client_options();
    options.uris = {"redis://h?connect_timeout=7&command_timeout=8"};
    const auto setup = detail::check_client(options);
    ASSERT_TRUE(accepted(setup));
    EXPECT_EQ(setup->options.connect_timeout, 7ms);
    EXPECT_EQ(setup->options.command_timeout, 8ms);
}

TEST(ClientOptions, timeouts_must_be_positive) {
    for (const milliseconds bad : {0ms, -1ms, milliseconds::min()}) {
        auto connect = client_options();
        connect.connect_timeout = bad;
        EXPECT_TRUE(refused(detail::check_client(connect), "connect_timeout"));
        auto command = client_options();
        command.command_timeout = bad;
        EXPECT_TRUE(refused(detail::check_client(command), "command_timeout"));
    }
}

TEST(ClientOptions, short_and_long_timeouts_are_accepted) {
    for (const milliseconds good : {1ms, milliseconds{24h}}) {
        auto options = client_options();
        options.connect_timeout = good;
        options.command_timeout = good;
        EXPECT_TRUE(accepted(detail::check_client(options)));
    }
}

/// Refused or cut down: either way nobody adds up what the clock cannot count.
TEST(ClientOptions, timeouts_never_exceed_what_the_clock_can_count) {
    auto options = client_options();
    options.connect_timeout = milliseconds::max();
    options.command_timeout = milliseconds::max();
    const auto setup = detail::check_client(options);
    if (!setup) return;
    const auto most = std::chrono::floor<milliseconds>(Clock::duration::max());
    EXPECT_LE(setup->options.connect_timeout, most);
    EXPECT_LE(setup->options.command_timeout, most);
}

TEST(ClientOptions, at_least_one_connection) {
    auto options = client_options();
    options.max_connections = 0;
    EXPECT_TRUE(refused(detail::check_client(options), "max_connections"));
    options.max_connections = 1;
    EXPECT_TRUE(accepted(detail::check_client(options)));
    options.max_connections = std::numeric_limits<std::size_t>::max();
    EXPECT_TRUE(accepted(detail::check_client(options)));
}

TEST(ClientOptions, connections_are_pooled_or_shared) {
    auto options = client_options();
    options.connections = Connections::shared;
    EXPECT_TRUE(accepted(detail::check_client(options)));
    options.connections = static_cast<Connections>(9);
    EXPECT_TRUE(refused(detail::check_client(options), "connections"));
}

TEST(ClientOptions, busy_wait_is_short) {
    auto options = client_options();
    for (const std::chrono::microseconds good : {0us, 1us, 10'000us}) {
        options.busy_wait = good;
        EXPECT_TRUE(accepted(detail::check_client(options))) << good.count();
    }
    for (const std::chrono::microseconds bad :
         {-1us, 10'001us, std::chrono::microseconds::max(), std::chrono::microseconds::min()}) {
        options.busy_wait = bad;
        EXPECT_TRUE(refused(detail::check_client(options), "busy_wait")) << bad.count();
    }
}

TEST(ClientOptions, key_space_is_a_prefix_without_braces) {
    auto options = client_options();
    EXPECT_EQ(options.key_space, "redlatch:");
    for (const std::string& fine : {std::string{"s"}, std::string{"svc:locks:"},
                                    std::string{"\0 \n", 3}, std::string(128, 'x')}) {
        options.key_space = fine;
        EXPECT_TRUE(accepted(detail::check_client(options)));
    }
    for (const std::string& bad : {std::string{}, std::string(129, 'x')}) {
        options.key_space = bad;
        EXPECT_TRUE(refused(detail::check_client(options), "key_space"));
    }
    for (const char* const bad : {"{", "a}", "{svc}:"}) {
        options.key_space = bad;
        EXPECT_TRUE(refused(detail::check_client(options), "brace"));
    }
    for (const char* const bad : {"redlatch:x", "redlatch:queue:"}) {
        options.key_space = bad;
        EXPECT_TRUE(refused(detail::check_client(options), "redlatch:"));
    }
}

TEST(ClientOptions, client_name_is_printable_without_space) {
    for (const std::string& good :
         {std::string{}, std::string{"a"}, std::string{"web-1:4711!~"}, std::string(64, 'x')}) {
        auto options = client_options();
        options.client_name = good;
        EXPECT_TRUE(accepted(detail::check_client(options))) << good;
    }
    for (const std::string& bad :
         {std::string{" "}, std::string{"a b"}, std::string{"a\nb"}, std::string{"a\0b", 3},
          std::string{"\x7f"}, std::string{"caf\xc3\xa9"}, std::string(65, 'x')}) {
        auto options = client_options();
        options.client_name = bad;
        EXPECT_TRUE(refused(detail::check_client(options), "client_name")) << bad;
    }
}

TEST(ClientOptions, client_throws_what_check_finds) {
    try {
        const Client client{"redis://h:x"};
        FAIL();
    } catch (const LockError& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
    }
    EXPECT_THROW(Client{ClientOptions{}}, LockError);
}

template <class Policy = Simple>
Result<LockSpec> check(const LockOptions& options, std::string name = "name") {
    return detail::check_spec(
        LockSpec{.client = nullptr,
                 .keys = std::make_shared<const detail::LockKeys>(std::move(name)),
                 .traits = detail::traits_of<Policy>(),
                 .options = options});
}

TEST(LockName, any_bytes_are_accepted) {
    for (const std::string& name :
         {std::string{"a"}, std::string(1024, 'x'), std::string{"\0", 1}, std::string{" "},
          std::string{"a\r\nb"}, std::string{"{tag}x"}, std::string{"}{"}, std::string{"\xff\xfe"},
          std::string{"redlatch"}, std::string{"Redlatch:x"}, std::string{"x redlatch:"}}) {
        const auto spec = check({}, name);
        ASSERT_TRUE(accepted(spec)) << name;
        EXPECT_EQ(spec->key(), name);
    }
}

TEST(LockName, empty_or_too_long_or_reserved_is_refused) {
    EXPECT_TRUE(refused(check({}, ""), "empty"));
    EXPECT_TRUE(refused(check({}, std::string(1025, 'x')), "1 KiB"));
    EXPECT_TRUE(refused(check({}, "redlatch:"), "redlatch:"));
    EXPECT_TRUE(refused(check({}, "redlatch:queue:x"), "redlatch:"));
    EXPECT_EQ(check({}, "redlatch:queue:x").error().key, "redlatch:queue:x");
    EXPECT_EQ(check({}, std::string(1025, 'x')).error().key.size(), 100U) << "shortened";
}

TEST(LockName, in_the_key_space_of_its_client_is_refused) {
    EXPECT_TRUE(
        refused(detail::check_name("svc:locks:x", "svc:locks:"), "key_space, 'svc:locks:',"));
    EXPECT_TRUE(refused(detail::check_name("redlatch:x", "svc:locks:"), "redlatch:"));
    EXPECT_TRUE(refused(detail::check_name("a\nb:x", "a\nb:"), R"('a\x0ab:')"));
    EXPECT_TRUE(accepted(detail::check_name("svc:x", "svc:locks:")));
    auto options = client_options();
    options.key_space = "svc:";
    Client client{options};
    EXPECT_THROW((Lock<>{client, "svc:x"}), LockError);
}

TEST(LockOptions, defaults_are_accepted) {
    const auto spec = check({});
    ASSERT_TRUE(accepted(spec));
    EXPECT_EQ(spec->options.lease, Lease{30s});
    EXPECT_EQ(spec->options.backoff.min, 10ms);
    EXPECT_EQ(spec->options.backoff.max, 100ms);
    EXPECT_EQ(spec->options.max_hold, milliseconds::max());
    EXPECT_EQ(spec->options.lock_delay, 0ms);
    EXPECT_EQ(spec->options.replicas, Replicas::none());
    EXPECT_EQ(spec->options.drift.factor, 0.01);
    EXPECT_EQ(spec->options.drift.floor, 2ms);
    EXPECT_TRUE(accepted(check<Reentrant>({})));
    EXPECT_TRUE(accepted(check<Watchdog<Reentrant>>({})));
}

TEST(LockOptions, lease_has_limits) {
    EXPECT_TRUE(accepted(check({.lease = 10ms})));
    EXPECT_TRUE(accepted(check({.lease = std::chrono::days{24}})));
    for (const Lease bad :
         {Lease{9ms}, Lease{9'999us}, Lease{0ms}, Lease{-1s}, Lease{milliseconds::min()},
          Lease{std::chrono::days{24} + 1ms}, Lease{milliseconds::max()},
          Lease{std::chrono::hours::max()}, Lease{std::chrono::duration<double>{nan}}}) {
        EXPECT_TRUE(refused(check({.lease = bad}), "lease")) << bad.duration().count();
    }
}

TEST(LockOptions, lease_must_outlast_its_drift) {
    EXPECT_TRUE(refused(check({.lease = 10ms, .drift = {.factor = 0, .floor = 10ms}}), "drift"));
    EXPECT_TRUE(accepted(check({.lease = 11ms, .drift = {.factor = 0, .floor = 10ms}})));
    EXPECT_TRUE(refused(check({.lease = 1s, .drift = {.factor = 0.999, .floor = 2ms}}), "drift"));
}

TEST(LockOptions, backoff_must_be_a_range) {
    EXPECT_TRUE(accepted(check({.backoff = {1ms, 2ms}})));
    EXPECT_TRUE(accepted(check({.backoff = {1ms, std::chrono::days{24}}})));
    for (const Backoff bad :
         {Backoff{0ms, 10ms}, Backoff{-1ms, 10ms}, Backoff{10ms, 10ms}, Backoff{10ms, 9ms},
          Backoff{0ms, 0ms}, Backoff{1ms, milliseconds::max()},
          Backoff{milliseconds::min(), milliseconds::max()},
          Backoff{1ms, std::chrono::days{24} + 1ms}}) {
        EXPECT_TRUE(refused(check({.backoff = bad}), "backoff"));
    }
}

TEST(LockOptions, drift_must_be_a_share_and_a_time) {
    EXPECT_TRUE(accepted(check({.drift = {.factor = 0, .floor = 0ms}})));
    EXPECT_TRUE(accepted(check({.drift = {.factor = 0.99, .floor = 0ms}})));
    for (const double bad : {-0.01, 1.0, 2.0, nan, infinity, -infinity}) {
        EXPECT_TRUE(refused(check({.drift = {.factor = bad, .floor = 2ms}}), "drift")) << bad;
    }
    for (const milliseconds bad : {-1ms, milliseconds::min(), milliseconds::max()}) {
        EXPECT_TRUE(refused(check({.drift = {.factor = 0.01, .floor = bad}}), "drift"));
    }
}

TEST(LockOptions, replicas_have_a_limit) {
    for (const Replicas replicas :
         {Replicas::none(), Replicas{1}, Replicas::most(), Replicas::all()}) {
        EXPECT_TRUE(accepted(check({.replicas = replicas})));
    }
    for (const Replicas replicas : {Replicas{1025}, Replicas{-1}, Replicas{std::int64_t{1} << 32},
                                    Replicas{std::numeric_limits<unsigned>::max()}}) {
        EXPECT_TRUE(refused(check({.replicas = replicas}), "replicas"));
    }
}

TEST(LockOptions, lock_delay_has_limits) {
    EXPECT_TRUE(accepted(check({.lock_delay = 1ms})));
    EXPECT_TRUE(accepted(check({.lock_delay = std::chrono::days{24}})));
    for (const milliseconds bad :
         {-1ms, milliseconds::min(), milliseconds{std::chrono::days{24}} + 1ms,
          milliseconds::max()}) {
        EXPECT_TRUE(refused(check({.lock_delay = bad}), "lock_delay"));
    }
}

TEST(LockOptions, min_hold_has_limits) {
    EXPECT_TRUE(accepted(check({.min_hold = 1ms})));
    EXPECT_TRUE(accepted(check({.lease = 10s, .min_hold = std::chrono::years{10}})));
    for (const milliseconds bad :
         {-1ms, milliseconds{std::chrono::days{3653}}, milliseconds::max(), milliseconds::min()}) {
        EXPECT_TRUE(refused(check({.min_hold = bad}), "min_hold")) << bad.count();
    }
}

TEST(LockOptions, min_hold_of_a_policy_without_its_script_is_refused) {
    struct Old : Simple {
        static const LockScripts& scripts() {
            static const LockScripts old = [] {
                LockScripts all = Simple::scripts();
                all.tombstone = Script{""};
                return all;
            }();
            return old;
        }
    };
    EXPECT_TRUE(refused(check<Old>({.min_hold = 1ms}), "tombstone"));
    EXPECT_TRUE(accepted(check<Old>({})));
}

struct Nesting : Simple {
    static constexpr bool reentrant = true;
};

TEST(LockOptions, policy_whose_scripts_cannot_what_it_says_is_refused) {
    EXPECT_TRUE(refused(check<Nesting>({}), "nest"));
    struct Undowngraded : Shared {
        static const LockScripts& scripts() {
            static const LockScripts old = [] {
                LockScripts all = Shared::scripts();
                all.downgrade = Script{""};
                return all;
            }();
            return old;
        }
    };
    EXPECT_TRUE(refused(check<Undowngraded>({}), "downgrade"));
    EXPECT_TRUE(accepted(check<Reentrant>({})));
    EXPECT_TRUE(accepted(check<Shared>({})));
}

TEST(LockOptions, max_hold_is_at_least_the_shortest_lease) {
    for (const milliseconds bad : {0ms, -1ms, 9ms, milliseconds::min()}) {
        EXPECT_TRUE(refused(check<Watchdog<Simple>>({.max_hold = bad}), "10 ms")) << bad.count();
    }
    EXPECT_TRUE(accepted(check<Watchdog<Simple>>({.max_hold = 10ms})));
    EXPECT_TRUE(accepted(check<Watchdog<Simple>>({.max_hold = std::chrono::years{200}})));
}

TEST(LockOptions, max_hold_without_a_watchdog_is_refused) {
    for (const milliseconds any : {0ms, -1ms, 9ms, 10ms, milliseconds{1h}, milliseconds::min()}) {
        EXPECT_TRUE(refused(check<Simple>({.max_hold = any}), "watchdog")) << any.count();
        EXPECT_TRUE(refused(check<Reentrant>({.max_hold = any}), "watchdog")) << any.count();
        EXPECT_TRUE(refused(check<Fenced<Simple>>({.max_hold = any}), "watchdog")) << any.count();
    }
    EXPECT_TRUE(accepted(check<Simple>({.max_hold = milliseconds::max()})));
}

TEST(LockOptions, refusal_names_the_lock) {
    const auto spec = check({.lease = 1ms}, "order:pay");
    ASSERT_FALSE(spec);
    EXPECT_EQ(spec.error().key, "order:pay");
    EXPECT_EQ(spec.error().node, "");
}

TEST(LeaseOfOneCall, has_the_same_limits) {
    const auto spec = check({});
    ASSERT_TRUE(spec);
    EXPECT_TRUE(accepted(detail::check_lease(*spec, Lease{10ms})));
    EXPECT_TRUE(refused(detail::check_lease(*spec, Lease{9ms}), "lease"));
    EXPECT_TRUE(refused(detail::check_lease(*spec, Lease{std::chrono::days{25}}), "lease"));
    EXPECT_EQ(detail::check_lease(*spec, Lease{0ms}).error().key, "name");
}

TEST(LeaseOfOneCall, of_a_watchdog_is_no_longer_than_its_hold) {
    const auto spec = check<Watchdog<Simple>>({.max_hold = 2s});
    ASSERT_TRUE(spec);
    EXPECT_EQ(*detail::check_lease(*spec, Lease{30s}), Lease{2s});
    EXPECT_EQ(*detail::check_lease(*spec, Lease{1s}), Lease{1s});
}

TEST(Lock, is_refused_before_any_io) {
    Client client{"unix:///nonexistent/redis.sock"};
    EXPECT_THROW((Lock<Simple>{client, ""}), LockError);
    EXPECT_THROW((Lock<Simple>{client, "redlatch:x"}), LockError);
    EXPECT_THROW((Lock<Simple>{client, "x", {.lease = 1ms}}), LockError);
    EXPECT_NO_THROW((Lock<Simple>{client, "x"}));
}

TEST(Lock, bad_lease_of_a_call_is_refused_before_any_io) {
    Client client{"unix:///nonexistent/redis.sock"};
    Lock<Simple> lock{client, "x"};
    EXPECT_EQ(lock.acquire({.lease = 1ms}).error().code, Errc::invalid_argument);
    EXPECT_THROW(lock.lock(Lease{0ms}), LockError);
    EXPECT_THROW(static_cast<void>(lock.try_lock(1s, std::chrono::hours::max())), LockError);
}

}  // namespace
