// Fifty coupons, twelve buyers in three processes, one real Redis. Buying is not atomic, on purpose:
// read the stock, think for a moment, write back one less, note the sale. Without a lock that sells
// coupons twice; with a lock it sells exactly fifty. How the buyers wait for the lock makes the
// difference between many commands and few, and between a long wait and a short one.

#include "own_redis.hpp"
#include "plain_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;  // one and the same for all processes of a machine
using std::chrono::nanoseconds;

namespace {

constexpr int coupons = 50;
constexpr int processes = 3;
constexpr int threads = 4;
constexpr int buyers = processes * threads;
constexpr auto thinking = 2ms;

/// The shop's data in Redis, over a plain hiredis connection. It knows of no lock.
class Shop {
public:
    explicit Shop(const std::string& uri) : redis_(uri) {}

    /// `unix://path` and `redis://host[:port]`: a shop is no more than that.
    static bool understands(const std::string& uri) {
        const bool scheme = uri.starts_with("unix:///") || uri.starts_with("redis://");
        const bool path = uri.starts_with("redis://") && uri.find('/', 8) != std::string::npos;
        return scheme && !path && uri.find_first_of("@?[ ") == std::string::npos;
    }

    int stock() { return std::atoi(command({"GET", stock_key})->str); }
    void set_stock(int left) { command({"SET", stock_key, std::to_string(left)}); }
    void note_sale(int coupon) { command({"RPUSH", sales_key, std::to_string(coupon)}); }

    void open() {
        command({"DEL", sales_key});
        set_stock(coupons);
    }
    void close() { command({"DEL", sales_key, stock_key}); }

    /// The number of each coupon that was sold.
    std::vector<int> sales() {
        const Reply list = command({"LRANGE", sales_key, "0", "-1"});
        std::vector<int> numbers;
        for (std::size_t i = 0; i < list->elements; ++i) {
            numbers.push_back(std::atoi(list->element[i]->str));
        }
        return numbers;
    }

    /// A section of the server's INFO.
    std::string info(const std::string& section) { return command({"INFO", section})->str; }

private:
    using Reply = example::PlainRedis::Reply;

    static constexpr const char* stock_key = "coupon_rush:stock";
    static constexpr const char* sales_key = "coupon_rush:sales";

    Reply command(const std::vector<std::string>& words) { return redis_.command(words); }

    example::PlainRedis redis_;
};

/// What a buyer has to tell afterwards.
struct Report {
    int sections = 0;
    nanoseconds longest_wait{};
    SteadyClock::time_point began{};
    SteadyClock::time_point ended{};
};

/// Memory that all processes of one rush share.
struct Rush {
    std::atomic<int> at_the_line{0};
    std::array<Report, buyers> reports{};

    /// Returns when all buyers have come here.
    void wait_at_the_line() {
        ++at_the_line;
        const auto end = SteadyClock::now() + 30s;
        while (at_the_line < buyers) {
            example::require(SteadyClock::now() < end, "all buyers come to the line");
            std::this_thread::sleep_for(1ms);
        }
    }
};

/// The section that two buyers must not be in at once. False when all is sold.
bool buy_one(Shop& shop, const std::function<void()>& think) {
    const int stock = shop.stock();
    if (stock <= 0) return false;
    think();
    shop.set_stock(stock - 1);
    shop.note_sale(stock);
    return true;
}

/// At the line, everybody has looked at the stock already and nobody has written it: so the race is
/// certain, and not only likely.
void buy_without_lock(Rush& rush, Shop& shop, Report& report) {
    bool first = true;
    const auto think = [&] {
        if (std::exchange(first, false)) {
            rush.wait_at_the_line();
            report.began = SteadyClock::now();
        }
        std::this_thread::sleep_for(thinking);
    };
    bool bought = true;
    while (bought) {
        bought = buy_one(shop, think);
        ++report.sections;
    }
}

void buy_with_lock(Rush& rush, Shop& shop, Report& report,
                   redlatch::Lock<redlatch::Reentrant>& lock) {
    rush.wait_at_the_line();
    report.began = SteadyClock::now();
    bool bought = true;
    while (bought) {
        const auto before = SteadyClock::now();
        std::lock_guard scope{lock};
        report.longest_wait =
            std::max<nanoseconds>(report.longest_wait, SteadyClock::now() - before);
        bought = buy_one(shop, [] { std::this_thread::sleep_for(thinking); });
        ++report.sections;
    }
}

enum class Way { without_lock, polling, granted };

/// Where things are: a redis-server for both or, where the locks are on something that a shop does not
/// understand, each its own.
struct Place {
    std::string locks;
    std::string shop;

    bool is_one() const { return locks == shop; }
};

/// One process of the rush: a client, a lock, and four threads that share them.
void buy_in_threads(const Place& place, Way way, Rush& rush, int process) {
    redlatch::Client redis{example::options_for(place.locks)};
    const auto strategy =
        way == Way::polling ? redlatch::WaitStrategy::polling : redlatch::WaitStrategy::queued;
    redlatch::Lock<redlatch::Reentrant> lock{redis, "coupon_rush", {.wait_strategy = strategy}};
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            try {
                Shop shop{place.shop};
                Report& report = rush.reports[static_cast<std::size_t>(process * threads + i)];
                if (way == Way::without_lock) {
                    buy_without_lock(rush, shop, report);
                } else {
                    buy_with_lock(rush, shop, report, lock);
                }
                report.ended = SteadyClock::now();
            } catch (const std::exception& error) {
                std::fprintf(stderr, "FAILED: a buyer: %s\n", error.what());
                std::_Exit(1);
            }
        });
    }
}

