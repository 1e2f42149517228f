// Random walks over the scripts of locks with claims find nothing, and find each bug that is put in.

#include "claim_walk.hpp"

#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>

namespace redlatch::test {
namespace {

constexpr int steps = 600;

/// The violation in the walk of that seed; empty for none.
std::string violation_in(ClaimWalk& walk, unsigned seed) {
    try {
        walk.run(seed, steps);
    } catch (const ClaimWalk::Violation& violation) {
        return violation.what() + (" with seed " + std::to_string(seed)) + "\n" + walk.story();
    }
    return {};
}

/// The first violation in some seeds; empty for none.
std::string walk(ClaimKind kind, unsigned first_seed, unsigned seeds) {
    ClaimWalk walk{kind};
    std::string violation;
    for (unsigned seed = first_seed; violation.empty() && seed < first_seed + seeds; ++seed) {
        violation = violation_in(walk, seed);
    }
    return violation;
}

unsigned seeds() {
    const char* const wanted = std::getenv("REDLATCH_CLAIM_WALKS");
    return wanted == nullptr ? 10 : static_cast<unsigned>(std::atoi(wanted));
}

class ClaimWalks : public ::testing::TestWithParam<unsigned> {};

INSTANTIATE_TEST_SUITE_P(Batch, ClaimWalks, ::testing::Range(0U, 8U));

TEST_P(ClaimWalks, of_readers_and_writers_find_nothing) {
    EXPECT_EQ(walk(ClaimKind::shared, 1000 * GetParam(), seeds()), "");
}

TEST_P(ClaimWalks, of_permits_find_nothing) {
    EXPECT_EQ(walk(ClaimKind::permits, 1000 * GetParam(), seeds()), "");
}

constexpr ScriptBug bugs[] = {
    {"no_reaping", "", "if #over > 0 then", "if false then"},
    {"reaped_claims_count_one", "", "freed = freed + string.match(claim, '^%d+')",
     "freed = freed + 1"},
    {"newcomers_barge", "acquire", "waiting == 0 and fits(weight, limit)", "fits(weight, limit)"},
    {"acquire_twice_takes_twice", "acquire", "\nif ours then", "\nif false then"},
    {"a_command_shortens", "", "local its_end = math.max(clock() + its_lease * 1000, had or 0)",
     "local its_end = clock() + its_lease * 1000"},
    {"late_commands_run", "", "if deadline > 0 and clock() > deadline then", "if false then"},
    {"release_frees_anyway", "release", "local ours = not foreign and claim_of(token, weight)",
     "local ours = not foreign and redis.call('ZRANGE', lock, 1, 1)[1]"},
    {"extend_revives", "extend", "if not ours or tonumber(its_end) <= clock() then\n",
     "if not ours then ours = weight .. ' ' .. token; hold(ours, lease) its_end = 0 end\nif false "
     "then\n"},
    {"one_reader_at_a_time", "", "given < 256", "given < 1"},
    {"leaving_wakes_nobody", "release", "if foreign then\n  return foreign\nend",
     "if foreign or not ours then\n  return foreign or 0\nend"},
    {"last_try_wakes_nobody", "acquire", "if queue_ttl < 0 and blocked then", "if false then"},
    {"place_keeps_its_lease", "acquire", "waiter == caller and caller_lease or ", ""},
    {"downgrade_wakes_nobody", "downgrade", "pcall(grant)\nreturn 1", "return 1"},
    {"reaping_wakes_nobody", "acquire", "  if waiting > 0 then\n    pcall(grant)",
     "  if false then\n    pcall(grant)"},
    {"downgraded_writer_is_forgotten", "acquire", "if not its_end and kind == 'shared' then",
     "if false then"},
    {"release_of_one_form", "release", "if not its_end and kind == 'shared' then", "if false then"},
    {"extension_of_one_form", "extend", "if not its_end and kind == 'shared' then",
     "if false then"},
    {"move_of_one_form", "move", "if not its_end and kind == 'shared' then", "if false then"},
    {"setting_is_forgotten", "", "redis.pcall('PEXPIRE', permits,",
     "redis.pcall('EXISTS', permits,"},
    {"downgrade_that_was_lost_stays_lost", "extend",
     "if weight == 1 and ours ~=", "if false and ours ~="},
    {"lock_without_end", "", "local done = redis.pcall('PEXPIRE', lock,",
     "local done = redis.pcall('EXISTS', lock,"},
    {"queue_without_end", "", "redis.pcall('PEXPIRE', queue, 2 * queue_ttl)",
     "redis.pcall('EXISTS', queue)"},
    {"blocked_one_is_skipped", "", "        blocked = true\n        break\n",
     "        kept = kept + 1\n"},
    {"dead_waiters_are_served", "", "(waiter == caller or tonumber(alive_until) > clock())",
     "true"},
    {"one_too_many", "", "return used + its_weight <= most(its_limit)",
     "return used + its_weight <= 1 + most(its_limit)"},
    {"too_much_blocks", "", "or alive and its_weight < all and its_weight > most(its_limit)", ""},
    {"writer_beside_readers", "", "    return used == 0\n", "    return used < 2\n"},
    {"writer_never_fits", "", "    return used == 0\n",
     "    return used == 0 and redis.call('ZCARD', queue) < 1\n"},
    {"setting_wakes_nobody", "set_permits", "pcall(grant)\nreturn counts", "return counts"},
    {"older_setting_counts", "set_permits", "local counts = issued > last or value == setting",
     "local counts = true"},
    {"fencing_token_repeats", "", "return fencing_token(had or not is_writer)",
     "return fencing_token(true)"},
    {"readers_get_their_own", "", "return fencing_token(had or not is_writer)",
     "return fencing_token(had)"},
    {"extension_wants_memory", "",
     "    redis.call('ZREM', lock, '')\n    redis.call('ZADD', lock, exact(its_end), claim)\n",
     "    redis.call('ZADD', lock, exact(its_end), claim)\n"},
    {"kinds_share_a_sum", "", "local sum = redis.call('ZSCORE', lock, kind)",
     "local sum = redis.call('ZRANGE', lock, 0, 0, 'WITHSCORES')[2]"},
};

class ClaimBugs : public ::testing::TestWithParam<ScriptBug> {};

INSTANTIATE_TEST_SUITE_P(Bug, ClaimBugs, ::testing::ValuesIn(bugs),
                         [](const auto& bug) { return std::string{bug.param.name}; });

TEST_P(ClaimBugs, is_found) {
    const ScriptBug bug = GetParam();
    std::deque<ClaimWalk> walks;
    for (const ClaimKind kind : {ClaimKind::shared, ClaimKind::permits}) {
        try {
            walks.emplace_back(kind, &bug);
        } catch (const std::logic_error&) {  // that kind has no such line
        }
    }
    // In turn: most bugs are one kind's, which finds them soon.
    for (unsigned seed = 0; seed < 60; ++seed) {
        for (ClaimWalk& walk : walks) {
            const std::string violation = violation_in(walk, seed);
            if (violation.empty()) continue;
            RecordProperty("found", violation.substr(0, violation.find('\n')));
            return;
        }
    }
    ADD_FAILURE() << "not found";
}

}  // namespace
}  // namespace redlatch::test
