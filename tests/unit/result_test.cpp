#include <redlatch/result.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace {

using namespace redlatch;

Error lost() {
    return {Errc::lost, "k", "h:1", "words", {}};
}

TEST(Result, has_a_value) {
    const Result<int> result = 7;
    EXPECT_TRUE(result.has_value());
    EXPECT_TRUE(static_cast<bool>(result));
    EXPECT_EQ(*result, 7);
    EXPECT_EQ(result.value(), 7);
}

TEST(Result, has_an_error) {
    const Result<int> result = Unexpected{lost()};
    EXPECT_FALSE(result.has_value());
    EXPECT_FALSE(static_cast<bool>(result));
    EXPECT_EQ(result.error().code, Errc::lost);
    EXPECT_EQ(result.error().key, "k");
}

TEST(Result, value_without_a_value_throws_the_error) {
    Result<int> result = Unexpected{lost()};
    EXPECT_THROW(static_cast<void>(result.value()), LockError);
    EXPECT_THROW(static_cast<void>(std::as_const(result).value()), LockError);
    try {
        static_cast<void>(std::move(result).value());
        FAIL();
    } catch (const LockError& error) {
        EXPECT_EQ(error.code(), Errc::lost);
        EXPECT_EQ(error.error().key, "k");
        EXPECT_EQ(error.error().node, "h:1");
        EXPECT_EQ(error.error().message, "words");
    }
}

TEST(Result, of_nothing_succeeds_by_default) {
    const Result<void> result;
    EXPECT_TRUE(result);
    EXPECT_NO_THROW(result.value());
}

TEST(Result, of_nothing_may_fail) {
    const Result<void> result = Unexpected{lost()};
    EXPECT_FALSE(result);
    EXPECT_EQ(result.error().code, Errc::lost);
    EXPECT_THROW(result.value(), LockError);
}

TEST(Result, value_can_be_changed_in_place) {
    Result<std::string> result = std::string{"a"};
    *result += "b";
    result->append("c");
    result.value() += "d";
    EXPECT_EQ(*std::as_const(result), "abcd");
    EXPECT_EQ(std::as_const(result)->size(), 4U);
}

TEST(Result, error_can_be_changed_in_place) {
    Result<int> result = Unexpected{lost()};
    result.error().key = "other";
    EXPECT_EQ(std::as_const(result).error().key, "other");
}

TEST(Result, value_that_only_moves) {
    Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
    const std::unique_ptr<int> moved = *std::move(result);
    EXPECT_EQ(*moved, 3);

    Result<std::unique_ptr<int>> another = std::make_unique<int>(4);
    EXPECT_EQ(*std::move(another).value(), 4);
}

TEST(Result, error_can_be_moved_out) {
    Result<int> result = Unexpected{lost()};
    const Error error = std::move(result).error();
    EXPECT_EQ(error.message, "words");
}

TEST(Result, error_goes_from_one_result_to_another) {
    Result<int> first = Unexpected{lost()};
    const Result<std::string> second = Unexpected{std::move(first).error()};
    EXPECT_EQ(second.error().message, "words");
}

TEST(Result, value_or_takes_the_other_only_without_a_value) {
    const Result<int> good = 7;
    const Result<int> bad = Unexpected{lost()};
    EXPECT_EQ(good.value_or(1), 7);
    EXPECT_EQ(bad.value_or(1), 1);
    EXPECT_EQ((Result<std::string>{std::string{"a"}}).value_or("b"), "a");
    EXPECT_EQ((Result<std::string>{Unexpected{lost()}}).value_or("b"), "b");
}

TEST(Result, of_bool_keeps_false_apart_from_failure) {
    const Result<bool> no = false;
    EXPECT_TRUE(no.has_value());
    EXPECT_FALSE(*no);
}

TEST(Result, of_an_error_keeps_value_and_failure_apart) {
    const Result<Error> value = lost();
    EXPECT_TRUE(value.has_value());
    EXPECT_EQ(value->code, Errc::lost);
}

TEST(Result, copies_and_assigns) {
    Result<std::string> a = std::string{"a"};
    const Result<std::string> b = Unexpected{lost()};
    const Result<std::string> copy = a;
    a = b;
    EXPECT_FALSE(a);
    EXPECT_EQ(*copy, "a");
    a = copy;
    EXPECT_EQ(*a, "a");
}

TEST(Result, goes_from_one_side_to_the_other) {
    Result<std::unique_ptr<int>> one = std::make_unique<int>(1);
    Result<std::unique_ptr<int>> another = Unexpected{lost()};
    std::swap(one, another);
    EXPECT_EQ(one.error().message, "words");
    EXPECT_EQ(**another, 1);
    std::swap(one, another);
    EXPECT_EQ(**one, 1);
    EXPECT_EQ(another.error().message, "words");
}

TEST(Result, assigned_to_itself_stays) {
    Result<std::string> good = std::string{"a"};
    const Result<std::string>& same = good;
    good = same;
    EXPECT_EQ(*good, "a");
}

