#include <redlatch/net/call.hpp>
#include <redlatch/net/script.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/scripts.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;
using detail::Argument;
using detail::Call;

/// What a server would read: the words of one command, or nothing for another shape.
std::vector<std::string> words_of(std::string_view bytes) {
    const auto number_after = [&bytes](char mark) -> std::size_t {
        if (!bytes.starts_with(mark)) throw std::runtime_error{"no " + std::string{mark}};
        const auto end = bytes.find("\r\n");
        const auto number = std::stoul(std::string{bytes.substr(1, end - 1)});
        bytes.remove_prefix(end + 2);
        return number;
    };
    std::vector<std::string> words(number_after('*'));
    for (std::string& word : words) {
        const std::size_t length = number_after('$');
        word = bytes.substr(0, length);
        if (bytes.substr(length, 2) != "\r\n") throw std::runtime_error{"no end of line"};
        bytes.remove_prefix(length + 2);
    }
    if (!bytes.empty()) throw std::runtime_error{"more than one command"};
    return words;
}

using Words = std::vector<std::string>;

const Script& script() {
    static const Script script{"return 1"};
    return script;
}

/// Whether all of the library's are built.
bool all_are_built() {
    const auto built = lua::built_of_library();
    return std::find(built.begin(), built.end(), nullptr) == built.end();
}

// The first test here: afterwards there may be nothing left to build.
TEST(Script, is_known_to_be_a_users_own_without_building_others) {
    ASSERT_FALSE(all_are_built());
    const auto before = lua::built_of_library();
    const LockScripts own{script(), script(), script(), script(), script()};
    EXPECT_EQ(lua::users_own(own), &own);
    EXPECT_FALSE(lua::is_of_library(own.acquire));
    EXPECT_EQ(lua::built_of_library(), before);
}

TEST(Script, is_known_to_be_the_librarys) {
    for (const LockScripts* scripts : {&lua::on_string(), &lua::on_hash(), &lua::on_shared_claims(),
                                       &lua::on_permits(), &lua::on_hash_for_redisson()}) {
        EXPECT_EQ(lua::users_own(*scripts), nullptr);
        EXPECT_TRUE(lua::is_of_library(scripts->acquire));
        EXPECT_TRUE(lua::is_of_library(scripts->set_permits));
        EXPECT_FALSE(lua::is_of_library(script()));
    }
    EXPECT_TRUE(all_are_built());
}

TEST(Script, is_named_by_the_sha_of_its_source) {
    EXPECT_EQ(script().source(), "return 1");
    EXPECT_EQ(script().sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
}

TEST(Script, of_the_library_all_differ) {
    std::set<std::string_view> shas;
    for (const LockScripts* scripts : {&lua::on_string(), &lua::on_hash()}) {
        for (const Script* one : {&scripts->acquire, &scripts->extend, &scripts->release,
                                  &scripts->inspect, &scripts->force_unlock, &scripts->tombstone}) {
            EXPECT_FALSE(one->source().empty());
            EXPECT_EQ(one->sha().size(), 40U);
            shas.insert(one->sha());
        }
    }
    shas.insert(lua::on_hash().nest.sha());
    EXPECT_EQ(shas.size(), 13U);
}

TEST(Call, by_sha_names_the_script) {
    const Call call{script(), {"key"}, {"token", std::int64_t{30'000}}};
    EXPECT_TRUE(call.is_script());
    EXPECT_EQ(words_of(call.wire()),
              (Words{"EVALSHA", std::string{script().sha()}, "1", "key", "token", "30000"}));
}

TEST(Call, whole_brings_the_script_along) {
    const Call call{script(), {"key"}, {"token"}};
    EXPECT_EQ(words_of(call.wire({.form = {.whole = true}})),
              (Words{"EVAL", "return 1", "1", "key", "token"}));
}

TEST(Call, bytes_on_the_wire) {
    EXPECT_EQ(Call::plain({"PING"}).wire(), "*1\r\n$4\r\nPING\r\n");
}

TEST(Call, keys_are_counted) {
    EXPECT_EQ(words_of(Call(script(), {}, {}).wire())[2], "0");
    const Call call{script(), {"a", "b", "c"}, {"x"}};
    EXPECT_EQ(words_of(call.wire({.form = {.whole = true}})),
              (Words{"EVAL", "return 1", "3", "a", "b", "c", "x"}));
}

TEST(Call, further_keys_can_be_left_out) {
    const Call call{script(), {"a", "b", "c"}, {"x", Argument::server()}};
    EXPECT_TRUE(call.can_omit_keys());
    EXPECT_EQ(words_of(call.wire({.form = {.first_key_only = true}, .server = "id"})),
              (Words{"EVALSHA", std::string{script().sha()}, "1", "a", "x", "id"}));
    const Call one{script(), {"a"}, {"x"}};
    EXPECT_FALSE(one.can_omit_keys());
    EXPECT_EQ(words_of(one.wire({.form = {.first_key_only = true}})), words_of(one.wire()));
    const Call none{script(), {}, {"x"}};
    EXPECT_EQ(words_of(none.wire({.form = {.first_key_only = true}})), words_of(none.wire()));
    const Call plain = Call::plain({"SET", "a", "b"});
    EXPECT_EQ(words_of(plain.wire({.form = {.first_key_only = true}})), (Words{"SET", "a", "b"}));
}

TEST(Call, names_the_server_that_it_goes_to) {
    const Call call{script(), {"a"}, {Argument::server()}};
    EXPECT_EQ(words_of(call.wire({.server = "run id"})).back(), "run id");
    EXPECT_EQ(words_of(call.wire()).back(), "-");
}

TEST(Call, binary_bytes_stay_as_they_are) {
    std::string key;
    for (int byte = 0; byte < 256; ++byte) key += static_cast<char>(byte);
    const std::string token{"\0\r\n$5\r\n", 8};
    const Call call{script(), {key}, {token, ""}};
    const auto words = words_of(call.wire());
    ASSERT_EQ(words.size(), 6U);
    EXPECT_EQ(words[3], key);
    EXPECT_EQ(words[4], token);
    EXPECT_EQ(words[5], "");
}

TEST(Call, numbers_are_decimal) {
    using Limits = std::numeric_limits<std::int64_t>;
    const Call call = Call::plain({"X", std::int64_t{0}, std::int64_t{-1},
                                   std::int64_t{2'147'483'648}, Limits::min(), Limits::max()});
    EXPECT_FALSE(call.is_script());
    EXPECT_EQ(words_of(call.wire()),
              (Words{"X", "0", "-1", "2147483648", "-9223372036854775808", "9223372036854775807"}));
}

TEST(Call, same_call_can_be_sent_again_in_each_form) {
    const Call call{script(), {"key"}, {std::int64_t{7}}};
    const auto first = words_of(call.wire());
    static_cast<void>(call.wire({.form = {.whole = true}}));
    EXPECT_EQ(words_of(call.wire()), first);
    const Call copy = call;  // NOLINT(performance-unnecessary-copy-initialization)
    EXPECT_EQ(words_of(copy.wire()), first);
}

TEST(Call, longest_of_the_library_fits) {
    const Call call{script(), {"k"}, {"1", "2", "3", "4", "5", "6", "7", "8"}};
    EXPECT_EQ(words_of(call.wire()).size(), 12U);
}

}  // namespace
