// One of several nodes leads. Who is elected leads until it resigns, or hears that it has lost the lock; the
// next one in the queue follows. What a former leader still sends, the store refuses by its fencing token.

#include "own_redis.hpp"
#include <redlatch/redlatch.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

using Election = redlatch::Lock<redlatch::Watchdog<redlatch::Fenced<redlatch::Simple>>>;

/// Something that only the leader may change, on a machine of its own.
class Schedule {
public:
    /// False for a leader of earlier.
    bool change(std::uint64_t fence, int node) {
        const std::scoped_lock section{mutex_};
        if (fence < latest_) return false;
        latest_ = fence;
        changed_by_ = node;
        return true;
    }
    int leader() {
        const std::scoped_lock section{mutex_};
        return changed_by_;
    }
    /// Waits until that node has changed it, and tells with which fencing token.
    std::uint64_t changed_by(int node) {
        for (;; std::this_thread::sleep_for(5ms)) {
            const std::scoped_lock section{mutex_};
            if (changed_by_ == node) return latest_;
        }
    }

private:
    std::mutex mutex_;
    std::uint64_t latest_ = 0;
    int changed_by_ = -1;
};

void work() {
    std::this_thread::sleep_for(5ms);
}

void report(const redlatch::Error& error) {
    std::fprintf(stderr, "no election: %s\n", error.describe().c_str());
}

/// Takes part in the election until `stop`.
void take_part(redlatch::Client& redis, Schedule& schedule, int node, std::stop_token stop) {
    // [leader_election]
    // A dead leader's lock is kept two seconds longer, as what it has sent last may still be on its way.
    Election election{redis, "leader:scheduler", {.lease = 10s, .lock_delay = 2s}};

    while (!stop.stop_requested()) {
        const auto elected = election.acquire({.stop = stop});  // waits for its turn
        if (!elected) {
            if (elected.error().code == redlatch::Errc::cancelled) break;
            report(elected.error());  // a password that has changed, say
            std::this_thread::sleep_for(1s);
            continue;
        }
        const std::stop_token lost = elected->lost();
        while (!lost.stop_requested() && !stop.stop_requested()) {
            if (!schedule.change(elected->fence(), node)) break;  // there is a later leader
            work();
        }
    }  // resigns here, and comes back behind the others
    // [leader_election]
}

}  // namespace

int main(int argc, char** argv) {
    return example::run(argc, argv, [](const std::string& uri) {
        std::array nodes{redlatch::Client{example::options_for(uri)},
                         redlatch::Client{example::options_for(uri)}};
        Schedule schedule;
        const auto start = [&](int node) {
            return std::jthread{[&, node](std::stop_token stop) {
                take_part(nodes.at(static_cast<std::size_t>(node)), schedule, node, stop);
            }};
        };
        std::jthread first = start(0);
        const std::uint64_t fence = schedule.changed_by(0);
        std::jthread second = start(1);

        redlatch::Client console{example::options_for(uri)};
        Election election{console, "leader:scheduler"};
        while (election.inspect().value().waiters == 0) std::this_thread::sleep_for(5ms);
        std::printf("node 0 leads, node 1 waits; an operator removes node 0\n");
        while (schedule.leader() == 0) {  // once more if it was elected again
            static_cast<void>(election.force_unlock());
            std::this_thread::sleep_for(100ms);
        }
        const std::uint64_t later = schedule.changed_by(1);
        example::require(later > fence, "each election has a greater fencing token");
        example::require(!schedule.change(fence, 0), "a leader of earlier is refused");

        std::printf("node 1 resigns\n");
        second.request_stop();
        example::require(schedule.changed_by(0) > later, "node 0 leads again");
        first.request_stop();
        first.join();
        second.join();
        example::require(!election.inspect().value().locked, "nobody leads any more");
    });
}