struct Node {
    int number = 0;
    std::unique_ptr<Result<Node>> next{};
};

TEST(Result, takes_over_a_part_of_what_it_has) {
    Result<Node> list = Node{1, std::make_unique<Result<Node>>(Node{2, nullptr})};
    list = std::move(*list->next);
    EXPECT_EQ(list->number, 2);
}

struct ThrowsWhenMoved {
    ThrowsWhenMoved() = default;
    ThrowsWhenMoved(ThrowsWhenMoved&& /*other*/) {}  // NOLINT: not noexcept
    ThrowsWhenMoved& operator=(ThrowsWhenMoved&&) = delete;
};

TEST(Result, of_what_may_throw_when_it_moves_is_not_assigned_to) {
    const Result<ThrowsWhenMoved> one{ThrowsWhenMoved{}};
    EXPECT_TRUE(one.has_value());
    EXPECT_TRUE(std::is_move_constructible_v<Result<ThrowsWhenMoved>>);
    EXPECT_FALSE(std::is_nothrow_move_constructible_v<Result<ThrowsWhenMoved>>);
    EXPECT_FALSE(std::is_move_assignable_v<Result<ThrowsWhenMoved>>);
}

TEST(Result, can_do_what_its_value_can) {
    using Moves = Result<std::unique_ptr<int>>;
    EXPECT_TRUE(std::is_copy_constructible_v<Result<std::string>>);
    EXPECT_TRUE(std::is_copy_assignable_v<Result<std::string>>);
    EXPECT_FALSE(std::is_copy_constructible_v<Moves>);
    EXPECT_FALSE(std::is_copy_assignable_v<Moves>);
    EXPECT_TRUE(std::is_nothrow_move_constructible_v<Moves>);
    EXPECT_TRUE(std::is_nothrow_move_assignable_v<Moves>);
}

TEST(Result, equals_the_value_that_it_has) {
    const Result<int> four{4};
    EXPECT_EQ(four, 4);
    EXPECT_EQ(4, four);
    EXPECT_NE(four, 5);
    EXPECT_EQ(Result<std::string>{"a"}, "a");
    const Result<int> none{Unexpected{Error{Errc::lost, {}, {}, {}, {}}}};
    EXPECT_NE(none, 0);
}

struct OfTheUser {
    int x;
};
bool operator==(const Result<OfTheUser>& left, int x) {
    return left && left->x == x;
}
bool operator==(const Result<int>& left, const Error& error) {
    return !left && left.error().key == error.key;
}

TEST(Result, compares_as_its_user_says_where_its_value_does_not) {
    const Result<OfTheUser> four{OfTheUser{4}};
    EXPECT_TRUE(four == 4);
    const Error lost{Errc::lost, "key", {}, {}, {}};
    const Result<int> failed{Unexpected{lost}};
    EXPECT_TRUE(failed == lost);
}

TEST(Result, moved_from_keeps_its_side) {
    Result<std::string> from = std::string{"a"};
    const Result<std::string> to = std::move(from);
    EXPECT_EQ(*to, "a");
    EXPECT_TRUE(from.has_value());  // NOLINT(bugprone-use-after-move): as with std::expected
}

/// Copies only while it is allowed to.
struct Costly {
    explicit Costly(bool may_copy) : copies(may_copy) {}
    Costly(const Costly& other) : copies(other.copies) {
        if (!copies) throw std::bad_alloc{};
    }
    Costly& operator=(const Costly& other) {
        if (!other.copies) throw std::bad_alloc{};
        copies = other.copies;
        return *this;
    }
    Costly(Costly&&) = default;
    Costly& operator=(Costly&&) = default;
    ~Costly() = default;
    bool copies;
};

TEST(Result, keeps_its_error_where_there_is_no_memory_for_a_value) {
    const std::string words(100, 'w');
    Result<Costly> result = Unexpected{Error{Errc::lost, {}, {}, words, {}}};
    const Result<Costly> other{Costly{false}};
    EXPECT_THROW(result = other, std::bad_alloc);
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().message, words);
}

TEST(Result, keeps_its_value_where_there_is_no_memory_for_an_error) {
    Expected<int, Costly> result = 7;
    const Expected<int, Costly> other = [] {
        Expected<int, Costly> made = Unexpected{Costly{true}};
        made.error().copies = false;
        return made;
    }();
    EXPECT_THROW(result = other, std::bad_alloc);
    EXPECT_EQ(*result, 7);
}

TEST(Result, assigned_to_itself_stays_what_it_is) {
    Result<std::string> value = std::string(100, 'v');
    Result<std::string> error = Unexpected{lost()};
    value = std::as_const(value);
    error = std::as_const(error);
    EXPECT_EQ(*value, std::string(100, 'v'));
    EXPECT_EQ(error.error().message, "words");
}

}  // namespace
