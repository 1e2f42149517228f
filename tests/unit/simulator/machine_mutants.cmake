# Copies of the machines in which each decision below can be made wrongly: for simulator_mutants_test. The copies
# stand in front of the library's own headers, and are those but for `redlatch_mutant`, which says which mistake counts.
#
#   cmake -D FROM=include -D TO=build/…/mutated -P machine_mutants.cmake

include("${CMAKE_CURRENT_LIST_DIR}/../mutate.cmake")

# ---- An acquisition

mutate(overdue_hold_taken_over core/acquisition.hpp
    "if (!valid) return LetGo" "!valid" "false")
mutate(polls_with_a_place core/acquisition.hpp
    "is_of_use = !plan_.polls &&" "!plan_.polls" "true")
mutate(repetition_forgotten core/acquisition.hpp
    "if (answer.repeated) token_" "answer.repeated" "false")
mutate(fence_not_stored core/acquisition.hpp
    "if (plan_.traits.fenced && plan_.several_masters)" "plan_.several_masters" "false")
mutate(fence_stored_by_few core/acquisition.hpp
    "if (stored) return acquired" "stored" "true")
mutate(dead_token_kept core/acquisition.hpp
    "token_.dead() || token_.token().empty()" "token_.dead()" "false")
mutate(never_announced core/acquisition.hpp
    "wants_place && !std::exchange(announced_, true)" "wants_place" "false")
mutate(abandoned_try_left core/acquisition.hpp
    "const CleanUp clean_up = token_.clean_up();" "token_.clean_up()" "CleanUp{}")
mutate(failed_try_left core/acquisition.hpp
    "return AcquisitionFailed{token_.clean_up()};\n    }\n\n    AcquisitionAction make_hold"
    "token_.clean_up()" "CleanUp{}")
mutate(kept_by_a_closed_client core/acquisition.hpp
    "if (kept) return AcquisitionDone" "kept" "true")
mutate(open_try_not_told core/acquisition.hpp
    ".unclear = token_.unclear()" "token_.unclear()" "false")
mutate(longer_lease_forgotten core/acquisition.hpp
    "if (keep.prolonged) hold" "keep.prolonged" "false")
mutate(votes_returned_past_the_deadline core/acquisition.hpp
    "ReturnVotes{sleep_ ? std::min" "sleep_" "decltype(sleep_){}")

# ---- Its replicas

mutate(too_few_count core/acquisition.hpp
    "case Kind::not_replicated: return not_replicated(answer, now);"
    "not_replicated(answer, now)" "ours(answer.fence, now)")
mutate(too_few_kept core/acquisition.hpp
    ": (token_.clean_up()))};\n    }\n\n    AcquisitionAction make_hold"
    "(token_.clean_up())" "error_.code == Errc::not_replicated ? CleanUp{} : token_.clean_up()")
mutate(grant_not_acknowledged core/acquisition.hpp
    "!plan_.replicated && (!plan_" "!plan_.replicated" "true")
mutate(handed_on_unacknowledged core/lock_entry.hpp
    "if (next.terms.replicas != Replicas::none()) return false;"
    "next.terms.replicas != Replicas::none()" "false")

# ---- Its tries

mutate(try_after_the_deadline core/attempts.hpp
    "return now >= deadline_;" "now >= deadline_" "false")
mutate(pause_past_the_deadline core/attempts.hpp
    "return Pause{std::min(saturating_add(now, length), deadline_)};"
    "std::min(saturating_add(now, length), deadline_)" "saturating_add(now, length)")
mutate(patience_past_the_deadline core/attempts.hpp
    "answer_by_ = std::min(answer_by_, strict);" "std::min(answer_by_, strict)" "answer_by_")
mutate(late_answer_counts core/attempts.hpp
    "if (now < valid_until(sent, plan_.lease, plan_.drift))"
    "now < valid_until(sent, plan_.lease, plan_.drift)" "true")
mutate(first_fault_ends_it core/attempts.hpp
    "if (!fault.transient || is_over(now))" "is_over(now)" "true")
mutate(refusal_ends_it core/attempts.hpp
    "if (is_over(now)) return GiveUp{out_of_time" "is_over(now)" "true")

# ---- What single tries behind others are told

