// A reentrant lock: who holds it may take it again, so each function can lock what it needs without
// knowing what its caller has locked. The lock is free when the last of the nested holds has ended.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdint>
#include <cstdio>
#include <mutex>

namespace {

// [reentrant]
class Account {
public:
    explicit Account(redlatch::Client& redis) : lock_(redis, "account:42") {}

    void add(int amount) {
        std::lock_guard scope{lock_};
        balance_ += amount;
    }

    void add_with_bonus(int amount) {
        std::lock_guard scope{lock_};
        add(amount);  // takes the lock again
        add(1);       // and again
    }
    // [reentrant]

    int balance() const { return balance_; }
    redlatch::Lock<redlatch::Reentrant>& lock() { return lock_; }

    // [reentrant]
private:
    redlatch::Lock<redlatch::Reentrant> lock_;
    int balance_ = 0;
};
// [reentrant]

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        redlatch::Client redis{uri};
        Account account{redis};
        account.add_with_bonus(100);
        std::printf("balance %d\n", account.balance());
        example::require(account.balance() == 101, "both additions were made");

        auto& lock = account.lock();
        const auto hold_count = [&] { return lock.inspect().value().hold_count; };
        example::require(hold_count() == 0, "the lock is free after the call");

        lock.lock();
        lock.lock();
        std::printf("taken twice: hold count %d\n", static_cast<int>(hold_count()));
        example::require(hold_count() == 2, "the server counts nested holds");
        example::require(*lock.release() == redlatch::Release::still_held, "one hold is left");
        example::require(*lock.release() == redlatch::Release::released, "the last one frees it");
    });
}
