#include <redlatch/error.hpp>
#include <redlatch/names.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace redlatch;

constexpr Errc all_codes[] = {
    Errc::timed_out,        Errc::cancelled, Errc::lost,       Errc::not_held,
    Errc::unavailable,      Errc::denied,    Errc::wrong_type, Errc::not_replicated,
    Errc::no_quorum,        Errc::unclear,   Errc::deadlock,   Errc::protocol,
    Errc::invalid_argument,
};

TEST(Errc, each_has_a_text_of_its_own) {
    std::vector<std::string> texts;
    for (const Errc code : all_codes) texts.push_back(std::error_code{code}.message());
    for (const std::string& text : texts) {
        EXPECT_EQ(std::count(texts.begin(), texts.end(), text), 1) << text;
        EXPECT_NE(text, "unknown error");
        EXPECT_FALSE(text.empty());
    }
}

TEST(Errc, each_has_a_name_of_its_own) {
    std::vector<std::string> names;
    for (const Errc code : all_codes) names.emplace_back(enumerator_name(code));
    for (const std::string& name : names) {
        EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
        EXPECT_NE(name, "unknown");
    }
    EXPECT_STREQ(enumerator_name(Errc::timed_out), "timed_out");
    EXPECT_STREQ(enumerator_name(Errc::invalid_argument), "invalid_argument");
    EXPECT_STREQ(enumerator_name(static_cast<Errc>(9999)), "unknown");
}

TEST(Outcomes, have_names) {
    EXPECT_STREQ(enumerator_name(Release::released), "released");
    EXPECT_STREQ(enumerator_name(Release::still_held), "still_held");
    EXPECT_STREQ(enumerator_name(Release::expired), "expired");
    EXPECT_STREQ(enumerator_name(Release::not_held), "not_held");
    EXPECT_STREQ(enumerator_name(static_cast<Release>(9999)), "unknown");
    EXPECT_STREQ(enumerator_name(Forced::removed), "removed");
    EXPECT_STREQ(enumerator_name(Forced::absent), "absent");
    EXPECT_STREQ(enumerator_name(static_cast<Forced>(9999)), "unknown");
    EXPECT_STREQ(enumerator_name(HoldState::none), "none");
    EXPECT_STREQ(enumerator_name(HoldState::held), "held");
    EXPECT_STREQ(enumerator_name(HoldState::uncertain), "uncertain");
    EXPECT_STREQ(enumerator_name(HoldState::lost), "lost");
    EXPECT_STREQ(enumerator_name(static_cast<HoldState>(9999)), "unknown");
}

TEST(Errc, none_means_success) {
    for (const Errc code : all_codes) EXPECT_TRUE(std::error_code{code});
}

TEST(Errc, unknown_value_has_a_text) {
    EXPECT_EQ(error_category().message(0), "unknown error");
    EXPECT_EQ(error_category().message(9999), "unknown error");
    EXPECT_EQ(error_category().message(-1), "unknown error");
}

TEST(Errc, category_is_named_and_one) {
    EXPECT_STREQ(error_category().name(), "redlatch");
    EXPECT_EQ(&make_error_code(Errc::lost).category(), &error_category());
    EXPECT_NE(make_error_code(Errc::timed_out), std::make_error_code(std::errc::timed_out));
}

TEST(Errc, compares_with_the_fitting_std_errc) {
    EXPECT_EQ(make_error_code(Errc::timed_out), std::errc::timed_out);
    EXPECT_EQ(make_error_code(Errc::cancelled), std::errc::operation_canceled);
    EXPECT_EQ(make_error_code(Errc::not_held), std::errc::operation_not_permitted);
    EXPECT_EQ(make_error_code(Errc::denied), std::errc::permission_denied);
    EXPECT_EQ(make_error_code(Errc::deadlock), std::errc::resource_deadlock_would_occur);
    EXPECT_EQ(make_error_code(Errc::protocol), std::errc::protocol_error);
    EXPECT_EQ(make_error_code(Errc::invalid_argument), std::errc::invalid_argument);
}

TEST(Errc, compares_with_no_other_std_errc) {
    const std::errc fitting[] = {
        std::errc::timed_out,         std::errc::operation_canceled,
        std::errc::permission_denied, std::errc::operation_not_permitted,
        std::errc::protocol_error,    std::errc::resource_deadlock_would_occur,
        std::errc::invalid_argument,
    };
    for (const Errc code : all_codes) {
        const auto matches = std::count_if(
            std::begin(fitting), std::end(fitting),
            [code](std::errc condition) { return make_error_code(code) == condition; });
        EXPECT_LE(matches, 1) << make_error_code(code).message();
    }
    EXPECT_NE(make_error_code(Errc::lost), std::errc::timed_out);
    EXPECT_NE(make_error_code(Errc::unavailable), std::errc::timed_out);
    EXPECT_NE(make_error_code(Errc::unclear), std::errc::timed_out);
}