mutate(unanswered_is_taken core/lock_entry.hpp
    "if (contended) return !told_of_tries;" "!told_of_tries" "false")
mutate(next_turn_is_answered core/lock_entry.hpp
    "told_of_tries = false;\n        unanswered_since" "false" "told_of_tries")
mutate(unanswered_release_is_taken core/lock_entry.hpp
    "if (current != nullptr) return outlasts_lease(now);" "outlasts_lease(now)" "false")
mutate(cut_short_is_told core/acquisition.hpp
    ".to_waiters = !std::exchange(is_cut_short_, false)" "!std::exchange(is_cut_short_, false)" "true")
mutate(silence_counted_from_the_last_turn core/lock_entry.hpp
    "TimePoint since = unanswered_since;" "unanswered_since" "now")
mutate(turn_beside_an_adopted_hold_forgotten core/lock_entry.hpp
    "if (!contended) begin_to_ask();" "!contended" "true")

# ---- Token state

mutate(silence_is_no_try core/token_state.hpp
    "if (!maybe_executed) return;" "!maybe_executed" "true")
mutate(votes_of_a_minority_kept core/token_state.hpp
    "has_lock_ = false;\n        if (has_votes_) die();" "has_votes_" "false")
mutate(late_master_forgotten core/token_state.hpp
    "unsettled_ += std::popcount(reached.late)" "std::popcount(reached.late)" "0")
mutate(asked_master_forgotten core/token_state.hpp
    "asked_ |= reached.asked" "reached.asked" "reached.agreed")
mutate(votes_returned_by_few core/token_state.hpp
    "(at_masters_->asked() & ~reached.heard_of()) == 0"
    "(at_masters_->asked() & ~reached.heard_of()) == 0" "true")
mutate(nothing_to_clean_up core/token_state.hpp
    "after_abandoned_try(may_have && !all_returned_, unclear_)" "may_have && !all_returned_" "false")
mutate(older_answer_believed core/token_state.hpp
    "late.number <= tries_.answered" "late.number <= tries_.answered" "false")
mutate(answer_to_a_shorter_lease_believed core/acquisition.hpp
    "if (grant.ttl < ttl()) return" "grant.ttl < ttl()" "false")
mutate(cleaned_up_once core/token_state.hpp
    ", unclear_);\n    }\n\nprivate:" "unclear_" "false")

# ---- Several masters

mutate(half_is_a_majority core/vote_count.hpp
    "return voters_ / 2 + 1;" "voters_ / 2 + 1" "voters_ / 2")
mutate(one_says_lost core/vote_count.hpp
    "if (no_ > most_missing()) return Verdict::no;" "no_ > most_missing()" "no_ > 0")
mutate(votes_after_a_restart core/quorum_call.hpp
    "rules_.subject != QuorumSubject::taking || !rules_.may_have_forgotten(started_by, now);"
    "!rules_.may_have_forgotten(started_by, now)" "true")
mutate(no_room_for_a_new_one core/master_reach.hpp
    "return is_doubtful() && !has_room;" "is_doubtful() && !has_room" "false")
mutate(never_overtakes core/command_order.hpp
    "may_overtake() const noexcept { return owed_ > behind_; }" "owed_ > behind_" "false")
mutate(late_masters_not_told core/quorum_call.hpp
    "if (leg.answer_due) sets.late" "leg.answer_due" "false")
mutate(least_fence_counts core/quorum_call.hpp
    "left.fence > right.fence" "left.fence > right.fence" "left.fence < right.fence")
mutate(silent_master_did_nothing core/quorum_call.hpp
    "return (masters.unanswered() | masters.agreed) != 0;"
    "(masters.unanswered() | masters.agreed) != 0" "false")
mutate(broken_connection_forgotten core/quorum_call.hpp
    "leg.asked = unclear;" "unclear" "false")

mutate(nested_end_made_up_for core/release.hpp
    "const bool releases = stage_ == Stage::release;" "stage_ == Stage::release" "true")
mutate(late_release_told_as_released core/release.hpp
    "if (!valid_at_start_) return Release::expired;" "!valid_at_start_" "false")
mutate(late_sent_release_told_as_released core/release.hpp
    "was_held(value) && valid ? Release::released" "was_held(value) && valid" "was_held(value)")
