// Text from an environment variable that is not set is a null pointer.

#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

namespace redlatch {
namespace {

std::string why_invalid(const std::function<void()>& call) {
    try {
        call();
    } catch (const LockError& error) {
        EXPECT_EQ(error.error().code, Errc::invalid_argument);
        return error.what();
    } catch (const std::exception& other) {
        ADD_FAILURE() << "another exception: " << other.what();
    }
    return "nothing was thrown";
}

const char* unset() {
    return std::getenv("REDLATCH_A_VARIABLE_THAT_IS_NOT_SET");
}

TEST(NullPointer, as_a_uri_is_an_invalid_argument) {
    const std::string expected =
        "invalid argument: the URI is a null pointer; is an environment variable unset?";
    EXPECT_EQ(why_invalid([] { Client{unset()}; }), expected);
    EXPECT_EQ(why_invalid([] { Client{nullptr}; }), expected);
    EXPECT_EQ(why_invalid([] { Client("redis://a", unset(), "redis://c"); }), expected);
    EXPECT_EQ(why_invalid([] { Client{{.uris = {unset()}}}; }), expected);
}

TEST(NullPointer, as_a_locks_name_is_an_invalid_argument) {
    Client client{"redis://localhost"};
    EXPECT_EQ(why_invalid([&] {
                  Lock<>{client, unset()};
              }),
              "invalid argument: the lock's name is a null pointer; is an environment variable "
              "unset?");
}

}  // namespace
}  // namespace redlatch