TEST(Errc, equals_itself_as_a_code) {
    for (const Errc code : all_codes) {
        EXPECT_EQ(std::error_code{code}, code);
        EXPECT_EQ(std::error_code{code}.value(), static_cast<int>(code));
    }
    EXPECT_NE(std::error_code{Errc::lost}, Errc::not_held);
}

TEST(Error, describes_the_code_alone) {
    EXPECT_EQ((Error{Errc::lost, {}, {}, {}, {}}).describe(), "the lock was lost");
}

TEST(Error, describes_code_message_key_and_node) {
    const Error error{Errc::denied, "order:pay", "127.0.0.1:6379", "WRONGPASS no", {}};
    EXPECT_EQ(error.describe(), "access denied: WRONGPASS no (lock 'order:pay' on 127.0.0.1:6379)");
}

TEST(Error, describes_key_or_node_alone) {
    EXPECT_EQ((Error{Errc::lost, "a", {}, {}, {}}).describe(), "the lock was lost (lock 'a')");
    EXPECT_EQ((Error{Errc::lost, {}, "h:1", {}, {}}).describe(), "the lock was lost (on h:1)");
}

TEST(Error, describes_binary_keys_as_printable_text) {
    const Error error{Errc::lost, std::string("a\0\r\n\x7f\xff b", 8), {}, {}, {}};
    EXPECT_EQ(error.describe(), "the lock was lost (lock 'a\\x00\\x0d\\x0a\\x7f\\xff b')");
}

TEST(Error, describes_any_key_in_one_printable_line) {
    std::string key;
    for (int byte = 0; byte < 256; ++byte) key += static_cast<char>(byte);
    const std::string text = Error{Errc::lost, key, {}, {}, {}}.describe();
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }));
}

TEST(Error, describes_causes_in_order) {
    Error error{Errc::timed_out, "k", {}, {}, {}};
    error.causes.push_back({Errc::unavailable, {}, "h:1", "refused", {}});
    error.causes.push_back({Errc::denied, {}, "h:2", "NOAUTH", {}});
    EXPECT_EQ(error.describe(),
              "the lock is taken (lock 'k')"
              "; no usable answer in time: refused (on h:1)"
              "; access denied: NOAUTH (on h:2)");
}

TEST(Error, describes_causes_of_causes) {
    Error inner{Errc::protocol, {}, {}, "inner", {}};
    Error middle{Errc::unavailable, {}, {}, "middle", {inner}};
    const std::string text = Error{Errc::unclear, {}, {}, {}, {middle}}.describe();
    EXPECT_NE(text.find("middle; "), std::string::npos) << text;
    EXPECT_NE(text.find("inner"), std::string::npos) << text;
}

TEST(LockError, carries_error_code_and_text) {
    const Error error{Errc::deadlock, "k", "h:1", "words", {Error{Errc::lost, {}, {}, {}, {}}}};
    const LockError thrown{error};
    EXPECT_EQ(thrown.code(), Errc::deadlock);
    EXPECT_EQ(thrown.code(), std::errc::resource_deadlock_would_occur);
    EXPECT_EQ(thrown.what(), error.describe());
    EXPECT_EQ(thrown.error().code, Errc::deadlock);
    EXPECT_EQ(thrown.error().key, "k");
    EXPECT_EQ(thrown.error().node, "h:1");
    EXPECT_EQ(thrown.error().message, "words");
    ASSERT_EQ(thrown.error().causes.size(), 1U);
    EXPECT_EQ(thrown.error().causes[0].code, Errc::lost);
}

TEST(LockError, is_caught_as_what_the_standard_library_throws) {
    const auto raise = [] { throw LockError{{Errc::timed_out, "k", {}, {}, {}}}; };
    EXPECT_THROW(raise(), std::system_error);
    EXPECT_THROW(raise(), std::runtime_error);
    try {
        raise();
        FAIL();
    } catch (const std::exception& error) {
        EXPECT_NE(std::string_view{error.what()}.find("lock 'k'"), std::string_view::npos);
    }
}

TEST(LockError, copy_has_the_same_text) {
    const LockError thrown{{Errc::timed_out, "k", {}, {}, {}}};
    const LockError copy = thrown;  // NOLINT(performance-unnecessary-copy-initialization)
    EXPECT_STREQ(copy.what(), thrown.what());
    EXPECT_EQ(copy.error().key, "k");
}

// The standard library's exceptions don't either: `std::current_exception()` may have to copy one.
TEST(LockError, to_copy_it_throws_nothing_and_to_move_it_takes_nothing_away) {
    EXPECT_TRUE(std::is_nothrow_copy_constructible_v<LockError>);
    EXPECT_TRUE(std::is_nothrow_copy_assignable_v<LockError>);
    EXPECT_TRUE(std::is_nothrow_move_constructible_v<LockError>);
    LockError thrown{{Errc::timed_out, "k", {}, {}, {}}};
    const LockError moved = std::move(thrown);
    EXPECT_STREQ(thrown.what(), moved.what());  // NOLINT(bugprone-use-after-move): it is as before
}

}  // namespace
