#pragma once

namespace redlatch::test::simulator {

/// A mistake that a schedule's clients or scripts can be made to have, to see the checker find it.
enum class Mutant {
    none,
    in_machine,  ///< one of machine_mutants.cmake, of what locks without claims do
    // In the scripts
    lease_shortened,  ///< an acquire that finds the lock its own sets the ttl, whatever it is
    plain_delete,     ///< a release deletes whatever is there
    shared_queue,     ///< all names have one queue
    last_come_first_served,
    late_commands_run,     ///< a script never finds itself late
    fence_without_clock,   ///< the next fencing token is one more, whatever was lost
    fence_without_memory,  ///< it is the server's time alone
    fence_not_granted,     ///< who is given the lock has the number of the holder before
    anyones_extended,      ///< a renewal asks for no owner
    // In the clients
    late_grant_believed,   ///< a grant older than the last answer counts
    anchor_kept,           ///< a grant is measured by another server's clock
    dead_token_used,       ///< a token is asked with after its release
    counted_from_arrival,  ///< validity begins when the answer comes
    no_recheck,            ///< whoever waits for a word waits for ever, and no word comes
    place_not_withdrawn,  ///< a grant for a token that nobody asks with any more wakes who asks with another
    unknown_grant_ignored,  ///< nobody gives back what a dead token was given
    released_renewed,       ///< renewals go on when the release was sent
    extension_releases,     ///< a late answer to an extension releases a token that was passed on
    lost_hold_kept,         ///< a hold that was lost before its turn ended becomes the current one
    hand_off_wakes_nobody,  ///< who waits behind a hand-off sleeps past the end of the new hold
    loss_told_late,         ///< the loss waits behind other events
    nesting_goes_on,        ///< neither a close nor the end of the outer hold ends a nested wait
    close_told_as_loss,  ///< a nested call whose client closes is told that its outer hold is lost
    moved_token_left,    ///< a token that nobody takes over after a move is not released
    nested_end_stops_renewal,       ///< the end of one watched acquisition ends the renewal for all
    hand_off_without_limit,         ///< a lock passes on inside a process for ever
    own_hold_nested_in,             ///< `Owner::hold` counts for nothing
    unclear_try_forgotten,          ///< a try without an answer is not released once more
    min_hold_forgotten,             ///< a release frees at once, whatever the min_hold
    delivered_when_over,            ///< a hold is delivered whose validity has ended meanwhile
    renewed_undelivered,            ///< a hold is renewed that nobody has been given yet
    late_answer_unheard,            ///< a late answer to a try that was given up wakes nobody
    late_answer_to_anyone,          ///< it is for whoever contends, with any token
    late_answer_of_nobody_ignored,  ///< nobody gives back what a dead token has got, as the answer says
    late_answer_counted_from_arrival,  ///< validity begins when it comes
    untaken_kept,                      ///< a hold that nobody takes any more is not released
    earlier_acknowledged,  ///< replicas that have what was written before count for a lock
    // In the scripts, where a process may not use a command
    failed_script_deletes,   ///< a release that fails behind a grant deletes the lock
    queue_left_without_end,  ///< an acquire that fails leaves the queue without an end
    // In the scripts of locks with claims
    writer_beside_readers,  ///< a writer fits in beside readers
    one_too_many,           ///< there is one permit more than there are
    one_at_a_time,          ///< nobody fits in beside anybody
    overtaken,              ///< who fits in is let in, whoever waits
    claim_counted_on,       ///< a release leaves the sum as it is
    place_keeps_lease,      ///< who is let in has the lease of the one that had its place before
    released_to_nobody,     ///< a release lets nobody in
    // In the scripts that an operator runs
    forced_from_another,  ///< a lock is taken away from whoever has it, not from the owner that is named
    forced_and_left,         ///< and the owner still has it, too
    older_setting_counts,    ///< a number of permits counts that was issued before another one
    setting_not_counted_on,  ///< permits that are added are given away, whatever is taken
    // In the scripts, where the slot of a Cluster moves
    deleted_key_served,  ///< somebody is taken from the queue for a lock whose key may not be written any more
    deleted_key_read,  ///< who leaves reads a queue whose key may not be read any more
};

/// Whether schedules would show it in which operators intervene.
constexpr bool has_operators(Mutant mutant) {
    return mutant == Mutant::none || mutant >= Mutant::forced_from_another;
}

/// Whether schedules would show it in which the master is one of several nodes.
constexpr bool has_nodes(Mutant mutant) {
    return mutant == Mutant::none || mutant >= Mutant::deleted_key_served;
}

/// Whether schedules with claims would show it.
constexpr bool has_claims(Mutant mutant) {
    return mutant == Mutant::none || mutant >= Mutant::writer_beside_readers;
}

}  // namespace redlatch::test::simulator