mutate(late_nested_release_told_as_held core/release.hpp
    "outcome_ = valid_at_start_ ? Release::still_held : Release::expired;" "valid_at_start_" "true")
mutate(held_told_as_expired core/release.hpp
    "if (valid) return Release::released;" "Release::released" "Release::expired")

# ---- Renewal

mutate(renewed_in_a_hot_loop core/renewal_times.hpp
    "renewal_interval(lease, drift) / 4);\n}\n\n/// The next try"
    "renewal_interval(lease, drift) / 4" "renewal_interval(lease, drift) * 3")
mutate(closing_without_limit core/renewal.hpp
    "return now >= *closes_at_ || clean_ups_" "now >= *closes_at_" "false")
mutate(closing_tries_once core/clean_up_queue.hpp
    "|| !closing || !job_.repeated_at_close" "!job_.repeated_at_close" "false")
mutate(refusal_at_close_is_silence core/clean_up_queue.hpp
    "more_to_serve_ || refused_for_now_;" "more_to_serve_ || refused_for_now_" "more_to_serve_")
mutate(one_late_answer_ends_all core/renewal.hpp
    "while (!under_way_.empty() && under_way_.begin()->first <= now)"
    "under_way_.begin()->first <= now" "!told.empty() || under_way_.begin()->first <= now")

mutate(renewal_under_way_forgotten core/renewal.hpp
    "if (!hold.in(Phase::lost)) return;\n            renewal.actions_" "!hold.in(Phase::lost)" "true")
mutate(unanswered_renewal_did_nothing core/renewal.hpp
    "hold.may_be_prolonged = true;" "true" "false")
mutate(extension_under_way_forgotten core/extension.hpp
    "if (is_lost) return lost" "is_lost" "false")

# ---- Claims

mutate(replaced_connection_forgotten core/renewal.hpp
    "Try& attempt) { attempt.note_unanswered(); }" "attempt.note_unanswered()" "static_cast<void>(0)")
mutate(renewed_for_each_reader core/renewal.hpp
    "if (hold->terms().joins) return arm_sharer" "hold->terms().joins" "false")
mutate(renewed_for_one_reader core/renewal.hpp
    "for (const Member& member : members_) decide(member, renewal, now);"
    "members_" "std::vector<Member>{members_.front()}")
mutate(downgrade_not_told core/release.hpp
    ".tells_count = hold.weight() == 0 || ending.downgrades" "ending.downgrades" "false")
mutate(downgraded_at_server_only core/lock_table.hpp
    "if (ending.downgrades) hold->downgrade();" "ending.downgrades" "false")
mutate(released_under_readers core/lock_table.hpp
    "if (is_used_by_others(*hold)) {" "is_used_by_others(*hold)" "false")
mutate(waiting_writer_passed core/lock_table.hpp
    "if (claim->others_wait()) return {};" "claim->others_wait()" "false")
mutate(never_asked core/lock_table.hpp
    "if (!claim->has_news(now))" "!claim->has_news(now)" "false")
mutate(answer_not_heeded core/lock_table.hpp
    "if (news.others_wait || claim != claim_for" "news.others_wait" "false")
mutate(own_writer_passed core/lock_table.hpp
    "return has_writer(key) ? nullptr" "has_writer(key)" "false")
mutate(let_in_past_a_writer core/lock_table.hpp
    "traits.shared || request.acquisition.reads) return;" "request.acquisition.reads" "true")
mutate(passed_place_lost core/lock_table.hpp
    "hand_turn_on(*turn.name_, passes);" "passes" "false")
mutate(prolonged_for_nobody core/lock_table.hpp
    "if (claim->is_over()) return {.clean_up" "claim->is_over()" "false")
mutate(whole_lease_for_who_joins core/reader_claim.hpp
    "hold->taken(now, refreshed_);" "refreshed_" "now")
mutate(extension_of_one_who_left_forgotten core/reader_claim.hpp
    "hold.renewed_by_watchdog || hold.extended"
    "hold.renewed_by_watchdog || hold.extended" "hold.renewed_by_watchdog.load()")
mutate(longer_claim_forgotten core/reader_claim.hpp
    "if (is_over()) tell_what_is_left(hold);" "is_over()" "false")

# ---- Sets

mutate(lost_member_refreshed core/set_acquisition.hpp
    "if (all_held) return Done{};" "all_held" "true")
