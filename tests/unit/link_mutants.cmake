# The rules of the engine, of its link and of the calls that complete, each broken once, and the test that finds it: for
# the programs named …_mutants.
#
#   cmake -D FROM=include -D TO=build/…/mutated_link -P link_mutants.cmake
#
# Read also when the tests are configured: there `mutate` remembers the name, and `found_by` adds the test.

if(CMAKE_SCRIPT_MODE_FILE)
    include("${CMAKE_CURRENT_LIST_DIR}/mutate.cmake")
    function(found_by)
    endfunction()
endif()

# ---- The queue

mutate(release_waits_its_turn core/command_queue.hpp
    "put(command, rank == CommandRank::usual ?" "rank == CommandRank::usual" "true")
found_by(command_queue ACommandQueue.writes_releases_and_extensions_first)
mutate(unwritten_behind_its_release core/command_queue.hpp
    "if (rank == CommandRank::release) withdraw" "rank == CommandRank::release" "false")
found_by(command_queue ACommandQueue.takes_out_what_is_unwritten_of_a_token_before_its_release)
mutate(written_without_limit core/command_queue.hpp
    "full = written_count_ >= limits_.written" "written_count_ >= limits_.written" "false")
found_by(command_queue ACommandQueue.has_so_many_written_at_a_time)
mutate(bytes_without_limit core/command_queue.hpp
    "|| bytes >= limits_.bytes" "bytes >= limits_.bytes" "false")
found_by(command_queue ACommandQueue.writes_so_many_bytes_at_a_time)
mutate(abandoned_is_repeated core/command_queue.hpp
    "command.command.leave();" "command.command.leave()" "void()")
found_by(command_queue ACommandQueue.repeats_nothing_of_what_is_abandoned)
mutate(abandoned_has_no_answer core/command_queue.hpp
    "if (command.stage_ == Stage::written || command" "command.stage_ == Stage::written" "false")
found_by(command_queue ACommandQueue.keeps_what_is_abandoned_once_it_was_written)
mutate(abandoned_is_written core/command_queue.hpp
    "take(command);\n        if (command.command.unclear()) put" "take(command)" "void()")
found_by(command_queue ACommandQueue.forgets_what_is_abandoned_before_it_was_written)
mutate(answers_buy_no_time core/silence.hpp
    "silent_since = std::max(answered_at_, oldest)" "std::max(answered_at_, oldest)" "oldest")
found_by(command_queue ACommandQueue.gives_the_connection_up_after_so_long_without_an_answer)
mutate(trickle_without_limit core/silence.hpp
    "saturating_add(oldest, 3 * command_timeout_)"
    "saturating_add(oldest, 3 * command_timeout_)" "TimePoint::max()")
found_by(command_queue ACommandQueue.gives_the_connection_up_where_answers_trickle_in)
mutate(unwritten_lost_with_the_connection core/command_queue.hpp
    "Stage::written}) fail(stage, failure);" "fail(stage, failure)"
    "fail(stage, failure), fail(Stage::usual, {})")
found_by(command_queue ACommandQueue.gives_back_what_was_written_when_the_connection_goes)
mutate(first_sending_forgotten core/command_queue.hpp
    "if (command.sent_ == TimePoint::min()) command" "command.sent_ == TimePoint::min()" "true")
found_by(command_queue ACommandQueue.knows_when_a_command_was_sent_first)
mutate(young_with_the_old core/command_queue.hpp
    "failure.of_others = command.written_at_ > in_vain;" "command.written_at_ > in_vain" "false")
found_by(command_queue ACommandQueue.writes_once_more_what_has_not_waited_as_long_as_it_may)
mutate(later_with_an_older_attempt core/command_queue.hpp
    "if (command.added_ <= begun) fail" "command.added_ <= begun" "true")
found_by(command_queue ACommandQueue.keeps_what_came_after_an_attempt_to_connect_began_for_the_next_one)
mutate(late_is_repeated core/command.hpp
    "says_nothing = had_died || failure.of_others;" "failure.of_others" "failure.maybe_executed")
found_by(command_queue ACommandQueue.writes_once_more_what_has_not_waited_as_long_as_it_may)
mutate(repeated_at_a_slow_server core/command_queue.hpp
    "const TimePoint in_vain = trickles" "trickles" "false")
