#pragma once

#include <redlatch/net/script.hpp>
#include <redlatch/policy/lock_policy.hpp>

namespace redlatch::inline v0 {

/// The server's side of a policy. The library's own scripts are the files of redlatch/lua/.
///
/// The lock stands first in KEYS; Q is the queue (a sorted set: token → place), W the waiters (a hash:
/// token → terms), F the last fencing token. ARGV[1] is the owner's token. Every script must be safe
/// to run twice and to run late:
///
/// | script  | KEYS  | further ARGV       | reply                | run again         | run late (token dead)   |
/// |---------|-------|--------------------|----------------------|-------------------|-------------------------|
/// | acquire | Q W F | lease, queue_ttl,  | {1, ttl, waiting,    | ours, lease full, | nothing: error LATE.    |
/// |         |       | subscribed, server,|  time, fence}        | the same fence    | Before that, a free key |
/// |         |       | deadline, fenced   | {0, ttl, position,   | the same place    | or a place, until its   |
/// |         |       |                    |  time, grants, owner}|                   | last release            |
/// |         |       |                    |  another's           |                   |                         |
/// | move    | Q F   | lease, next_token, | {1, waiting, fence}  | the same          | nothing: error LATE.    |
/// |         |       | deadline, fenced   | {0, waiting, 0}      |                   | Before that, as acquire |
/// |         |       |                    |  not ours            |                   |                         |
/// | nest    | (F)   | hold_count, lease  | 1 done, 0 not ours   | the same count    | nothing, or an old count|
/// | extend  | (F)   | lease, (last_fence)| 1 done, 0 not ours   | never shorter     | nothing                 |
/// | release | Q W F | server             | 1 freed, 0 not ours, | 0                 | nothing, but that a free|
/// |         |       |                    | 2 send it again      |                   | lock goes to who waits  |
/// | tomb-   | Q W F | server, kept_for   | as release           | 1, or as release  | as release              |
/// | stone   |       |                    |                      |                   |                         |
/// | inspect | Q W F | – (token is empty) | {owner, hold_count,  | reads only        | reads only              |
/// |         |       |                    |  ttl, waiting}       |                   |                         |
/// | force_  | Q W F | server (token is   | 1 removed, 0 another | 0                 | nothing                 |
/// | unlock  |       | whoever's it was)  |                      |                   |                         |
///
/// Leases and ttls are milliseconds; ttl is PTTL's answer. A lease of 0 leaves the ttl alone. The
/// hold count is absolute, so a repetition cannot add up; it is there for people and for other
/// clients: whether a lock is free is decided by `release`, which ends it whatever its count.
/// A lock's key of another type must make the script fail with WRONGTYPE before it changes anything.
///
/// Companion keys of another type: Q and W are left as they are. `acquire` fails with WRONGTYPE and the
/// key's name where it needs them, that is where somebody else has the lock or waits for it. All other
/// scripts do without them, `release` and `force_unlock` free the lock. F is overwritten, and counts as lost.
/// An ACL may forbid any command. No script leaves a key without an end then. One that ends in an error leaves its
/// caller no lock, no place and no companion key that was not there before.
///
/// Times are the server's, in microseconds; 0 stands for unknown. A script that gives somebody a lock
/// or a place changes nothing after the `deadline`: then nobody waits for its answer any more, and it
/// fails with `LATE time`. (The plain `SET NX PX` knows no such thing: the last release of its token, or the
/// end of its lease, frees a lock that it takes late.) "Not ours" is a master's answer: a script
/// on a replica fails with READONLY instead.
///
/// Waiting: `acquire` with a `queue_ttl` > 0 gives a refused token a place in the queue, or finds it there,
/// for so many milliseconds; with a `queue_ttl` < 0 a refused token leaves the queue; 0 changes nothing.
/// `release`, `force_unlock`, and an `acquire` that finds the key absent give the lock to the first waiter
/// who can take it, and tell its client. `release` by a token that waits leaves the queue, and serves the
/// others if the key is absent then. One run looks at 10,000 waiters. Where it has removed dead ones, found
/// nobody to serve and more wait, `release` has freed the lock and answers 2: it is to be sent again.
/// `subscribed` is 1 for a waiter whose client can be told, 0 for one that asks from time to time.
/// `waiting` is how many wait in the queue; `position` is how many wait in front, -1 without a place;
/// `grants` is 1 if the present owner will give the lock to the first waiter, 0 if it is a foreign
/// client's. `owner` is its token, for an error message; empty if unknown, and it may be left out.
/// `server` is the run id of the server, for the message, `-` if unknown.
///
/// `tombstone` ends a hold like `release`, and nobody gets the lock for `kept_for` milliseconds more: the
/// key's owner is then the token with `:min_hold` behind it, which no command has for its token. The last
/// fencing token, where there is one, stays a day longer than that.
///
/// Fencing: a script that gives the lock to somebody who wants a fencing token (`fenced` is 1, in the
/// arguments or in a waiter's terms) stores a greater one than the last, and tells it; `fence` is 0 for
/// others. `nest` and `extend` get F only for a lock that has one. Over several masters, `extend` with a
/// `last_fence` stores that one if it is greater than what it finds: each has given its own, and the
/// greatest counts.
///
/// Claims: a lock of `KeyType::sorted_set` may have several holders, each with a claim of a weight. A
/// reader weighs 1, a writer 1,000,000,000, a holder of k permits k. The table holds for such a lock too, but
/// for these rows. W is a hash as before; the fourth key of all scripts is F, or P, the
/// number of permits that was set.
///
/// | script  | KEYS  | further ARGV       | reply                | run again         | run late (token dead)   |
/// |---------|-------|--------------------|----------------------|-------------------|-------------------------|
/// | acquire | Q W F | …, weight, limit   | as above             | the same          | the same                |
/// | move    | Q W F | …, weight,         | as above             | the same          | the same                |
/// |         |       | next_weight        |                      |                   |                         |
/// | extend  | Q W F | lease, last_fence, | 1 done, 0 not ours;  | never shorter     | nothing                 |
/// |         |       | weight, asks       | asked, with waiting  |                   |                         |
/// | release | Q W F | server, weight     | as above             | 0                 | as above                |
/// | inspect | Q W F | – (token is empty) | {'', claims or       | reads only        | reads only              |
/// |         |       |                    |  permits taken, ttl, |                   |                         |
/// |         |       |                    |  waiting, limit set  |                   |                         |
/// |         |       |                    |  or -1, claim, ttl …}|                   |                         |
/// | force_  | Q W F | server, weight     | as release           | 0                 | as release              |
/// | unlock  |       | (of one claim; 0:  |                      |                   |                         |
/// |         |       | any, of a token)   |                      |                   |                         |
/// | down-   | Q W F | server             | 1 a reader now,      | 1                 | nothing                 |
/// | grade   |       |                    | 0 not ours           |                   |                         |
/// | set_    | Q W P | server, number,    | 1 set, 0 a later one | the same          | nothing: error LATE, or |
/// | permits |       | issued, deadline   | counts; issued 0: the|                   | 0                       |
/// |         |       |                    | time to issue it with|                   |                         |
///
/// `limit` is how much there may be of all, as the client knows, where nobody has set it. A claim that began
/// as a writer's is found in both forms by all of them. `extend` as a reader's makes it one. They need
/// all their keys, and Q and W of their own types. Only an `extend` that asks for nothing takes just the lock.
///
/// With the lock as the only key there is no queue; a policy that does without one may answer {1, ttl}
/// and {0, ttl}: its waiters ask again and again, and it cannot be `Fenced`.
struct LockScripts {
    Script acquire;       ///< takes the lock, or a place in the queue
    Script extend;        ///< makes it last longer
    Script release;       ///< ends the token's hold, and gives the lock to the next in the queue
    Script inspect;       ///< says who has it
    Script force_unlock;  ///< deletes it, whoever has it
    Script nest{""};      ///< only for a policy that is reentrant
    Script move{""};  ///< gives the lock to another token; without it every release frees the lock
    Script tombstone{""};    ///< a release that keeps the lock from all; without it no `min_hold`
    Script downgrade{""};    ///< only for a policy that is shared
    Script set_permits{""};  ///< only for a semaphore's
};

namespace detail {

template <LockPolicy P>
PolicyTraits traits_of() {
    return {.key_type = P::key_type,
            .reentrant = P::reentrant,
            .watched = P::watched,
            .fenced = is_fenced<P>,
            .scripts = &P::scripts(),
            .can_move = !P::scripts().move.source().empty(),
            .can_keep = !P::scripts().tombstone.source().empty(),
            .shared = is_shared<P>};
}

}  // namespace detail

}  // namespace redlatch::inline v0
