// Transfers between accounts: each takes the locks of two accounts at once, and no two transfers wait for each
// other in a circle, in whatever order they name the accounts.

#include "own_redis.hpp"
#include "plain_redis.hpp"
#include <redlatch/lock_set.hpp>
#include <redlatch/redlatch.hpp>

#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr int transfers_of_each = 25;
constexpr std::array<const char*, 3> accounts{"account:1", "account:2", "account:3"};

/// How many locks were taken.
class Counter : public redlatch::Observer {
public:
    void acquired(const Acquired&) override { ++taken_; }
    int taken() const { return taken_; }

private:
    std::atomic<int> taken_{0};
};

/// The balances, which know of no lock: read, think, write.
class Bank {
public:
    explicit Bank(const std::string& uri) : redis_(uri) {}

    int balance(const std::string& account) {
        const auto answer = redis_.command({"GET", "balance:" + account});
        return answer->str == nullptr ? 0 : std::stoi(answer->str);
    }
    void set_balance(const std::string& account, int amount) {
        redis_.command({"SET", "balance:" + account, std::to_string(amount)});
    }
    void move(const std::string& from, const std::string& to, int amount) {
        const int left = balance(from) - amount;
        const int more = balance(to) + amount;
        set_balance(from, left);
        set_balance(to, more);
    }

private:
    example::PlainRedis redis_;
};

void transfer(redlatch::Client& redis, Bank& bank, const std::string& from, const std::string& to) {
    // [lock_set]
    redlatch::LockSet both{redis, {from, to}};  // in whatever order
    {
        std::lock_guard scope{both};
        bank.move(from, to, 1);
    }
    // [lock_set]
}

void transfer_all(redlatch::Client& redis, const std::string& uri, std::size_t teller) {
    Bank bank{uri};
    for (std::size_t i = 0; i < transfers_of_each; ++i) {
        const std::size_t from = (teller + i) % accounts.size();
        const std::size_t to = (from + 1 + (teller + i) % 2) % accounts.size();
        transfer(redis, bank, accounts[from], accounts[to]);
    }
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        Bank bank{uri};
        for (const char* const account : accounts) bank.set_balance(account, 1000);
        const auto counter = std::make_shared<Counter>();
        constexpr std::size_t tellers = 6;
        constexpr int transfers = static_cast<int>(tellers) * transfers_of_each;
        {
            redlatch::ClientOptions options = example::options_for(uri);
            options.observer = counter;
            redlatch::Client here{options};
            redlatch::Client there{options};  // stands for another process
            std::vector<std::jthread> threads;
            for (std::size_t i = 0; i < tellers; ++i) {
                threads.emplace_back([&, i] { transfer_all(i % 2 == 0 ? here : there, uri, i); });
            }
            threads.clear();
            // Observers hear of it a little later.
            const auto end = redlatch::Clock::now() + 10s;
            while (counter->taken() < 2 * transfers && redlatch::Clock::now() < end) {
                std::this_thread::sleep_for(1ms);
            }
        }
        int sum = 0;
        for (const char* const account : accounts) sum += bank.balance(account);
        std::printf("%d transfers, %d locks taken, sum %d\n", transfers, counter->taken(), sum);
        example::require(sum == 3000, "no money is made or lost");
        example::require(counter->taken() == 2 * transfers, "no lock is taken in vain");
    });
}