found_by(command_queue ACommandQueue.repeats_nothing_at_a_server_that_answers_slowly)

# ---- The link

mutate(goes_on_out_of_step net/link.hpp
    "if (step.drop_connection) break_off" "step.drop_connection" "false")
found_by(link ALink.breaks_off_at_an_answer_of_another_shape_and_at_one_to_nothing)
mutate(silence_is_borne net/link.hpp
    "if (!connection_ || now < gone_at()) return" "now < gone_at()" "true")
found_by(link ALink.gives_up_a_server_that_is_silent_and_not_before)
mutate(written_did_nothing net/link.hpp
    "fault.disconnected, .maybe_executed = true});" "true" "false")
found_by(link ALink.does_not_know_what_became_of_what_is_written_wherever_it_is_cut)
mutate(old_master_is_asked net/link.hpp
    "if (!node_->is_current(*connection_)) break_off" "!node_->is_current(*connection_)" "false")
found_by(link ALink.leaves_a_server_that_is_a_replica)
mutate(script_is_named_first net/link.hpp
    "traits.script_known || was_written(call.script());" "was_written(call.script())" "true")
found_by(link ALink.sends_a_script_whole_to_each_connection_until_it_has_run_there)
mutate(refused_script_is_known net/link.hpp
    "else if (command.command.form().whole)" "command.command.form().whole" "false")
found_by(link ALink.sends_a_script_whole_to_each_connection_until_it_has_run_there)
mutate(script_is_known_to_the_next_connection net/link.hpp
    "scripts_written_.clear();" "scripts_written_.clear()" "void()")
found_by(link ALink.sends_a_script_whole_to_each_connection_until_it_has_run_there)
mutate(written_behind_a_wait net/link.hpp
    "if (for_replicas && waits_for_replicas())" "waits_for_replicas()" "false")
found_by(link ALinkForReplicas.writes_one_wait_behind_what_there_is_and_nothing_more_until_its_answer)
mutate(replicas_not_waited_for net/link.hpp
    "reply->view().is_taken(command.shape_)" "reply->view().is_taken(command.shape_)" "false")
found_by(link ALinkForReplicas.writes_one_wait_behind_what_there_is_and_nothing_more_until_its_answer)
mutate(wait_past_the_deadline net/link.hpp
    "std::min(answer_by_, saturating_add(now, node_->command_timeout()))"
    "std::min(answer_by_, saturating_add(now, node_->command_timeout()))"
    "saturating_add(now, node_->command_timeout())")
found_by(engine AnEngineWithAReplica.tells_in_time_how_many_have_it_and_keeps_nobody_else_waiting)

mutate(written_again_is_unacknowledged net/link.hpp
    "if (!command.is_held()) return false;" "!command.is_held()" "!command.taken_")
found_by(link ALinkForReplicas.tells_nothing_of_what_is_written_once_more_before_its_answer)

# ---- The way of an order

mutate(late_answer_unheard service/order_route.hpp
    "            end(order_)->answered_late(reply, first_sent);"
    "end(order_)->answered_late(reply, first_sent)" "void(end(order_))")
found_by(engine AnEngine.tells_an_abandoned_order_only_of_a_late_answer)
mutate(late_answer_counted_from_its_arrival service/order_route.hpp
    "if (is_abandoned()) {\n            const TimePoint first_sent = sent();" "sent()" "Clock::now()")
found_by(engine AnEngine.keeps_an_order_no_longer_than_until_its_deadline)
mutate(outlives_its_deadline service/order_route.hpp
    "if (order_->time.answer_by != TimePoint::max())" "order_->time.answer_by != TimePoint::max()" "false")
found_by(engine AnEngine.keeps_an_order_no_longer_than_until_its_deadline)

mutate(turn_not_waited_for service/order_route.hpp
    "if (behind_others && begin_anew(now)) return;" "behind_others" "false")
found_by(engine AnEngine.gives_an_order_that_waits_behind_others_its_time_anew_where_it_has_some_left)
mutate(redirected_within_its_first_time service/order_route.hpp
    "{ machine_.has_until(by); }" "machine_.has_until(by)" "void(by)")
