#pragma once

#include <redlatch/net/script.hpp>

namespace redlatch::inline v0 {

/// The server's side of a policy.
///
/// KEYS[1] is the lock, KEYS[2] the queue (a sorted set: token → place), KEYS[3] the waiters (a
/// hash: token → terms). ARGV[1] is the owner's token. Every script must be safe to run twice and to
/// run late:
///
/// | script  | KEYS | further ARGV       | reply                | run again         | run late (token dead)   |
/// |---------|------|--------------------|----------------------|-------------------|-------------------------|
/// | acquire | 1–3  | lease, stay, hears,| {1, ttl, waiting,    | ours, lease full  | nothing: error LATE.    |
/// |         |      | server, not_after  |  time, 0}            |                   | Before that, a free key |
/// |         |      |                    | {0, ttl, place, time,| the same place    | or a place, until its   |
/// |         |      |                    |  grants} another's   |                   | last release            |
/// | move    | 1–2  | lease, next token, | 1 + waiting          | 1 + waiting       | nothing: error LATE.    |
/// |         |      | not_after          | 0 not ours           |                   | Before that, as acquire |
/// | nest    | 1    | hold count, lease  | 1 done, 0 not ours   | the same count    | nothing, or an old count|
/// | extend  | 1    | lease              | 1 done, 0 not ours   | never shorter     | nothing                 |
/// | release | 1–3  | server             | 1 freed, 0 not ours  | 0                 | nothing                 |
/// | inspect | 1–3  | – (token is empty) | {owner, count, ttl,  | reads only        | reads only              |
/// |         |      |                    |  waiters}            |                   |                         |
/// | force   | 1–3  | server (token is   | 1 removed, 0 another | 0                 | nothing                 |
/// |         |      | whoever's it was)  |                      |                   |                         |
///
/// Leases and ttls are milliseconds; ttl is PTTL's answer. A lease of 0 leaves the ttl alone. The
/// hold count is absolute, so a repetition cannot add up; it is there for people and for other
/// clients: whether a lock is free is decided by `release`, which ends it whatever its count.
/// A key of another type must make the script fail with WRONGTYPE before it changes anything.
///
/// Times are the server's, in microseconds; 0 stands for unknown. A script that gives somebody a lock
/// or a place changes nothing after `not_after`: then nobody waits for its answer any more, and it
/// fails with `LATE time`. (The plain `SET NX PX` knows no such thing: what it takes late, the last
/// release of its token frees, or the end of its lease.) "Not ours" is a master's answer: a script
/// on a replica fails with READONLY instead.
///
/// Waiting: `acquire` with `stay` > 0 gives a refused token a place in the queue, or finds it there,
/// for so many milliseconds; with `stay` < 0 a refused token leaves the queue; 0 changes nothing.
/// `release`, `force`, and an `acquire` that finds the key absent give the lock to the first waiter
/// who can take it, and tell its client. `release` by a token that waits only leaves the queue.
/// `hears` is 1 for a waiter whose client can be told, 0 for one that asks from time to time.
/// `waiting` is how many wait in the queue; `place` is how many wait in front, -1 without a place;
/// `grants` is 1 if the present owner will give the lock to the first waiter, 0 if it is a foreign
/// client's. `server` is the run id of the server, for the message, `-` if unknown.
/// With KEYS[1] alone there is no queue; a policy that does without one may answer {1, ttl} and
/// {0, ttl}, and its waiters ask again and again.
struct LockScripts {
    Script acquire;
    Script extend;
    Script release;
    Script inspect;
    Script force;
    Script nest{""};  ///< only for a policy that is reentrant
    Script move{""};  ///< gives the lock to another token; without it every release frees the lock
};

}  // namespace redlatch::inline v0
