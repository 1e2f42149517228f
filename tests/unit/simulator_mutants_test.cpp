// The simulator finds mistakes: each of these is put in on purpose, into the scripts, into what drives the
// machines, or into the machines themselves (simulator/machine_mutants.cmake).
//
// REDLATCH_SCHEDULES says how many schedules each may take. REDLATCH_TRACE prints what happened.

#include "simulator/play.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <redlatch_mutant.hpp>
#include <string>
#include <string_view>

namespace redlatch::test::simulator {
namespace {

/// Those that take longer than the usual run, or that no run has found so far (docs/guarantees.md).
constexpr std::array<std::string_view, 31> only_on_demand{"cut_short_is_told",
                                                          "older_answer_believed",
                                                          "turn_beside_an_adopted_hold_forgotten",
                                                          "longer_lease_forgotten",
                                                          "late_answer_ends_a_lock_delay",
                                                          "deleted_key_read",
                                                          "open_try_not_told",
                                                          "place_not_withdrawn",
                                                          "overdue_hold_taken_over",
                                                          "polls_with_a_place",
                                                          "repetition_forgotten",
                                                          "fence_stored_by_few",
                                                          "kept_by_a_closed_client",
                                                          "late_master_forgotten",
                                                          "lock_delay_prolonged_for_ever",
                                                          "one_sentinel_asked",
                                                          "asked_master_forgotten",
                                                          "votes_returned_by_few",
                                                          "late_masters_not_told",
                                                          "silent_master_did_nothing",
                                                          "broken_connection_forgotten",
                                                          "one_late_answer_ends_all",
                                                          "never_overtakes",
                                                          "place_keeps_lease",
                                                          "prolonged_for_nobody",
                                                          "unanswered_renewal_did_nothing",
                                                          "unclear_hop_forgotten",
                                                          "renewal_under_way_forgotten",
                                                          "extension_under_way_forgotten",
                                                          "extension_of_one_who_left_forgotten",
                                                          "replaced_connection_forgotten"};

constexpr std::uint64_t usual_count = 20'000;

void expect_found(std::string_view name, Mutant mutant) {
    const char* const wanted = std::getenv("REDLATCH_SCHEDULES");
    const bool on_demand = std::ranges::find(only_on_demand, name) != only_on_demand.end();
    if (on_demand && wanted == nullptr) GTEST_SKIP() << "only where REDLATCH_SCHEDULES is set";
    const std::uint64_t most = wanted == nullptr ? usual_count : std::strtoull(wanted, nullptr, 10);
    for (std::uint64_t seed = 1; seed <= most; ++seed) {
        const Plan plan = draw_plan(seed, mutant);
        const auto wrong = violation(plan);
        if (!wrong) continue;
        std::cout << "in schedule " << seed << ": " << *wrong << '\n';
        if (std::getenv("REDLATCH_TRACE") != nullptr) std::cout << smallest(plan, kind_of(*wrong));
        return;
    }
    FAIL() << "not in " << most << " schedules";
}

struct Control {
    const char* name;
    Mutant mutant;
};

constexpr std::array controls{
    Control{"late_grant_believed", Mutant::late_grant_believed},
    Control{"lease_shortened", Mutant::lease_shortened},
    Control{"anchor_kept_over_failover", Mutant::anchor_kept},
    Control{"dead_token_used", Mutant::dead_token_used},
    Control{"plain_delete", Mutant::plain_delete},
    Control{"counted_from_arrival", Mutant::counted_from_arrival},
    Control{"no_recheck", Mutant::no_recheck},
    Control{"unknown_grant_ignored", Mutant::unknown_grant_ignored},
    Control{"shared_queue", Mutant::shared_queue},
    Control{"last_come_first_served", Mutant::last_come_first_served},
    Control{"late_commands_run", Mutant::late_commands_run},
    Control{"fence_without_clock", Mutant::fence_without_clock},
    Control{"fence_without_memory", Mutant::fence_without_memory},
    Control{"fence_not_granted", Mutant::fence_not_granted},
    Control{"anyones_extended", Mutant::anyones_extended},
    Control{"released_renewed", Mutant::released_renewed},
    Control{"extension_releases", Mutant::extension_releases},
    Control{"lost_hold_kept", Mutant::lost_hold_kept},
    Control{"hand_off_wakes_nobody", Mutant::hand_off_wakes_nobody},
    Control{"loss_told_late", Mutant::loss_told_late},
    Control{"nesting_goes_on", Mutant::nesting_goes_on},
    Control{"close_told_as_loss", Mutant::close_told_as_loss},
    Control{"moved_token_left", Mutant::moved_token_left},
    Control{"nested_end_stops_renewal", Mutant::nested_end_stops_renewal},
    Control{"hand_off_without_limit", Mutant::hand_off_without_limit},
    Control{"place_not_withdrawn", Mutant::place_not_withdrawn},
    Control{"unclear_try_forgotten", Mutant::unclear_try_forgotten},
    Control{"failed_script_deletes", Mutant::failed_script_deletes},
    Control{"queue_left_without_end", Mutant::queue_left_without_end},
    Control{"own_hold_nested_in", Mutant::own_hold_nested_in},
    Control{"min_hold_forgotten", Mutant::min_hold_forgotten},
    Control{"delivered_when_over", Mutant::delivered_when_over},
    Control{"renewed_undelivered", Mutant::renewed_undelivered},
    Control{"late_answer_unheard", Mutant::late_answer_unheard},
    Control{"late_answer_to_anyone", Mutant::late_answer_to_anyone},
    Control{"late_answer_of_nobody_ignored", Mutant::late_answer_of_nobody_ignored},
    Control{"late_answer_counted_from_arrival", Mutant::late_answer_counted_from_arrival},
    Control{"untaken_kept", Mutant::untaken_kept},
    Control{"earlier_acknowledged", Mutant::earlier_acknowledged},
    Control{"writer_beside_readers", Mutant::writer_beside_readers},
    Control{"one_too_many", Mutant::one_too_many},
    Control{"one_at_a_time", Mutant::one_at_a_time},
    Control{"overtaken", Mutant::overtaken},
    Control{"claim_counted_on", Mutant::claim_counted_on},
    Control{"released_to_nobody", Mutant::released_to_nobody},
    Control{"place_keeps_lease", Mutant::place_keeps_lease},
    Control{"forced_from_another", Mutant::forced_from_another},
    Control{"forced_and_left", Mutant::forced_and_left},
    Control{"older_setting_counts", Mutant::older_setting_counts},
    Control{"setting_not_counted_on", Mutant::setting_not_counted_on},
    Control{"deleted_key_served", Mutant::deleted_key_served},
    Control{"deleted_key_read", Mutant::deleted_key_read},
};

class Mutants : public ::testing::TestWithParam<Control> {};

TEST_P(Mutants, are_found) {
    expect_found(GetParam().name, GetParam().mutant);
}

INSTANTIATE_TEST_SUITE_P(Simulator, Mutants, ::testing::ValuesIn(controls),
                         [](const auto& instance) { return std::string{instance.param.name}; });

/// Mistakes in what machines do only for locks with claims, for sets of locks, under force, where the master is one of
/// several nodes, or where a client closes without a connection or while a slot moves.
constexpr std::array<std::string_view, 40> in_some_schedules{
    "closing_tries_once",
    "turn_beside_an_adopted_hold_forgotten",
    "no_room_for_a_new_one",
    "refusal_at_close_is_silence",
    "renewed_for_each_reader",
    "renewed_for_one_reader",
    "downgrade_not_told",
    "downgraded_at_server_only",
    "released_under_readers",
    "waiting_writer_passed",
    "never_asked",
    "answer_not_heeded",
    "own_writer_passed",
    "let_in_past_a_writer",
    "prolonged_for_nobody",
    "whole_lease_for_who_joins",
    "longer_claim_forgotten",
    "reader_ends_anothers_lock_delay",
    "extension_of_one_who_left_forgotten",
    "lost_member_refreshed",
    "whole_wait_for_each",
    "given_back_unheard",
    "unwanted_adoption_left",
    "adopted_when_over",
    "adopted_from_arrival",
    "too_few_adopt",
    "place_left_behind_adopted",
    "removed_token_held",
    "sent_on_without_limit",
    "unclear_hop_forgotten",
    "ask_taken_for_moved",
    "map_never_refreshed",
    "refresh_never_ends",
    "old_map_believed",
    "refused_renewal_is_a_loss",
    "refused_renewal_is_the_last",
    "old_sentinel_believed",
    "one_sentinel_asked",
    "new_master_not_noticed",
    "outdated_search_believed"};

/// A number of `machine_mutants`, from 1.
class MachineMutants : public ::testing::TestWithParam<int> {
protected:
    ~MachineMutants() override { redlatch_mutant = 0; }
};

TEST_P(MachineMutants, are_found) {
    redlatch_mutant = GetParam();
    const std::string_view name = machine_mutants[GetParam() - 1];
    const bool in_some = std::ranges::find(in_some_schedules, name) != in_some_schedules.end();
    expect_found(name, in_some ? Mutant::none : Mutant::in_machine);
}

INSTANTIATE_TEST_SUITE_P(Simulator, MachineMutants,
                         ::testing::Range(1, static_cast<int>(std::size(machine_mutants)) + 1),
                         [](const auto& instance) {
                             return std::string{machine_mutants[instance.param - 1]};
                         });

}  // namespace
}  // namespace redlatch::test::simulator