found_by(engine AnEngineInASlowCluster.follows_a_redirection_in_the_time_that_has_begun_anew)
mutate(unacknowledged_is_unanswered service/order_route.hpp
    "if (link_ != nullptr && link_->end_unacknowledged(*this))" "link_ != nullptr" "false")
found_by(engine AnEngineForReplicas.tells_that_none_has_it_where_nobody_says_so_in_time)

# ---- The engine

mutate(fails_with_an_older_attempt service/engine.hpp
    "link.not_connected(made.error(), connect_.begun());" "connect_.begun()" "TimePoint::max()")
found_by(engine AnImpatientEngine.fails_no_order_with_an_attempt_to_connect_that_began_before_it_came)

mutate(written_behind_its_release_elsewhere service/engine.hpp
    "order->rank == CommandRank::release && links_.size() > 1" "links_.size() > 1" "false")
found_by(engine AnEngine.takes_out_what_another_link_has_not_written_of_a_token_that_is_released)
mutate(link_shared_with_a_users_policy service/engine.hpp
    "replicas_ == replicas && own_ == own;" "own_ == own" "true")
found_by(engine AnEngine.takes_out_what_another_link_has_not_written_of_a_token_that_is_released)

# ---- The way of an order to several masters

mutate(late_master_unheard service/quorum_route.hpp
    "order->answered_late(answer, leg_sent);" "order->answered_late(answer, leg_sent)" "void(order)")
found_by(engine AnEngineForSeveralMasters.needs_no_answer_of_one_and_hears_it_late)
mutate(late_master_counted_from_its_answer service/quorum_route.hpp
    "leg_sent = leg.sent();" "leg.sent()" "Clock::now()")
found_by(engine AnEngineForSeveralMasters.needs_no_answer_of_one_and_hears_it_late)
mutate(masters_did_nothing service/quorum_route.hpp
    "fault.maybe_executed = machine_->maybe_executed();" "machine_->maybe_executed()" "false")
found_by(engine AnEngineForSeveralMasters.does_not_know_what_became_of_an_order_that_no_majority_has_answered)

# ---- A call, on its way to whoever made it

mutate(child_starts async/async_call.hpp
    "if (!is_ours() || (state_" "!is_ours()" "false")
found_by(completion_batch CallInATurn.of_the_parent_does_nothing_in_a_forked_child)
mutate(child_abandons async/async_call.hpp
    "if (!is_ours()) return;\n        const unsigned before" "!is_ours()" "false")
found_by(completion_batch CallInATurn.of_the_parent_does_nothing_in_a_forked_child)
mutate(child_completes async/async_call.hpp
    "if (!is_ours()) return;\n        if ((state_ & " "!is_ours()" "false")
found_by(completion_batch CallInATurn.of_the_parent_does_nothing_in_a_forked_child)
mutate(child_discards async/async_call.hpp
    "if (!is_ours()) return;\n        if (continuation_" "!is_ours()" "false")
found_by(completion_batch CallInATurn.of_the_parent_does_nothing_in_a_forked_child)
mutate(begins_twice async/async_call.hpp
    "(state_.fetch_or(has_started) & has_started) != 0)" "(state_.fetch_or(has_started) & has_started) != 0"
    "false")
found_by(completion_batch CallInATurn.begins_once)
mutate(completes_where_its_outcome_arises async/async_call.hpp
    "executor->post_chain(*this);" "executor->post_chain(*this)" "run()")
found_by(completion_batch CallInATurn.is_posted_at_once_on_a_thread_without_turns)
mutate(turn_is_not_waited_for async/async_call.hpp
    "if (batch != nullptr) return batch->add(*this);" "batch != nullptr" "false")
found_by(completion_batch CallInATurn.is_posted_at_its_end_and_completes_once)
mutate(abandoned_completes async/async_call.hpp
    "end((state_ & is_abandoned) != 0 ? &AsyncCall::drop" "(state_ & is_abandoned) != 0" "false")
found_by(completion_batch CallInATurn.that_is_abandoned_before_its_end_is_dropped_once)
mutate(abandoned_is_destroyed_before_its_end async/async_call.hpp
    "else if ((before & is_awaited) == 0)" "(before & is_awaited) == 0" "true")
found_by(completion_batch CallInATurn.that_is_abandoned_before_its_end_is_dropped_once)
mutate(abandoned_is_dropped_twice async/async_call.hpp
    "if ((state_.fetch_or(is_dropped) & is_dropped) == 0) drop();"
    "(state_.fetch_or(is_dropped) & is_dropped) == 0" "true")
