// What a forked child has of its own, beside threads that end what it is for.

#include <redlatch/net/per_process.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace {

using redlatch::detail::PerProcess;

struct Number {
    explicit Number(int its) : value(its) {}
    int value;
};

/// Whether `body` returns true in a child.
template <class Body>
bool holds_in_child(Body body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body() ? EXIT_SUCCESS : EXIT_FAILURE);
    int status = -1;
    return ::waitpid(child, &status, 0) == child && status == 0;
}

constexpr auto as_it_is = [](const Number&) {};

TEST(PerProcess, child_has_none_until_it_makes_its_own) {
    PerProcess<Number> number{1};
    EXPECT_TRUE(holds_in_child([&] {
        if (number.existing() != nullptr) return false;
        Number& own = number.renew(as_it_is, 2);
        return own.value == 2 && number.existing() == &own && &number.renew(as_it_is, 3) == &own;
    }));
    ASSERT_NE(number.existing(), nullptr);
    EXPECT_EQ(number.existing()->value, 1);
}

TEST(PerProcess, what_is_this_processs_own_is_not_disowned) {
    PerProcess<Number> number{1};
    EXPECT_EQ(number.existing_or_disown(), number.existing());
    EXPECT_NE(number.existing(), nullptr);
}

TEST(PerProcess, child_that_has_disowned_what_it_inherited_can_make_its_own) {
    PerProcess<Number> number{1};
    EXPECT_TRUE(holds_in_child([&] {
        if (number.existing_or_disown() != nullptr || number.existing() != nullptr) return false;
        if (number.existing_or_disown() != nullptr) return false;
        Number& own = number.renew(as_it_is, 2);
        return own.value == 2 && number.existing() == &own && number.existing_or_disown() == &own;
    }));
}

TEST(PerProcess, one_that_is_being_made_meanwhile_is_prepared_once_more) {
    PerProcess<Number> number{1};
    EXPECT_TRUE(holds_in_child([&] {
        int prepared = 0;
        const auto disowned_in_between = [&](Number& made) {
            made.value = ++prepared;
            if (prepared == 1) static_cast<void>(number.existing_or_disown());
        };
        const Number& own = number.renew(disowned_in_between, 0);
        return own.value == 2 && number.existing() == &own;
    }));
}

TEST(PerProcess, child_may_end_after_it_has_disowned_what_it_inherited) {
    auto number = std::make_unique<PerProcess<Number>>(1);
    EXPECT_TRUE(holds_in_child([&] {
        number->existing_or_disown();
        number.reset();
        return true;
    }));
}

}  // namespace
