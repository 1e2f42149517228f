#pragma once

// Which sanitizers this is built with, as g++ and clang tell it.

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REDLATCH_TEST_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define REDLATCH_TEST_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define REDLATCH_TEST_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define REDLATCH_TEST_TSAN 1
#endif