found_by(completion_batch CallInATurn.that_is_abandoned_before_its_end_is_dropped_once)
mutate(abandoned_is_posted async/async_call.hpp
    "if ((before & is_abandoned) != 0) {" "(before & is_abandoned) != 0" "false")
found_by(completion_batch CallInATurn.that_completes_when_nobody_waits_any_more_is_dropped_and_not_posted)
mutate(callback_is_destroyed_by_who_posts async/async_call.hpp
    "if (continuation_ != nullptr && is_posting)" "continuation_ != nullptr && is_posting" "false")
found_by(completion_batch CallInATurn.whose_executor_has_gone_is_discarded_once_and_not_by_who_posts)
mutate(discarded_completes async/async_call.hpp
    "if ((state_ & is_discarded) != 0) return discard();" "(state_ & is_discarded) != 0" "false")
found_by(completion_batch CallInATurn.whose_executor_has_gone_is_discarded_once_and_not_by_who_posts)

# ---- The queue of an event loop

mutate(child_posts_to_the_parent completion_queue.hpp
    "if (is_ours()) {" "is_ours()" "true")
found_by(completion_queue CompletionQueue.inherited_one_runs_nothing_and_discards_what_is_posted)
mutate(child_runs_the_parents completion_queue.hpp
    "if (!state_->is_ours()) return 0;" "!state_->is_ours()" "false")
found_by(completion_queue CompletionQueue.inherited_one_runs_nothing_and_discards_what_is_posted)
mutate(child_destroys_the_parents completion_queue.hpp
    "if (!state_->is_ours()) return;" "!state_->is_ours()" "false")
found_by(completion_queue CompletionQueue.inherited_one_runs_nothing_and_discards_what_is_posted)
mutate(gone_queue_keeps_what_comes completion_queue.hpp
    "if (!closed_) {" "!closed_" "true")
found_by(completion_queue CompletionQueue.discards_what_comes_when_it_is_gone)
mutate(gone_queue_keeps_what_was_there completion_queue.hpp
    "ready_.close();\n        tasks.append(tasks_);" "tasks.append(tasks_)" "void()")
found_by(completion_queue CompletionQueue.destructor_discards_what_is_pending)
mutate(gone_queue_keeps_its_descriptor completion_queue.hpp
    "closed_ = true;\n        ready_.close();" "ready_.close()" "void()")
found_by(completion_queue CompletionQueue.has_no_descriptor_any_more_when_it_is_gone)
mutate(loop_is_not_woken completion_queue.hpp
    "if (tasks_.empty()) ready_.ring();" "tasks_.empty()" "false")
found_by(completion_queue CompletionQueue.descriptor_is_readable_while_something_waits)
mutate(loop_is_woken_for_ever completion_queue.hpp
    "ready_.reset();" "ready_.reset()" "void()")
found_by(completion_queue CompletionQueue.descriptor_is_readable_while_something_waits)

# ---- Hand-off in one process

mutate(hand_off_over_the_engine service/lock_table_monitor.hpp
    "waiter.is_handed() && waiter.goes_on_here()" "waiter.is_handed()" "false")
found_by(async_hand_off AsyncHandOff.has_completed_when_the_release_returns)
mutate(engine_goes_on_too async/acquire_operation.hpp
    "if (!take_back()) return clear_timer();" "!take_back()" "false")
found_by(async_hand_off AsyncHandOff.has_completed_when_the_release_returns)
mutate(left_undone_as_the_engine_has_ended async/acquire_operation.hpp
    "compare_exchange_strong(keeper, Keeper::releaser) && left_.has_value())" "left_.has_value()" "false")
found_by(async_hand_off AsyncHandOff.completes_once_where_the_client_closes_in_its_middle)
mutate(programs_executor_inside_a_release async/acquire_operation.hpp
    "completes_within_the_library() &&" "completes_within_the_library()" "true")
found_by(async_hand_off AsyncHandOff.calls_nothing_of_the_programs_inside_a_release)

if(CMAKE_SCRIPT_MODE_FILE)
    write_mutants("link_mutants" "#include <mutant_by_name.hpp>")
endif()