::pid_t start_process(const std::function<void()>& body) {
    const ::pid_t parent = ::getpid();
    const ::pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    body();
    ::_exit(0);
}

/// How many EVALSHA and EVAL the server has seen. Nobody but the locks sends any, and a reentrant
/// lock sends nothing else.
int lock_commands(Shop& shop) {
    const std::string stats = shop.info("commandstats");
    int sum = 0;
    for (const std::string_view name : {"cmdstat_evalsha:calls=", "cmdstat_eval:calls="}) {
        const auto at = stats.find(name);
        if (at != std::string::npos) sum += std::atoi(&stats[at + name.size()]);
    }
    return sum;
}

struct Outcome {
    int sold = 0;
    int oversold = 0;  // sales of a coupon that had been sold before
    int sections = 0;
    double seconds = 0;
    std::optional<int> commands{};  // of locks, where they can be counted
    nanoseconds longest_wait{};

    bool exact() const { return sold == coupons && oversold == 0; }
};

Outcome run_rush(const Place& place, Way way) {
    void* const memory =
        ::mmap(nullptr, sizeof(Rush), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error{"mmap"};
    Rush& rush = *new (memory) Rush;

    Shop shop{place.shop};
    shop.open();
    const int commands_before = lock_commands(shop);

    std::vector<::pid_t> children;
    for (int i = 0; i < processes; ++i) {
        children.push_back(start_process([&] { buy_in_threads(place, way, rush, i); }));
    }
    for (const ::pid_t child : children) {
        int status = -1;
        ::waitpid(child, &status, 0);
        example::require(status == 0, "every process of buyers ends well");
    }

    Outcome outcome;
    if (place.is_one()) outcome.commands = lock_commands(shop) - commands_before;
    const std::vector<int> sales = shop.sales();
    outcome.sold = static_cast<int>(sales.size());
    outcome.oversold = outcome.sold - static_cast<int>(std::set(sales.begin(), sales.end()).size());
    auto began = SteadyClock::time_point::max();
    auto ended = SteadyClock::time_point::min();
    for (const Report& report : rush.reports) {
        began = std::min(began, report.began);
        ended = std::max(ended, report.ended);
        outcome.sections += report.sections;
        outcome.longest_wait = std::max(outcome.longest_wait, report.longest_wait);
    }
    outcome.seconds = std::chrono::duration<double>(ended - began).count();
    shop.close();
    ::munmap(memory, sizeof(Rush));
    return outcome;
}

void print_row(const char* way, const Outcome& outcome) {
    const double waited_ms =
        std::chrono::duration<double, std::milli>(outcome.longest_wait).count();
    const std::string wait = std::to_string(std::lround(waited_ms)) + " ms";
    std::array<char, 16> commands{"-"};
    if (outcome.commands) {
        std::snprintf(commands.data(), commands.size(), "%.1f",
                      static_cast<double>(*outcome.commands) / outcome.sections);
    }
    std::printf("  %-14s %6d %10d %14.0f %15s %14s\n", way, outcome.sold, outcome.oversold,
                outcome.sections / outcome.seconds, commands.data(),
                waited_ms > 0 ? wait.c_str() : "-");
    std::fflush(stdout);
}

std::string server_version(Shop&& shop) {
    const std::string info = shop.info("server");
    const auto at = info.find("redis_version:") + 14;
    return info.substr(at, info.find('\r', at) - at);
}

void coupon_rush(const std::string& uri) {
    std::optional<redlatch::TestServer> own;
    Place place{.locks = uri, .shop = uri};
    if (!Shop::understands(uri)) {
        place.shop = own.emplace().uri();
        example::wait_for(place.shop);
    }
    std::printf("\nCoupon rush: %d coupons, %d processes with %d buyers each, ", coupons, processes,
                threads);
    std::printf(place.is_one() ? "one redis-server %s\n\n"
                               : "locks where the URI says, the shop on a redis-server %s\n\n",
                server_version(Shop{place.shop}).c_str());
    std::printf("  %-14s %6s %10s %14s %15s %14s\n", "", "", "", "sections", "lock commands",
                "longest wait");
    std::printf("  %-14s %6s %10s %14s %15s %14s\n", "way", "sold", "oversold", "per second",
                "per section", "for the lock");
    std::printf("  %s\n", std::string(78, '-').c_str());
    const Outcome without = run_rush(place, Way::without_lock);
    print_row("without lock", without);
    const Outcome polling = run_rush(place, Way::polling);
    print_row("lock, polling", polling);
    const Outcome granted = run_rush(place, Way::granted);
    print_row("lock, granted", granted);

    std::printf(
        "\n"
        "A section: read the stock, think for %d ms, write back one less, note the sale; each\n"
        "buyer's last one finds the stock at 0. Oversold: sales of a coupon sold before.\n"
        "Lock commands: every EVALSHA and EVAL that INFO commandstats counts; only the lock\n"
        "sends any. Without a lock sections overlap, so there are more of them per second.\n\n",
        static_cast<int>(thinking.count()));

    example::require(without.oversold > 0, "twelve buyers without a lock oversell");
    example::require(polling.exact() && granted.exact(),
                     "with a lock each of the 50 coupons is sold once");
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, coupon_rush);
}
