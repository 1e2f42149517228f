#include <redlatch/core/one_of.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace {

using redlatch::detail::OneOf;

struct Number {
    int value;
};
using Shared = std::shared_ptr<int>;
using Choice = OneOf<Number, std::string, Shared>;

const std::string long_text(100, 'x');

TEST(OneOf, knows_which_one_it_is) {
    Choice choice{long_text};
    EXPECT_EQ(choice.index(), 1U);
    EXPECT_TRUE(holds_alternative<std::string>(choice));
    EXPECT_EQ(get_if<Number>(&choice), nullptr);
    EXPECT_EQ(get<std::string>(std::as_const(choice)), long_text);
    EXPECT_EQ(get<std::string>(std::move(choice)), long_text);
}

TEST(OneOf, an_assignment_changes_the_type_and_destroys_the_old_value) {
    const auto shared = std::make_shared<int>(1);
    Choice choice{shared};
    Choice copy{choice};
    EXPECT_EQ(shared.use_count(), 3);
    choice = Number{7};
    EXPECT_EQ(shared.use_count(), 2);
    EXPECT_EQ(get<Number>(choice).value, 7);
    choice = std::move(copy);
    EXPECT_EQ(shared.use_count(), 2) << "moved, not copied";
    choice = Choice{long_text};
    EXPECT_EQ(shared.use_count(), 1);
    EXPECT_EQ(get<std::string>(choice), long_text);
}

TEST(OneOf, an_assignment_of_itself_changes_nothing) {
    Choice choice{long_text};
    const Choice& itself = choice;
    choice = itself;
    EXPECT_EQ(get<std::string>(choice), long_text);
}

struct Size {
    std::size_t operator()(const Number&) const { return sizeof(Number); }
    std::size_t operator()(const std::string& text) const { return text.size(); }
    std::size_t operator()(const Shared& shared) const { return shared ? 1 : 0; }
};

TEST(OneOf, a_visit_calls_the_overload_of_its_type) {
    const auto size = [](const Choice& choice) { return visit(Size{}, choice); };
    EXPECT_EQ(size(Number{1}), sizeof(Number));
    EXPECT_EQ(size(long_text), 100U);
    EXPECT_EQ(size(Shared{}), 0U);
    Choice choice{Number{1}};
    visit([](auto& value) { value = {}; }, choice);
    EXPECT_EQ(get<Number>(choice).value, 0);
}

}  // namespace
