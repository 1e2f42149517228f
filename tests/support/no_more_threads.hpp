#pragma once

#include <redlatch/net/thread.hpp>

#include <gtest/gtest.h>

#include <pthread.h>

#include <cstddef>
#include <limits>

namespace redlatch::test {

/// While it lives, the system has no thread to give: none can have a stack of that size.
class NoMoreThreads {
public:
    NoMoreThreads() {
        pthread_getattr_default_np(&before_);
        pthread_attr_t huge;
        pthread_attr_init(&huge);
        pthread_attr_setstacksize(&huge, std::numeric_limits<std::size_t>::max() / 16 * 15);
        EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
        pthread_attr_destroy(&huge);
        EXPECT_FALSE(detail::start_service_thread("none", [] {}).joinable());
    }
    NoMoreThreads(const NoMoreThreads&) = delete;
    NoMoreThreads& operator=(const NoMoreThreads&) = delete;
    ~NoMoreThreads() {
        pthread_setattr_default_np(&before_);
        pthread_attr_destroy(&before_);
    }

private:
    pthread_attr_t before_;
};

}  // namespace redlatch::test
