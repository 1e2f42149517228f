#include "store.hpp"

#include "../history/holds.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace redlatch::test::fault {
namespace {

std::vector<Event> accepted_writes(const History& history) {
    std::vector<Event> writes;
    for (const Event& event : history) {
        if (event.op == Op::write && event.outcome == "accepted") writes.push_back(event);
    }
    std::ranges::sort(writes, {}, [](const Event& event) { return event.counts.at("order"); });
    return writes;
}

}  // namespace

Violations check_fenced_store(const History& history) {
    std::map<std::pair<int, std::uint64_t>, HoldRecord> holds;
    for (HoldRecord& hold : holds_of(history)) {
        holds[{hold.process, hold.number}] = std::move(hold);
    }
    struct Lock {
        std::uint64_t highest = 0;
        Time newest{};  // when the acquisition of the latest hold that has written began
    };
    Violations found;
    std::map<std::string, Lock> locks;
    for (const Event& write : accepted_writes(history)) {
        if (write.fence == 0) continue;
        Lock& lock = locks[write.lock];
        const std::string what = write.lock + ": " + std::to_string(write.fence);
        if (write.fence < lock.highest) {
            found.push_back({"fenced store",
                             what + " was accepted after " + std::to_string(lock.highest),
                             write.at});
        }
        lock.highest = std::max(lock.highest, write.fence);
        const auto hold = holds.find({write.process, write.hold});
        if (hold == holds.end()) continue;
        if (hold->second.acquired < lock.newest) {
            found.push_back(
                {"fenced store", what + " was accepted of a holder of before", write.at});
        }
        lock.newest = std::max(lock.newest, hold->second.invoked);
    }
    return found;
}

Violations check_lost_updates(const History& history) {
    Violations found;
    std::map<std::string, long long> value;
    for (const Event& write : accepted_writes(history)) {
        long long& last = value[write.lock];
        const long long read = write.counts.at("read");
        if (read != last) {
            found.push_back({"lost update",
                             write.lock + ": " + std::to_string(write.process) + "/" +
                                 std::to_string(write.hold) + " had read " + std::to_string(read) +
                                 " and wrote over " + std::to_string(last),
                             write.at});
        }
        last = write.counts.at("wrote");
    }
    return found;
}

}  // namespace redlatch::test::fault
