#include <redlatch/version.hpp>

#include <gtest/gtest.h>

#include <string>

TEST(Version, header_and_project_agree) {
    const std::string header = std::to_string(REDLATCH_VERSION_MAJOR) + '.' +
                               std::to_string(REDLATCH_VERSION_MINOR) + '.' +
                               std::to_string(REDLATCH_VERSION_PATCH);
    EXPECT_EQ(header, REDLATCH_PROJECT_VERSION);
}
