// Several workers go through one list of orders. Each takes what nobody else is at, and waits for nobody.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <array>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

/// A table of a database: how often each order was sent.
class Orders {
public:
    explicit Orders(int number) {
        for (int i = 1; i <= number; ++i) sent_["order:" + std::to_string(i)] = 0;
    }
    std::vector<std::string> open() {
        const std::scoped_lock section{mutex_};
        std::vector<std::string> names;
        for (const auto& [name, times] : sent_) {
            if (times == 0) names.push_back(name);
        }
        return names;
    }
    bool is_sent(const std::string& name) {
        const std::scoped_lock section{mutex_};
        return sent_.at(name) != 0;
    }
    void send(const std::string& name) {
        std::this_thread::sleep_for(2ms);
        const std::scoped_lock section{mutex_};
        ++sent_.at(name);
    }
    bool all_were_sent_once() {
        const std::scoped_lock section{mutex_};
        for (const auto& order : sent_) {
            if (order.second != 1) return false;
        }
        return true;
    }

private:
    std::mutex mutex_;
    std::map<std::string, int> sent_;
};

/// Returns how many it has sent.
int work(redlatch::Client& redis, Orders& orders) {
    int sent = 0;
    // [batch_worker]
    for (const std::string& order : orders.open()) {
        redlatch::Lock<> lock{redis, order};
        if (!lock.try_lock()) continue;  // another worker is at it
        std::lock_guard scope{lock, std::adopt_lock};
        if (orders.is_sent(order)) continue;  // since the list was made
        orders.send(order);
        ++sent;
    }
    // [batch_worker]
    return sent;
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        Orders orders{60};
        {
            std::array<std::jthread, 3> workers;
            for (std::jthread& worker : workers) {
                worker = std::jthread{[&] {
                    redlatch::Client redis{example::options_for(uri)};
                    std::printf("a worker has sent %d orders\n", work(redis, orders));
                }};
            }
        }
        example::require(orders.all_were_sent_once(), "each order is sent once");
    });
}
