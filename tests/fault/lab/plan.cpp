#include "plan.hpp"

#include <nlohmann/json.hpp>

// The library looks for these two in the type's namespace; milliseconds have none of ours.
template <>
struct nlohmann::adl_serializer<std::chrono::milliseconds> {
    static void to_json(json& to, std::chrono::milliseconds from) { to = from.count(); }
    static void from_json(const json& from, std::chrono::milliseconds& to) {
        to = std::chrono::milliseconds{from.get<long long>()};
    }
};

namespace redlatch::test::fault {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Range, least, most)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Habits, lease, wait, work, no_wait, polls, nests, extends,
                                   at_the_end, listens, lingers, hangs, shares, mixes, endless,
                                   brief, briefly, lasting, lastingly, reads, downgrades, cancels,
                                   abandons, stalls)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ClientPlan, servers, store, history, seed, subject, threads,
                                   coroutines, names, command_timeout, only_fences, trusts_masters,
                                   slow_observer, closes, habits)

std::string to_text(const ClientPlan& plan) {
    return nlohmann::json(plan).dump();
}

ClientPlan plan_from_text(const std::string& text) {
    return nlohmann::json::parse(text).get<ClientPlan>();
}

}  // namespace redlatch::test::fault