mutate(whole_wait_for_each core/set_acquisition.hpp
    "const auto left = std::max(saturating_sub(deadline_, now), Clock::duration::zero());"
    "std::max(saturating_sub(deadline_, now), Clock::duration::zero())" "plan_.wait.duration()")
mutate(given_back_unheard core/set_acquisition.hpp
    "return {waits ? answer_by_ : TimePoint::min()};" "waits" "false")

# ---- From process to process

mutate(unwanted_adoption_left core/transfer.hpp
    ".to = {.at_once = may_have, .once_more = unclear_}};" "may_have" "may_have && !moved_")
mutate(adopted_when_over core/transfer.hpp
    "if (now >= valid_until(sent_, plan_.lease, plan_.drift))"
    "now >= valid_until(sent_, plan_.lease, plan_.drift)" "false")
mutate(adopted_from_arrival core/transfer.hpp
    "return Moved{.since = sent_," "sent_" "now")
mutate(too_few_adopt core/transfer.hpp
    "if (!reply.replicated())" "!reply.replicated()" "false")
mutate(removed_token_held core/lock_table.hpp
    ".is_removed = removed_.take(hold->token().bytes)};\n        if (finished.kept)"
    "removed_.take(hold->token().bytes)" "false")
mutate(place_left_behind_adopted core/lock_table.hpp
    "const bool has_next = !here.queue.empty() && here.current == nullptr;"
    "here.current == nullptr" "true")

# ---- What a `lock_delay` keeps

mutate(late_extension_ends_a_lock_delay core/clean_up.hpp
    "(keeps_longer || loss.server == ServerKeeps::nothing)" "keeps_longer" "false")
mutate(late_answer_ends_a_lock_delay core/lock_entry.hpp
    "hold->token().bytes == token && hold->has_lock_delay()" "hold->has_lock_delay()" "false")
mutate(reader_ends_anothers_lock_delay core/reader_claim.hpp
    "if (hold.claim->is_kept(now)) return true;" "hold.claim->is_kept(now)" "false")
mutate(lock_delay_prolonged_for_ever core/clean_up.hpp
    "const bool lasts_longer = keeps_longer || may_last;" "keeps_longer || may_last" "false")

# ---- Where the master is

mutate(sent_on_without_limit core/cluster_redirection.hpp
    "if (!may_go_on || sent_again_ == most_hops" "sent_again_ == most_hops" "false")
mutate(unclear_hop_forgotten core/cluster_redirection.hpp
    "fault.maybe_executed = unclear_;" "unclear_" "fault.maybe_executed")
mutate(ask_taken_for_moved core/redirection.hpp
    "to.once = true;" "true" "false")
mutate(map_never_refreshed core/slot_map_refresh.hpp
    "if (brand_new) return Turn::skip;" "brand_new" "true")
mutate(refresh_never_ends core/slot_map_refresh.hpp
    "under_way_ = false;\n        misled_ = outcome" "under_way_ = false" "under_way_ = true")
mutate(old_map_believed core/slot_map_refresh.hpp
    "if (misled) {" "misled" "false")
mutate(refused_renewal_is_a_loss core/renewal.hpp
    "fault.error.code == Errc::wrong_type ? Vote::no" "fault.error.code == Errc::wrong_type" "true")
mutate(refused_renewal_is_the_last core/renewal.hpp
    "vote, fault.transient ? Again::yes : Again::no, now)" "fault.transient ? Again::yes : Again::no" "Again::no")
mutate(old_sentinel_believed core/sentinel_service.hpp
    "noexcept { first_ = (sentinel + 1) % sentinels_; }" "(sentinel + 1) % sentinels_" "first_")
mutate(one_sentinel_asked core/sentinel_lookup.hpp
    "if (asked_ == count_) return GiveUp" "asked_ == count_" "asked_ == 1")
mutate(new_master_not_noticed core/sentinel_service.hpp
    "if (master_ == master) return Arrival::same;" "master_ == master" "master_.has_value()")
mutate(outdated_search_believed core/sentinel_service.hpp
    "return has_moved ? Arrival::outdated : arrive(master);" "has_moved" "false")

write_mutants("machine_mutants" "inline int redlatch_mutant = 0;")
