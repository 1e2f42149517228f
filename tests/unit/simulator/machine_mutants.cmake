# Copies of the machines in which each decision below can be made wrongly: for simulator_mutants_test. The copies
# stand in front of the library's own headers, and are those but for `redlatch_mutant`, which says which mistake counts.
#
#   cmake -D FROM=include -D TO=build/…/mutated -P machine_mutants.cmake

set(names "")
set(mutant_count 0)

# In `header`, where `context` stands once, the expression `right` is `wrong`.
function(mutate name header context right wrong)
    math(EXPR number "${mutant_count} + 1")
    if(NOT DEFINED text_${header})
        file(READ "${FROM}/redlatch/core/${header}" text_${header})
        string(REPLACE "#pragma once\n" "#pragma once\n\n#include <redlatch_mutant.hpp>\n"
            text_${header} "${text_${header}}")
        list(APPEND headers ${header})
    endif()
    string(FIND "${text_${header}}" "${context}" first)
    string(FIND "${text_${header}}" "${context}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "mutant ${name}: stands not once in core/${header}: ${context}")
    endif()
    string(REPLACE "${right}" "(redlatch_mutant == ${number} ? (${wrong}) : (${right}))"
        changed "${context}")
    if(changed STREQUAL context)
        message(FATAL_ERROR "mutant ${name}: ${right} is not in: ${context}")
    endif()
    string(REPLACE "${context}" "${changed}" text_${header} "${text_${header}}")
    set(text_${header} "${text_${header}}" PARENT_SCOPE)
    set(headers "${headers}" PARENT_SCOPE)
    set(mutant_count ${number} PARENT_SCOPE)
    set(names "${names}    \"${name}\",\n" PARENT_SCOPE)
endfunction()

# ---- An acquisition

mutate(overdue_hold_taken_over acquisition.hpp
    "if (!valid) return LetGo" "!valid" "false")
mutate(polls_with_a_place acquisition.hpp
    "is_of_use = !plan_.polls &&" "!plan_.polls" "true")
mutate(repetition_forgotten acquisition.hpp
    "if (answer.repeated) token_" "answer.repeated" "false")
mutate(fence_not_stored acquisition.hpp
    "if (plan_.traits.fenced && plan_.several_masters)" "plan_.several_masters" "false")
mutate(fence_stored_by_few acquisition.hpp
    "if (stored) return acquired" "stored" "true")
mutate(dead_token_kept acquisition.hpp
    "token_.dead() || token_.token().empty()" "token_.dead()" "false")
mutate(never_announced acquisition.hpp
    "wants_place && !std::exchange(announced_, true)" "wants_place" "false")
mutate(abandoned_try_left acquisition.hpp
    "const CleanUp clean_up = token_.clean_up();" "token_.clean_up()" "CleanUp{}")
mutate(failed_try_left acquisition.hpp
    "return AcquisitionFailed{token_.clean_up()};\n    }\n\n    AcquisitionAction make_hold"
    "token_.clean_up()" "CleanUp{}")
mutate(kept_by_a_closed_client acquisition.hpp
    "if (kept) return AcquisitionDone" "kept" "true")
mutate(open_try_not_told acquisition.hpp
    ".unclear = token_.unclear()" "token_.unclear()" "false")
mutate(votes_returned_past_the_deadline acquisition.hpp
    "ReturnVotes{sleep_ ? std::min" "sleep_" "decltype(sleep_){}")

# ---- Its replicas

mutate(too_few_count acquisition.hpp
    "case Kind::not_replicated: return not_replicated(answer, now);"
    "not_replicated(answer, now)" "ours(answer.fence, now)")
mutate(too_few_kept acquisition.hpp
    ": (token_.clean_up()))};\n    }\n\n    AcquisitionAction make_hold"
    "(token_.clean_up())" "error_.code == Errc::not_replicated ? CleanUp{} : token_.clean_up()")
mutate(grant_not_acknowledged acquisition.hpp
    "!plan_.replicated && (!plan_" "!plan_.replicated" "true")
mutate(handed_on_unacknowledged lock_table.hpp
    "if (next.terms.replicas != Replicas::none()) return false;"
    "next.terms.replicas != Replicas::none()" "false")

# ---- Its tries

mutate(try_after_the_deadline attempts.hpp
    "return last_try_ || now >= deadline_;" "now >= deadline_" "false")
mutate(pause_past_the_deadline attempts.hpp
    "return Pause{std::min(saturating_add(now, length), deadline_)};"
    "std::min(saturating_add(now, length), deadline_)" "saturating_add(now, length)")
mutate(patience_past_the_deadline attempts.hpp
    "std::min(patient, strict)" "std::min(patient, strict)" "patient")
mutate(late_answer_counts attempts.hpp
    "if (now < valid_until(sent, plan_.lease, plan_.drift))"
    "now < valid_until(sent, plan_.lease, plan_.drift)" "true")
mutate(first_fault_ends_it attempts.hpp
    "if (!fault.transient || is_over(now))" "is_over(now)" "true")
mutate(refusal_ends_it attempts.hpp
    "if (is_over(now)) return GiveUp{out_of_time" "is_over(now)" "true")

# ---- Token state

mutate(silence_is_no_try token_state.hpp
    "if (!maybe_executed) return;" "!maybe_executed" "true")
mutate(votes_of_a_minority_kept token_state.hpp
    "has_lock_ = false;\n        if (has_votes_) die();" "has_votes_" "false")
mutate(late_master_forgotten token_state.hpp
    "unsettled_ += std::popcount(reached.late)" "std::popcount(reached.late)" "0")
mutate(asked_master_forgotten token_state.hpp
    "asked_ |= reached.asked" "reached.asked" "reached.agreed")
mutate(votes_returned_by_few token_state.hpp
    "(at_masters_->asked() & ~reached.heard_of()) == 0"
    "(at_masters_->asked() & ~reached.heard_of()) == 0" "true")
mutate(nothing_to_clean_up token_state.hpp
    "after_abandoned_try(may_have && !all_returned_, unclear_)" "may_have && !all_returned_" "false")
mutate(older_answer_believed token_state.hpp
    "late.number <= tries_.answered" "late.number <= tries_.answered" "false")
mutate(answer_to_a_shorter_lease_believed acquisition.hpp
    "if (grant.ttl < ttl()) return" "grant.ttl < ttl()" "false")
mutate(cleaned_up_once token_state.hpp
    ", unclear_);\n    }\n\nprivate:" "unclear_" "false")

# ---- Several masters

mutate(half_is_a_majority vote_count.hpp
    "return voters_ / 2 + 1;" "voters_ / 2 + 1" "voters_ / 2")
mutate(one_says_lost vote_count.hpp
    "if (no_ > most_missing()) return Verdict::no;" "no_ > most_missing()" "no_ > 0")
mutate(votes_after_a_restart quorum_call.hpp
    "any_age || (started_by && saturating_sub(now, *started_by) >= rules_.least_age);"
    "any_age" "true")
mutate(never_overtakes command_order.hpp
    "may_overtake() const noexcept { return owed_ > behind_; }" "owed_ > behind_" "false")
mutate(late_masters_not_told quorum_call.hpp
    "if (leg.answer_due) sets.late" "leg.answer_due" "false")
mutate(least_fence_counts quorum_call.hpp
    "left.fence > right.fence" "left.fence > right.fence" "left.fence < right.fence")
mutate(silent_master_did_nothing quorum_call.hpp
    "return (masters.unanswered() | masters.agreed) != 0;"
    "(masters.unanswered() | masters.agreed) != 0" "false")
mutate(broken_connection_forgotten quorum_call.hpp
    "leg.asked = unclear;" "unclear" "false")

mutate(nested_end_made_up_for release.hpp
    "const bool releases = stage_ == Stage::release;" "stage_ == Stage::release" "true")

# ---- Renewal

mutate(renewed_in_a_hot_loop renewal.hpp
    "saturating_cast<Clock::duration>(lease.duration()) / 12);\n}\n\n/// The next try"
    "12" "1")
mutate(closing_without_limit renewal.hpp
    "return now >= *closes_at_ || (clean_ups_" "now >= *closes_at_" "false")
mutate(one_late_answer_ends_all renewal.hpp
    "while (!under_way_.empty() && under_way_.begin()->first <= now)"
    "under_way_.begin()->first <= now" "!told.empty() || under_way_.begin()->first <= now")

mutate(renewal_under_way_forgotten renewal.hpp
    "if (!hold.in(Phase::lost)) return;\n            renewal.actions_" "!hold.in(Phase::lost)" "true")
mutate(unanswered_renewal_did_nothing renewal.hpp
    "hold.may_be_prolonged = true;" "true" "false")
mutate(extension_under_way_forgotten extension.hpp
    "if (is_lost) return lost" "is_lost" "false")

# ---- Claims

mutate(replaced_connection_forgotten renewal.hpp
    "Try& attempt) { attempt.note_unanswered(); }" "attempt.note_unanswered()" "static_cast<void>(0)")
mutate(renewed_for_each_reader renewal.hpp
    "if (hold->terms().joins) return arm_sharer" "hold->terms().joins" "false")
mutate(renewed_for_one_reader renewal.hpp
    "for (const Member& member : members_) decide(member, renewal, now);"
    "members_" "std::vector<Member>{members_.front()}")
mutate(downgrade_not_told release.hpp
    ".tells_count = hold.weight() == 0 || ending.downgrades" "ending.downgrades" "false")
mutate(downgraded_at_server_only lock_table.hpp
    "if (ending.downgrades) hold->downgrade();" "ending.downgrades" "false")
mutate(released_under_readers lock_table.hpp
    "if (is_used_by_others(*hold)) {" "is_used_by_others(*hold)" "false")
mutate(waiting_writer_passed lock_table.hpp
    "if (claim->others_wait()) return {};" "claim->others_wait()" "false")
mutate(never_asked lock_table.hpp
    "if (!claim->has_news(now))" "!claim->has_news(now)" "false")
mutate(answer_not_heeded lock_table.hpp
    "if (others_wait || claim != claim_for" "others_wait" "false")
mutate(own_writer_passed lock_table.hpp
    "return has_writer(key) ? nullptr" "has_writer(key)" "false")
mutate(let_in_past_a_writer lock_table.hpp
    "traits.shared || request.acquisition.reads) return;" "request.acquisition.reads" "true")
mutate(passed_place_lost lock_table.hpp
    "hand_turn_on(*turn.name_, passes);" "passes" "false")
mutate(prolonged_for_nobody lock_table.hpp
    "if (claim->is_over()) return {.is_over = true};" "claim->is_over()" "false")
mutate(whole_lease_for_who_joins reader_claim.hpp
    "hold->taken(now, refreshed_);" "refreshed_" "now")
mutate(extension_of_one_who_left_forgotten reader_claim.hpp
    "hold.renewed_by_watchdog || hold.extended"
    "hold.renewed_by_watchdog || hold.extended" "hold.renewed_by_watchdog.load()")
mutate(longer_claim_forgotten reader_claim.hpp
    "if (is_over() && lasts_longer)" "lasts_longer" "false")

# ---- Sets

mutate(lost_member_refreshed set_acquisition.hpp
    "if (all_held) return Done{};" "all_held" "true")
mutate(whole_wait_for_each set_acquisition.hpp
    "const auto left = std::max(saturating_sub(deadline_, now), Clock::duration::zero());"
    "std::max(saturating_sub(deadline_, now), Clock::duration::zero())" "wait.duration()")

# ---- Where the master is

mutate(sent_on_without_limit cluster_redirection.hpp
    "if (!may_go_on || sent_again_ == most_hops" "sent_again_ == most_hops" "false")
mutate(unclear_hop_forgotten cluster_redirection.hpp
    "fault.maybe_executed = unclear_;" "unclear_" "fault.maybe_executed")
mutate(ask_taken_for_moved redirection.hpp
    "to.once = true;" "true" "false")
mutate(map_never_refreshed slot_map_refresh.hpp
    "if (brand_new) return Turn::skip;" "brand_new" "true")
mutate(refresh_never_ends slot_map_refresh.hpp
    "under_way_ = false;\n        if (outcome" "under_way_ = false" "under_way_ = true")
mutate(old_map_believed slot_map_refresh.hpp
    "if (misled) {" "misled" "false")
mutate(refused_renewal_is_a_loss renewal.hpp
    "fault.error.code == Errc::wrong_type ? Vote::no" "fault.error.code == Errc::wrong_type" "true")
mutate(old_sentinel_believed sentinel_lookup.hpp
    "if (fault.error.code == Errc::unavailable) first_" "fault.error.code == Errc::unavailable" "false")
mutate(one_sentinel_asked sentinel_lookup.hpp
    "if (asked_ == count_) return GiveUp" "asked_ == count_" "asked_ == 1")
mutate(new_master_not_noticed sentinel_lookup.hpp
    "return *before == master ?" "*before == master" "true")

foreach(header IN LISTS headers)
    file(CONFIGURE OUTPUT "${TO}/redlatch/core/${header}" CONTENT "${text_${header}}" @ONLY)
endforeach()
file(CONFIGURE OUTPUT "${TO}/redlatch_mutant.hpp" @ONLY CONTENT "#pragma once

/// Which of `machine_mutants` is on, from 1; 0 for none.
inline int redlatch_mutant = 0;

inline constexpr const char* machine_mutants[] = {
${names}};
")
