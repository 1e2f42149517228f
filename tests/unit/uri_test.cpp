#include <redlatch/net/uri_parser.hpp>
#include <redlatch/uri.hpp>

#include <gtest/gtest.h>

#include <sys/un.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace {

using namespace redlatch;
using namespace std::chrono_literals;
using detail::Endpoint;
using detail::parse_uri;
using detail::UriParts;

Endpoint parsed(const std::string& uri) {
    auto endpoint = parse_uri(uri);
    EXPECT_TRUE(endpoint) << uri << ": " << (endpoint ? "" : endpoint.error().message);
    return endpoint ? *endpoint : Endpoint{};
}

std::string complaint(const std::string& uri) {
    const auto endpoint = parse_uri(uri);
    EXPECT_FALSE(endpoint) << uri;
    if (endpoint) return {};
    EXPECT_EQ(endpoint.error().code, Errc::invalid_argument) << uri;
    return endpoint.error().message;
}

/// Refused, with a message that has `part` in it.
testing::AssertionResult refused(const std::string& uri, std::string_view part) {
    const std::string message = complaint(uri);
    if (message.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure()
           << "\"" << message << "\" does not name \"" << part << "\" for " << uri;
}

TEST(Uri, host_alone_has_default_port_and_database) {
    const Endpoint endpoint = parsed("redis://cache.example");
    EXPECT_EQ(endpoint.transport, Endpoint::Transport::tcp);
    EXPECT_EQ(endpoint.host, "cache.example");
    EXPECT_EQ(endpoint.port, 6379);
    EXPECT_EQ(endpoint.db, 0U);
    EXPECT_EQ(endpoint.path, "");
    EXPECT_EQ(endpoint.user, std::nullopt);
    EXPECT_EQ(endpoint.password, std::nullopt);
    EXPECT_EQ(endpoint.connect_timeout, std::nullopt);
    EXPECT_EQ(endpoint.command_timeout, std::nullopt);
}

TEST(Uri, all_fields_at_once) {
    const Endpoint endpoint =
        parsed("redis://ann:pass@10.0.0.7:6380/15?connect_timeout=250&command_timeout=750");
    EXPECT_EQ(endpoint.transport, Endpoint::Transport::tcp);
    EXPECT_EQ(endpoint.user, "ann");
    EXPECT_EQ(endpoint.password, "pass");
    EXPECT_EQ(endpoint.host, "10.0.0.7");
    EXPECT_EQ(endpoint.port, 6380);
    EXPECT_EQ(endpoint.db, 15U);
    EXPECT_EQ(endpoint.connect_timeout, 250ms);
    EXPECT_EQ(endpoint.command_timeout, 750ms);
}

TEST(Uri, rediss_is_the_same_over_tls) {
    const Endpoint endpoint = parsed("rediss://ann:pass@h:6380/2?connect_timeout=7");
    EXPECT_TRUE(endpoint.tls);
    EXPECT_EQ(endpoint.transport, Endpoint::Transport::tcp);
    EXPECT_EQ(endpoint.user, "ann");
    EXPECT_EQ(endpoint.password, "pass");
    EXPECT_EQ(endpoint.name(), "h:6380");
    EXPECT_EQ(endpoint.db, 2U);
    EXPECT_EQ(endpoint.connect_timeout, 7ms);
    EXPECT_EQ(parsed("rediss://h").port, 6379);
    EXPECT_FALSE(parsed("redis://h").tls);
}

TEST(Uri, sentinels_and_the_service_that_they_know) {
    const auto uri = parse_uri(
        "redis+sentinel://ann:pass@a,[2001:db8::7]:5000,c:26380/my%20master/3?command_timeout=9");
    ASSERT_TRUE(uri);
    EXPECT_EQ(uri->kind, UriParts::Kind::sentinel);
    EXPECT_EQ(uri->service, "my master");
    EXPECT_EQ(uri->user, "ann");
    EXPECT_EQ(uri->password, "pass");
    EXPECT_EQ(uri->db, 3U);
    EXPECT_EQ(uri->command_timeout, 9ms);
    ASSERT_EQ(uri->hosts.size(), 3U);
    EXPECT_EQ(uri->hosts[0].name(), "a:26379");
    EXPECT_EQ(uri->hosts[1].name(), "[2001:db8::7]:5000");
    EXPECT_EQ(uri->hosts[2].name(), "c:26380");
    for (const Endpoint& sentinel : uri->hosts) {
        EXPECT_EQ(sentinel.password, std::nullopt) << "the master's, none of theirs";
        EXPECT_EQ(sentinel.db, 0U);
        EXPECT_FALSE(sentinel.tls);
    }
}

TEST(Uri, sentinels_over_tls_and_with_credentials_of_their_own) {
    const auto uri =
        parse_uri("rediss+sentinel://h/service?sentinel_user=bob&sentinel_password=a%26b");
    ASSERT_TRUE(uri);
    EXPECT_TRUE(uri->tls);
    EXPECT_TRUE(uri->hosts.at(0).tls);
    EXPECT_EQ(uri->sentinel_user, "bob");
    EXPECT_EQ(uri->sentinel_password, "a&b");
    EXPECT_EQ(uri->password, std::nullopt);
}

TEST(Uri, refuses_bad_sentinels) {
    EXPECT_TRUE(refused("redis+sentinel://h", "service"));
    EXPECT_TRUE(refused("redis+sentinel://h/", "service"));
    EXPECT_TRUE(refused("redis+sentinel://user:123/secret@h:1/", "%2F"));
    EXPECT_TRUE(refused("redis+sentinel://:se/cret@h/service", "%2F"));
    EXPECT_TRUE(refused("redis+sentinel://h/%zz", "service"));
    EXPECT_TRUE(refused("redis+sentinel:///service", "host"));
    EXPECT_TRUE(refused("redis+sentinel://a,/service", "host"));
    EXPECT_TRUE(refused("redis+sentinel://,a/service", "host"));
    EXPECT_TRUE(refused("redis+sentinel://a:0,b/service", "port"));
    EXPECT_TRUE(refused("redis+sentinel://a/service/x", "database"));
    EXPECT_TRUE(refused("redis+sentinel://a/service/1/2", "database"));
    EXPECT_TRUE(refused("redis+sentinel://a/service?db=1", "parameter"));
    EXPECT_TRUE(refused("redis://a?sentinel_user=u", "parameter"));
    EXPECT_TRUE(refused("redis://a,b", "comma"));
}

TEST(Uri, neither_user_nor_password_before_the_at_sign_is_no_login) {
    const auto uri = parse_uri("redis://:@h");
    ASSERT_TRUE(uri);
    EXPECT_EQ(uri->user, std::nullopt);
    EXPECT_EQ(uri->password, std::nullopt);
    const auto with_user = parse_uri("redis://alice:@h");
    ASSERT_TRUE(with_user);
    EXPECT_EQ(with_user->user, "alice");
    EXPECT_EQ(with_user->password, "");
}

TEST(Uri, password_without_user) {
    const Endpoint endpoint = parsed("redis://:pass@h");
    EXPECT_EQ(endpoint.user, std::nullopt);
    EXPECT_EQ(endpoint.password, "pass");
    EXPECT_EQ(endpoint.host, "h");
}

TEST(Uri, password_may_contain_colon_and_at_sign) {
    const Endpoint endpoint = parsed("redis://ann:a:b@c@h:7000");
    EXPECT_EQ(endpoint.user, "ann");
    EXPECT_EQ(endpoint.password, "a:b@c");
    EXPECT_EQ(endpoint.host, "h");
    EXPECT_EQ(endpoint.port, 7000);
}

TEST(Uri, port_takes_its_whole_range) {
    EXPECT_EQ(parsed("redis://h:1").port, 1);
    EXPECT_EQ(parsed("redis://h:65535").port, 65535);
}

TEST(Uri, database_takes_its_whole_range) {
    EXPECT_EQ(parsed("redis://h/0").db, 0U);
    EXPECT_EQ(parsed("redis://h/").db, 0U);
    EXPECT_EQ(parsed("redis://h:1/2147483647").db, 2147483647U);
}

TEST(Uri, ipv6_without_port) {
    const Endpoint endpoint = parsed("redis://[::1]");
    EXPECT_EQ(endpoint.host, "::1");
    EXPECT_EQ(endpoint.port, 6379);
    EXPECT_EQ(endpoint.name(), "[::1]:6379");
}

TEST(Uri, ipv6_with_port_credentials_and_database) {
    const Endpoint endpoint = parsed("redis://ann:pass@[2001:db8::7]:6400/3");
    EXPECT_EQ(endpoint.host, "2001:db8::7");
    EXPECT_EQ(endpoint.port, 6400);
    EXPECT_EQ(endpoint.db, 3U);
    EXPECT_EQ(endpoint.user, "ann");
    EXPECT_EQ(endpoint.password, "pass");
}

TEST(Uri, ipv6_with_encoded_zone) {
    EXPECT_EQ(parsed("redis://[fe80::1%25eth0]:6379").host, "fe80::1%eth0");
}

TEST(Uri, percent_encoding_is_undone) {
    const Endpoint endpoint = parsed("redis://a%3Ab:%2F%3f%23%40%25%00@h%2Dx");
    EXPECT_EQ(endpoint.user, "a:b");
    EXPECT_EQ(endpoint.password, std::string("/?#@%\0", 6));
    EXPECT_EQ(endpoint.host, "h-x");
}

TEST(Uri, unix_path) {
    const Endpoint endpoint = parsed("unix:///run/redis/redis.sock");
    EXPECT_EQ(endpoint.transport, Endpoint::Transport::unix_socket);
    EXPECT_EQ(endpoint.path, "/run/redis/redis.sock");
    EXPECT_EQ(endpoint.db, 0U);
    EXPECT_EQ(endpoint.name(), "/run/redis/redis.sock");
}

TEST(Uri, unix_path_with_all_fields) {
    const Endpoint endpoint = parsed(
        "unix://ann:pass@/run/a%20b@c.sock?db=4&connect_timeout=1&command_timeout=4294967295");
    EXPECT_EQ(endpoint.path, "/run/a b@c.sock");
    EXPECT_EQ(endpoint.user, "ann");
    EXPECT_EQ(endpoint.password, "pass");
    EXPECT_EQ(endpoint.db, 4U);
    EXPECT_EQ(endpoint.connect_timeout, 1ms);
    EXPECT_EQ(endpoint.command_timeout, 4294967295ms);
}

TEST(Uri, unix_path_of_the_greatest_length) {
    constexpr std::size_t room = sizeof(sockaddr_un::sun_path);
    const std::string longest = "/" + std::string(room - 2, 'x');  // the last byte is a NUL
    EXPECT_EQ(parsed("unix://" + longest).path, longest);
    EXPECT_TRUE(refused("unix://" + longest + "x", "path"));
}

TEST(Uri, empty_query_sets_nothing) {
    EXPECT_EQ(parsed("redis://h?").connect_timeout, std::nullopt);
    EXPECT_EQ(parsed("redis://h/2?").db, 2U);
}

TEST(Uri, made_from_each_kind_of_string) {
    const std::string text = "redis://h";
    EXPECT_EQ(Uri{"redis://h"}.text(), text);
    EXPECT_EQ(Uri{text}.text(), text);
    EXPECT_EQ(Uri{std::string_view{text}}.text(), text);
}

TEST(Uri, name_shows_no_credentials) {
    EXPECT_EQ(parsed("redis://ann:pass@h:1/2").name(), "h:1");
    EXPECT_EQ(parsed("unix://ann:pass@/s%0a").name(), "/s\\x0a");
}

TEST(Uri, refuses_bad_scheme) {
    EXPECT_TRUE(refused("localhost:6379", "scheme"));
    EXPECT_TRUE(refused("redis:/h", "scheme"));
    EXPECT_TRUE(refused("://h", "scheme"));
    EXPECT_TRUE(refused("http://h", "scheme"));
    EXPECT_TRUE(refused(" redis://h", "scheme"));
    EXPECT_TRUE(refused("REDISS+SENTINELS://h", "scheme"));
}

TEST(Uri, without_a_scheme_is_told_all_schemes) {
    for (const std::string uri :
         {"localhost", "localhost:6379", "/run/redis.sock", "://h", "http://h"}) {
        for (const std::string_view scheme :
             {"redis://", "rediss://", "unix://", "redis+sentinel://", "redis+cluster://"}) {
            EXPECT_TRUE(refused(uri, scheme));
        }
    }
    EXPECT_TRUE(refused("", "the URI is empty"));
    EXPECT_TRUE(refused("unix:/run/redis.sock", "unix:///path"));
    EXPECT_TRUE(refused("unix:run/redis.sock", "unix:///path"));
    EXPECT_TRUE(refused("unix://run/redis.sock", "unix:///path"));
    EXPECT_TRUE(refused("Redis:h", "redis://h"));
    EXPECT_TRUE(refused("\nredis://h", "before the scheme"));
}

TEST(Uri, scheme_may_be_in_capitals) {
    EXPECT_EQ(parsed("REDIS://h").host, "h");
    EXPECT_FALSE(parsed("Redis://h").tls);
    EXPECT_TRUE(parsed("RedisS://h").tls);
    EXPECT_EQ(parsed("Unix:///S").path, "/S");
    EXPECT_EQ(parse_uri("REDIS+Sentinel://h/Service")->service, "Service");
    EXPECT_EQ(parse_uri("rediss+CLUSTER://H")->hosts.at(0).host, "H");
}

TEST(Uri, shows_what_is_behind_a_number) {
    for (const auto& [end, shown] : {std::pair{" ", "' '"},
                                     {"\n", "'\\x0a'"},
                                     {"\r\n", "'\\x0d\\x0a'"},
                                     {" \t", "' \\x09'"}}) {
        const std::string tail = end;
        for (const std::string& uri :
             {"redis://h:6379" + tail, "redis://u:p@h:6379" + tail + "/1", "redis://[::1]:1" + tail,
              "redis://h/2" + tail, "unix:///s?db=3" + tail,
              "redis://h?connect_timeout=5" + tail}) {
            EXPECT_TRUE(refused(uri, std::string{"is followed by "} + shown));
        }
    }
    EXPECT_TRUE(refused("redis://h:6379" + std::string(" "), "port"));
    EXPECT_TRUE(refused("redis://h/2\n", "database"));
    EXPECT_TRUE(refused("redis://h?command_timeout=5\n", "command_timeout"));
    // No number stands before it, and who knows what else does.
    EXPECT_EQ(complaint("redis://u:hunter\n").find("followed"), std::string::npos);
}

TEST(Uri, some_nodes_of_a_cluster) {
    const auto uri = parse_uri("redis+cluster://ann:pass@a,[::1]:7001/?connect_timeout=5");
    ASSERT_TRUE(uri);
    EXPECT_EQ(uri->kind, UriParts::Kind::cluster);
    EXPECT_EQ(uri->user, "ann");
    EXPECT_EQ(uri->password, "pass");
    ASSERT_EQ(uri->hosts.size(), 2U);
    EXPECT_EQ(uri->hosts[0].name(), "a:6379");
    EXPECT_EQ(uri->hosts[1].name(), "[::1]:7001");
    EXPECT_TRUE(parse_uri("rediss+cluster://a")->hosts.at(0).tls);
    EXPECT_TRUE(refused("redis+cluster://a/1", "database"));
    EXPECT_TRUE(refused("redis+cluster://", "host"));
    EXPECT_TRUE(refused("redis+cluster://a,,b", "host"));
}

TEST(Uri, refuses_bad_host) {
    EXPECT_TRUE(refused("redis://", "host"));
    EXPECT_TRUE(refused("redis://:6379", "host"));
    EXPECT_TRUE(refused("redis:///0", "host"));
    EXPECT_TRUE(refused("redis://:pass@", "host"));
    EXPECT_TRUE(refused("redis://a%2", "host"));
    EXPECT_TRUE(refused("redis://a%zz", "host"));
    EXPECT_TRUE(refused("redis://a%-1b", "host"));
    EXPECT_TRUE(refused("redis://a b", "host"));
    EXPECT_TRUE(refused("redis://a%00b", "host"));
    EXPECT_TRUE(refused("redis://a\r\nb", "host"));
    EXPECT_TRUE(refused("redis://a%7f", "host"));
}

TEST(Uri, refuses_bad_ipv6) {
    EXPECT_TRUE(refused("redis://::1", "host"));
    EXPECT_TRUE(refused("redis://::1", "brackets"));
    EXPECT_TRUE(refused("redis://2001:db8::7:6379", "brackets"));
    EXPECT_TRUE(refused("redis://[::1", "]"));
    EXPECT_TRUE(refused("redis://[::1]6379", "]"));
    EXPECT_TRUE(refused("redis://[]", "host"));
    EXPECT_TRUE(refused("redis://[localhost]", "host"));
    EXPECT_TRUE(refused("redis://[::1]:", "port"));
}

TEST(Uri, refuses_bad_port) {
    for (const std::string port :
         {"", "0", "65536", "-1", "+1", "6379x", "x", " 6379", "0x10", "99999999999999999999"}) {
        EXPECT_TRUE(refused("redis://h:" + port, "port"));
        EXPECT_TRUE(refused("redis://[::1]:" + port + "/0", "port"));
    }
}

TEST(Uri, refuses_bad_database) {
    for (const std::string db :
         {"-1", "x", "1x", "1/2", "2147483648", "4294967296", "99999999999999999999", " 1"}) {
        EXPECT_TRUE(refused("redis://h/" + db, "database"));
        EXPECT_TRUE(refused("unix:///s?db=" + db, "database"));
    }
    EXPECT_TRUE(refused("unix:///s?db=", "database"));
    EXPECT_TRUE(refused("unix:///s?db", "database"));
}

TEST(Uri, refuses_bad_credentials) {
    EXPECT_TRUE(refused("redis://ann@h", "credentials"));
    EXPECT_TRUE(refused("redis://@h", "credentials"));
    EXPECT_TRUE(refused("unix://ann@/s", "credentials"));
    EXPECT_TRUE(refused("redis://ann:%@h", "password"));
    EXPECT_TRUE(refused("redis://ann:x%4@h", "password"));
    EXPECT_TRUE(refused("redis://ann:%gg@h", "password"));
    EXPECT_TRUE(refused("redis://a%:pass@h", "user"));
}

TEST(Uri, refuses_bad_unix_path) {
    EXPECT_TRUE(refused("unix://", "path"));
    EXPECT_TRUE(refused("unix://run/redis.sock", "path"));
    EXPECT_TRUE(refused("unix://./redis.sock", "path"));
    EXPECT_TRUE(refused("unix:///a%00b", "NUL"));
    EXPECT_TRUE(refused("unix:///a%4", "path"));
}

TEST(Uri, refuses_bad_query) {
    EXPECT_TRUE(refused("redis://h?retries=3", "parameter"));
    EXPECT_TRUE(refused("redis://h?Connect_Timeout=3", "parameter"));
    EXPECT_TRUE(refused("redis://h?&", "parameter"));
    EXPECT_TRUE(refused("redis://h?connect_timeout=1&&command_timeout=1", "parameter"));
    EXPECT_TRUE(refused("redis://h?db=1", "parameter")) << "there the path says it";
}

TEST(Uri, names_a_parameter_that_it_does_not_know) {
    EXPECT_TRUE(refused("redis://h?socket_timeout=5", "unknown parameter 'socket_timeout'"));
    EXPECT_TRUE(refused("redis://u:p@h?Connect_Timeout=3", "'Connect_Timeout'"));
    EXPECT_TRUE(refused("redis://h?connect_timeout=1&keep-alive=2", "'keep-alive'"));
    EXPECT_TRUE(refused("redis://h?db=1", "'db'"));
    EXPECT_TRUE(refused("redis://h?retries=hunter", "connect_timeout"));
    EXPECT_EQ(complaint("redis://h?retries=hunter").find("hunter"), std::string::npos);
    // May be the rest of a password with a question mark in it.
    EXPECT_EQ(complaint("redis://u:p?hunter=x@h").find("hunter"), std::string::npos);
    EXPECT_EQ(complaint("redis://u:p?hunter").find("hunter"), std::string::npos);
}

TEST(Uri, says_how_a_password_is_encoded_that_it_has_cut_off) {
    for (const std::string uri :
         {"redis://u:hun/xyz@h", "redis://u:hun/xyz@h:1/0", "redis+cluster://u:hun/xyz@h",
          "redis://u:hun?xyz@h", "redis+sentinel://u:hun/xyz@h/service"}) {
        EXPECT_TRUE(refused(uri, "%2F")) << uri;
        EXPECT_EQ(complaint(uri).find("xyz"), std::string::npos) << uri;
    }
    EXPECT_TRUE(refused("unix://:hun/xyz@/tmp/s", "%2F"));
    const std::string cut = "redis+sentinel://h/m?sentinel_password=hun&xyz=1";
    EXPECT_TRUE(refused(cut, "%26"));
    EXPECT_EQ(complaint(cut).find("xyz"), std::string::npos);
    EXPECT_EQ(complaint("redis://h/word").find("%2F"), std::string::npos);
    EXPECT_EQ(complaint("redis://u:p@h?retries=3").find("%3F"), std::string::npos);
}

TEST(Uri, refuses_bad_timeout) {
    for (const std::string name : {"connect_timeout", "command_timeout"}) {
        EXPECT_TRUE(refused("redis://h?" + name, name));
        for (const std::string value : {"", "0", "-1", "1s", "1.5", "4294967296", "1=2", "%31"}) {
            EXPECT_TRUE(refused("redis://h?" + name + "=" + value, name));
        }
    }
}

TEST(Uri, refuses_parameters_given_twice) {
    EXPECT_TRUE(refused("redis://h?connect_timeout=1&connect_timeout=1", "twice"));
    EXPECT_TRUE(refused("redis://h?command_timeout=1&connect_timeout=1&command_timeout=2",
                        "command_timeout"));
    EXPECT_TRUE(refused("unix:///s?db=1&db=2", "twice"));
    EXPECT_TRUE(refused("unix:///s?db=0&db=0", "twice"));
}

TEST(Uri, refuses_fragment) {
    EXPECT_TRUE(refused("redis://h#1", "fragment"));
    EXPECT_TRUE(refused("unix:///s#", "fragment"));
    EXPECT_TRUE(refused("redis://u:p#w@h", "percent-encode # as %23"));
}

TEST(Uri, messages_never_show_the_password) {
    const std::string secret = "hunter2SECRET";
    // S stands for the secret: where it belongs, and where it lands by mistake.
    for (const std::string_view form : {
             "S",
             "S@h",
             "S://h",
             "http://:S@h",
             "redis:S@h",
             "rediss://:S@",
             "redis+sentinel://:S@h",
             "redis+sentinel://:S@h,/service",
             "redis+sentinel://h/service?sentinel_password=S%",
             "redis+sentinel://h/service?sentinel_password=S&sentinel_password=S",
             "redis+sentinel://h/service?sentinel=S",
             "redis+cluster://u:S@a,b/1",
             "redis://:S@",
             "redis://:S@:1",
             "redis://S@h",
             "redis://S@",
             "redis://u:S%@h",
             "redis://u:%zzS@h",
             "redis://u%:S@h",
             "redis://u:S@h:S",
             "redis://u:S@h:0",
             "redis://u:S@h:x",
             "redis://u:S@h/S",
             "redis://u:S@h/x",
             "redis://u:S@h?S",
             "redis://u:S@h?S=1",
             "redis://u:S@h?db=1",
             "redis://u:S@h?connect_timeout=S",
             "redis://u:S@h?connect_timeout=0",
             "redis://u:S@h?connect_timeout=1&connect_timeout=1",
             "redis://u:S@h#",
             "redis://u:S@h#S",
             "redis://u:S/x@h",
             "redis://u:S \n",
             "redis://u:S1 \n/x@h",
             "redis://u:S@h:S \n",
             "redis://h/S\n",
             "redis:S",
             "unix:S",
             "\nS",
             "redis://u:x?S=y@h",
             "redis://u:x?y=S@h",
             "redis://u:x?y=1&S=2@h",
             "redis://u:x/S@h",
             "redis://u:x?S@h",
             "redis://u:x#S@h",
             "redis://u:S?x@h",
             "redis://u:S:x",
             "redis://:S",
             "redis://u:S",
             "redis://u:S h",
             "redis://u:S@[::1",
             "redis://u:S@[h]",
             "redis://u:S@[::1]S",
             "redis://u:S@a:b:c",
             "redis://u:S@a b",
             "redis://[S",
             "redis://[S@h",
             "redis://[::1]S@h:x",
             "unix://u:S@s",
             "unix://u:S@",
             "unix://u:S@/a%00",
             "unix://u:S@/s?db=S",
             "unix://u:S@/s?db=x",
             "unix://S@/s",
             "unix://S",
         }) {
        std::string uri;
        for (const char c : form) {
            if (c == 'S') {
                uri += secret;
            } else {
                uri += c;
            }
        }
        const auto endpoint = parse_uri(uri);
        ASSERT_FALSE(endpoint) << uri;
        const Error& error = endpoint.error();
        EXPECT_EQ(LockError{error}.what(), error.describe());
        EXPECT_EQ(error.describe().find("hunter2"), std::string::npos) << error.describe();
        EXPECT_EQ(error.describe().find("SECRET"), std::string::npos) << error.describe();
    }
}

TEST(Uri, any_text_is_parsed_or_refused) {
    const std::string pieces[] = {"redis", "unix", "://", ":", "/",  "@",  "[",  "]", "?",
                                  "=",     "&",    "%",   "#", "db", "%0", "\0", "1", "h"};
    std::uint32_t state = 1;
    for (int round = 0; round < 20'000; ++round) {
        std::string text = round % 2 == 0 ? "redis://" : "unix://";
        for (int i = 0; i < round % 9; ++i) {
            state = state * 1664525U + 1013904223U;
            text += pieces[(state >> 16U) % std::size(pieces)];
        }
        const auto endpoint = parse_uri(text);
        if (!endpoint) continue;
        const bool tcp = endpoint->transport == Endpoint::Transport::tcp;
        EXPECT_NE(tcp, endpoint->host.empty()) << text;
        EXPECT_NE(tcp, endpoint->path.starts_with('/')) << text;
        EXPECT_NE(endpoint->port, 0) << text;
    }
}

}  // namespace
