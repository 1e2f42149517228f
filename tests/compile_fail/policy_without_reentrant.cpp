// The message names what is missing.
// expect: DescribesHolds

#include <redlatch/redlatch.hpp>

struct Policy {
    static constexpr redlatch::KeyType key_type = redlatch::KeyType::string;
    static constexpr bool watched = false;
    static const redlatch::LockScripts& scripts() { return redlatch::Simple::scripts(); }
#ifndef REDLATCH_EXPECT_FAIL
    static constexpr bool reentrant = false;
#endif
};

void use(redlatch::Lock<redlatch::Watchdog<Policy>>& lock) {
    lock.lock();
}
