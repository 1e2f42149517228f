// One stock that many sell from at once. Under one lock they would sell one after the other; so the stock lies
// in shards, each with a lock of its own, and a seller goes on to the next shard where one is empty.

#include "own_redis.hpp"
#include "plain_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

constexpr std::size_t shards = 4;
constexpr int stock_of_each = 10;

/// The stock, which knows of no lock: read, think, write.
class Stock {
public:
    explicit Stock(const std::string& uri) : redis_(uri) {}

    void set(std::size_t shard, int number) {
        redis_.command({"SET", key(shard), std::to_string(number)});
    }
    bool take_one(std::size_t shard) {
        const int left = std::stoi(redis_.command({"GET", key(shard)})->str);
        if (left == 0) return false;
        std::this_thread::sleep_for(1ms);
        set(shard, left - 1);
        return true;
    }

private:
    static std::string key(std::size_t shard) { return "left:" + std::to_string(shard); }

    example::PlainRedis redis_;
};

bool sell_one(redlatch::Client& redis, Stock& stock, std::size_t seller) {
    // [sharded_counter]
    for (std::size_t i = 0; i < shards; ++i) {
        const std::size_t shard = (seller + i) % shards;  // each begins at another one
        redlatch::Lock<> lock{redis, "stock:" + std::to_string(shard)};
        std::lock_guard scope{lock};
        if (stock.take_one(shard)) return true;
    }
    return false;  // all shards are empty
    // [sharded_counter]
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        Stock stock{uri};
        for (std::size_t shard = 0; shard < shards; ++shard) stock.set(shard, stock_of_each);
        std::atomic<int> sold{0};
        {
            redlatch::Client redis{example::options_for(uri)};
            std::vector<std::jthread> sellers;
            for (std::size_t seller = 0; seller < 6; ++seller) {
                sellers.emplace_back([&, seller] {
                    Stock own_view{uri};
                    while (sell_one(redis, own_view, seller)) ++sold;
                });
            }
            sellers.clear();
        }
        std::printf("%d sold\n", sold.load());
        example::require(sold == static_cast<int>(shards) * stock_of_each, "all is sold, once");
    });
}
