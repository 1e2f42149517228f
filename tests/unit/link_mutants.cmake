# The rules of the engine and its link, each broken once, and the test that finds it: for the programs named …_mutants.
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
mutate(answers_buy_no_time core/command_queue.hpp
    "silent_since = std::max(answered_at_, oldest->written_at_)"
    "std::max(answered_at_, oldest->written_at_)" "oldest->written_at_")
found_by(command_queue ACommandQueue.gives_the_connection_up_after_so_long_without_an_answer)
mutate(trickle_without_limit core/command_queue.hpp
    "saturating_add(oldest->written_at_, 3 * limits_.command_timeout)"
    "saturating_add(oldest->written_at_, 3 * limits_.command_timeout)" "TimePoint::max()")
found_by(command_queue ACommandQueue.gives_the_connection_up_where_answers_trickle_in)
mutate(unwritten_lost_with_the_connection core/command_queue.hpp
    "Stage::written}) fail(stage, failure);" "fail(stage, failure)"
    "fail(stage, failure), fail(Stage::usual, {})")
found_by(command_queue ACommandQueue.gives_back_what_was_written_when_the_connection_goes)
mutate(first_sending_forgotten core/command_queue.hpp
    "if (command.sent_ == TimePoint::min()) command" "command.sent_ == TimePoint::min()" "true")
found_by(command_queue ACommandQueue.knows_when_a_command_was_sent_first)

# ---- The link

mutate(goes_on_out_of_step net/link.hpp
    "if (step.drop_connection) break_off" "step.drop_connection" "false")
found_by(link ALink.breaks_off_at_an_answer_of_another_shape_and_at_one_to_nothing)
mutate(silence_is_borne net/link.hpp
    "if (connection_ && now >= gone_at())" "now >= gone_at()" "false")
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

# ---- The way of an order

mutate(late_answer_unheard service/order_route.hpp
    "            end(order_)->answered_late(reply, first_sent);"
    "end(order_)->answered_late(reply, first_sent)" "void(end(order_))")
found_by(engine AnEngine.tells_an_abandoned_order_only_of_a_late_answer)
mutate(late_answer_counted_from_its_arrival service/order_route.hpp
    "if (is_abandoned()) {\n            const TimePoint first_sent = sent();" "sent()" "Clock::now()")
found_by(engine AnEngine.keeps_an_order_no_longer_than_until_its_deadline)
mutate(outlives_its_deadline service/order_route.hpp
    "if (order_->answer_by != TimePoint::max())" "order_->answer_by != TimePoint::max()" "false")
found_by(engine AnEngine.keeps_an_order_no_longer_than_until_its_deadline)

# ---- The engine

mutate(written_behind_its_release_elsewhere service/engine.hpp
    "order->rank == CommandRank::release && ways_.size() > 1" "ways_.size() > 1" "false")
found_by(engine AnEngine.takes_out_what_another_link_has_not_written_of_a_token_that_is_released)
mutate(link_shared_with_a_users_policy service/engine.hpp
    "key{&node, replicas.count(), own};" "own" "static_cast<const void*>(nullptr)")
found_by(engine AnEngine.takes_out_what_another_link_has_not_written_of_a_token_that_is_released)

if(CMAKE_SCRIPT_MODE_FILE)
    write_mutants("link_mutants" "#include <mutant_by_name.hpp>")
endif()
