#include "store.hpp"

#include <algorithm>
#include <map>
#include <string>

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
    Violations found;
    std::map<std::string, std::uint64_t> highest;
    for (const Event& write : accepted_writes(history)) {
        if (write.fence == 0) continue;
        std::uint64_t& last = highest[write.lock];
        if (write.fence < last) {
            found.push_back({"fenced store",
                             write.lock + ": " + std::to_string(write.fence) +
                                 " was accepted after " + std::to_string(last),
                             write.at});
        }
        last = std::max(last, write.fence);
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
