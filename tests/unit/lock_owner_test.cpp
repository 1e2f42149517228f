#include "service_tools.hpp"
#include <redlatch/core/lock_owner.hpp>
#include <redlatch/steps/hold_ref.hpp>
#include <redlatch/steps/thread_serial.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

namespace {

using namespace redlatch;
using namespace redlatch::test;
using detail::LockOwner;
using detail::ThreadSerial;

TEST(ThreadSerial, stays_the_same_in_one_thread) {
    EXPECT_EQ(detail::this_thread_serial(), detail::this_thread_serial());
}

TEST(ThreadSerial, is_never_used_again) {
    std::set<ThreadSerial> serials{detail::this_thread_serial()};
    for (int i = 0; i < 100; ++i) {  // one after the other: the system gives their ids out again
        ThreadSerial serial{};
        std::thread{[&serial] { serial = detail::this_thread_serial(); }}.join();
        serials.insert(serial);
    }
    EXPECT_EQ(serials.size(), 101U);
}

TEST(LockOwner, thread_is_not_the_acquisition_of_the_same_number) {
    EXPECT_NE(LockOwner::thread(ThreadSerial{7}), LockOwner::acquisition(7));
    EXPECT_NE(LockOwner::thread(ThreadSerial{0}), LockOwner{});
    EXPECT_NE(LockOwner::acquisition(0), LockOwner{});
}

TEST(LockOwner, tells_its_thread_if_it_is_one) {
    EXPECT_EQ(LockOwner::thread(ThreadSerial{7}).thread(), ThreadSerial{7});
    EXPECT_FALSE(LockOwner::acquisition(7).thread());
    EXPECT_FALSE(LockOwner{}.thread());
}

TEST(LockOwner, acquisitions_are_told_apart) {
    EXPECT_EQ(LockOwner::acquisition(7), LockOwner::acquisition(7));
    EXPECT_NE(LockOwner::acquisition(7), LockOwner::acquisition(8));
}

TEST(HoldRef, belongs_to_the_process_that_made_it) {
    const detail::HoldRef ref{taken_hold(), 1};
    EXPECT_TRUE(ref.is_ours());
    EXPECT_FALSE(detail::HoldRef{}.is_ours()) << "there is no hold";
    const ::pid_t child = ::fork();
    if (child == 0) ::_exit(ref.is_ours() ? 1 : 0);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
