// Transfers between accounts as coroutines, four at a time: each takes two accounts at once, and no audit sees a
// transfer that is half done. None of them has a thread while it waits.

#include "own_redis.hpp"
#include "task.hpp"
#include <redlatch/redlatch.hpp>

#include <cstdio>
#include <latch>
#include <map>
#include <string>

using namespace std::chrono_literals;

namespace {

struct Bank {
    redlatch::Client& redis;
    redlatch::Semaphore<> slots{redis, "bank:slots", 4};
    redlatch::Lock<redlatch::Watchdog<redlatch::Shared>> books{redis, "bank:books"};
    std::map<std::string, int> balances{{"account:1", 100}, {"account:2", 100}, {"account:3", 100}};
    int audits = 0;

    void move(const std::string& from, const std::string& to) {
        --balances.at(from);
        ++balances.at(to);
    }
    int sum() const {
        int sum = 0;
        for (const auto& [account, balance] : balances) sum += balance;
        return sum;
    }
};

// [family]
Task transfer(Bank& bank, std::string from, std::string to, std::latch& done) {
    {
        auto slot = co_await bank.slots.async_take({.wait = 1min});
        auto open = co_await bank.books.async_acquire_shared({.wait = 1min});
        redlatch::LockSet accounts{bank.redis, {from, to}};
        auto both = co_await accounts.async_acquire({.wait = 1min});
        if (slot && open && both) bank.move(from, to);
    }  // all are released; nobody waits for that
    done.count_down();
}
// [family]

Task audit(Bank& bank, std::latch& done) {
    {
        auto alone = co_await bank.books.async_acquire({.wait = 1min});
        if (alone && bank.sum() == 300) ++bank.audits;
    }
    done.count_down();
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        constexpr int rounds = 20;
        redlatch::Client redis{uri};
        Bank bank{redis};
        std::latch done{3 * rounds + rounds};
        for (int i = 0; i < rounds; ++i) {
            transfer(bank, "account:1", "account:2", done);
            transfer(bank, "account:2", "account:3", done);
            transfer(bank, "account:2", "account:3", done);
            audit(bank, done);
        }
        done.wait();
        const auto& balances = bank.balances;
        std::printf("%d audits; %d, %d and %d on the accounts\n", bank.audits,
                    balances.at("account:1"), balances.at("account:2"), balances.at("account:3"));
        example::require(bank.audits == rounds, "each audit finds all the money");
        example::require(balances.at("account:3") == 100 + 2 * rounds, "each transfer is made");
    });
}
