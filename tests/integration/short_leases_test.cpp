// Leases so short that a hold is over before its taker has run again, thousands of them: nothing of them
// may stay behind.

#include "lock_test.hpp"
#include <redlatch/metrics.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace redlatch::test {
namespace {

/// Somebody listens, so that holds are declared lost when their validity ends.
std::unique_ptr<Client> observed_client(const RedisServer& server) {
    ClientOptions options;
    options.uris = {Uri{server.uri()}};
    options.observer = std::make_shared<Metrics>();
    return std::make_unique<Client>(options);
}

template <class Policy>
class ShortLeases : public LockTest {
protected:
    /// Acquisitions by some threads, until there were enough or the time is over. On a busy machine a lease may be over
    /// before its answer is there, again and again.
    void take_again_and_again(Drift drift, Lease lease) {
        constexpr int enough = 12'000;
        constexpr int threads = 6;
        const auto start = std::chrono::steady_clock::now();
        std::atomic<int> tries{0};
        std::atomic<int> had{0};
        const auto goes_on = [&] {
            if (had == 0) return std::chrono::steady_clock::now() < start + 6 * generous_limit;
            return tries < enough && std::chrono::steady_clock::now() < start + 6s;
        };
        std::vector<std::jthread> running;
        for (int i = 0; i < threads; ++i) {
            running.emplace_back([&] {
                Lock<Policy> lock{*client_, "job", {.lease = lease, .drift = drift}};
                while (goes_on()) {
                    ++tries;
                    if (lock.acquire({.wait = 20ms})) ++had;
                }
            });
        }
        running.clear();
        EXPECT_GT(had, 0);
    }

    /// Whoever asks gets the lock, as the leases are over.
    void expect_alive() {
        Lock<Policy> lock{*client_, "job"};
        const auto held = lock.acquire({.wait = generous_limit});
        EXPECT_TRUE(held.has_value()) << held.error().describe();
        EXPECT_TRUE(Lock<Policy>(other_client_, "job").inspect().has_value());
    }

    std::unique_ptr<Client> client_ = observed_client(server_);
};

using Policies = ::testing::Types<Simple, Reentrant, Watchdog<Simple>>;
TYPED_TEST_SUITE(ShortLeases, Policies);

TYPED_TEST(ShortLeases, a_validity_of_a_moment_leaves_nothing_dead_behind) {
    this->take_again_and_again({.factor = 0, .floor = 9ms}, 10ms);
    this->expect_alive();
}

TYPED_TEST(ShortLeases, leaves_nothing_dead_behind) {
    this->take_again_and_again({}, 10ms);
    this->expect_alive();
}

}  // namespace
}  // namespace redlatch::test
