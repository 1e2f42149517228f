#include <redlatch/service/token_source.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <set>
#include <string>
#include <thread>

namespace {

using namespace redlatch;
using namespace redlatch::detail;

const std::string usual{usual_key_space};

TEST(TokenSource, names_the_client_and_whose_acquisition_it_is) {
    TokenSource tokens{"pay-3", usual};
    EXPECT_EQ(tokens.next({}).bytes, tokens.id() + ":pay-3:hold:1");
    EXPECT_EQ(tokens.next({}).bytes, tokens.id() + ":pay-3:hold:2");
    EXPECT_EQ(client_name_in(tokens.next({}).bytes), "pay-3");
}

TEST(TokenSource, names_host_and_process_where_the_client_has_no_name) {
    const TokenSource tokens{"", usual};
    EXPECT_TRUE(tokens.client_name().ends_with(":" + std::to_string(::getpid())));
    EXPECT_GT(tokens.client_name().size(), std::to_string(::getpid()).size() + 1);
}

TEST(TokenSource, knows_its_own_tokens) {
    TokenSource tokens{"pay", usual};
    TokenSource others{"pay", usual};
    EXPECT_TRUE(tokens.made(tokens.next({}).bytes));
    EXPECT_FALSE(tokens.made(others.next({}).bytes));
    EXPECT_FALSE(tokens.made(""));
}

TEST(TokenSource, marks_those_of_another_key_space) {
    TokenSource tokens{"pay", usual};
    TokenSource others{"pay", "theirs:"};
    EXPECT_FALSE(tokens.is_of_other_key_space(tokens.next({}).bytes));
    EXPECT_TRUE(tokens.is_of_other_key_space(others.next({}).bytes));
    EXPECT_TRUE(others.is_of_other_key_space(tokens.next({}).bytes));
    EXPECT_FALSE(tokens.is_of_other_key_space("another library's"));
}

TEST(TokenSource, makes_none_twice) {
    TokenSource tokens{"pay", usual};
    constexpr int each = 1000;
    std::set<std::string> here;
    std::set<std::string> there;
    std::thread thread{[&] {
        for (int i = 0; i < each; ++i) there.insert(tokens.next({}).bytes);
    }};
    for (int i = 0; i < each; ++i) here.insert(tokens.next({}).bytes);
    thread.join();
    here.merge(there);
    EXPECT_EQ(here.size(), 2U * each);
    EXPECT_TRUE(there.empty());
}

}  // namespace
