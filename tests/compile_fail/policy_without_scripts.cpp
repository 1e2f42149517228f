// The message names what is missing.
// expect: StoresLock

#include <redlatch/redlatch.hpp>

struct Policy {
    static constexpr redlatch::KeyType key_type = redlatch::KeyType::string;
    static constexpr bool reentrant = false;
    static constexpr bool watched = false;
#ifndef REDLATCH_EXPECT_FAIL
    static const redlatch::LockScripts& scripts() {
        return redlatch::Simple::scripts();
    }
#endif
};

void use(redlatch::Lock<Policy>& lock) {
    lock.lock();
}
