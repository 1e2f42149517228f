#pragma once

#include <redlatch/types.hpp>
#include <redlatch/uri.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

struct redisContext;

namespace redlatch::inline v0 {

class Executor;
class Observer;
class TlsLayer;

/// The pause between two tries of a waiter: random in `[min, max)`, drawn anew each time
/// ("decorrelated jitter"), so that waiters ask neither too often nor all at the same time.
/// `0 < min < max` is required.
struct Backoff {
    std::chrono::milliseconds min{10};   ///< Default: 10 ms.
    std::chrono::milliseconds max{100};  ///< Default: 100 ms.
};

/// How a waiter comes to a lock that another process holds.
enum class WaitStrategy {
    /// First come, first served. A waiter has a place in the server's queue; a release gives the lock to the first
    /// waiter and tells it. Where the server doesn't allow messages, waiters keep their places and ask from time to
    /// time. Where it doesn't allow the queue's keys, they poll, an observer gets a `warning`, and after a minute they
    /// try the queue again. Where several masters decide, waiters always poll, as those have no queue in common.
    queued,
    /// A waiter asks again and again, with the pauses of `backoff`. While others wait in the queue, the lock goes to
    /// them.
    polling,
    /// The former name of `queued`.
    granted [[deprecated("use WaitStrategy::queued")]] = queued,
};

/// How a lock is released where nobody asks for the outcome: by `unlock()`, and by destructors.
enum class ReleaseMode {
    /// Waits for the server's answer: then the lock is free for the next caller.
    confirmed,
    /// Only sends. The client's next command goes out behind it on the same connection, and both answers are
    /// read in order: a lock and unlock takes one round trip instead of two. A thread of the client's own
    /// reads answers that nobody else reads. The outcome goes to the observer, and the client sends a release
    /// again that may not have arrived. For a moment other threads and processes may find the lock still
    /// taken. Some releases are always confirmed: of a nested hold, of one whose `min_hold` is not over, and
    /// of any where several masters decide.
    sent,
};

/// Over what the blocking calls of a client send their commands.
enum class Connections {
    /// Each command has a connection to itself while it is under way: the fastest way for a few threads.
    pooled,
    /// All share the one connection to each server that asynchronous calls use. The client's engine, a thread, sends
    /// in one write what many threads want. For some ten threads or more: with 64 they get twice as many locks, and
    /// the server has one connection for all of them. A lone thread near its server waits longer, as each
    /// command passes through the engine.
    ///
    /// Here `ReleaseMode::sent` waits for the answer, and `busy_wait` does nothing. Several masters, and scripts of a
    /// policy of your own, have connections of the pool all the same.
    shared,
};

/// How much of a lease the holder does not rely on, because the two clocks may run at different
/// rates: `lease × factor + floor`. `0 ≤ factor < 1`, `0 ≤ floor ≤ 24 days`.
struct Drift {
    double factor = 0.01;                ///< Default: 1 %.
    std::chrono::milliseconds floor{2};  ///< Default: 2 ms.
};

namespace detail {

/// An integer type, but neither `bool` nor one for characters.
template <class T>
concept WholeNumber = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                      !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                      !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

}  // namespace detail

/// How many replicas have to acknowledge a lock before it counts as taken: a number up to
/// `most()`, none, or all that the server has just then.
class Replicas {
public:
    /// Asks for `count` replicas. A number that is negative, or above `most()`, is refused where the options
    /// are checked.
    template <detail::WholeNumber Number>
    constexpr Replicas(Number count) noexcept
        : count_(static_cast<std::uintmax_t>(count) <= greatest ? static_cast<unsigned>(count)
                                                                : none_such) {}

    /// The lock counts as taken when the master has it.
    static constexpr Replicas none() noexcept { return 0U; }
    /// All that the server has at the time of the acquisition.
    static constexpr Replicas all() noexcept {
        Replicas all = none();
        all.count_ = everyone;
        return all;
    }
    /// The greatest number that can be asked for.
    static constexpr Replicas most() noexcept { return greatest; }

    /// The number; for `all()` the greatest `unsigned`.
    constexpr unsigned count() const noexcept { return count_; }

    /// Whether they ask for the same.
    friend constexpr bool operator==(Replicas, Replicas) = default;

private:
    static constexpr unsigned greatest = 1024;
    static constexpr unsigned everyone = std::numeric_limits<unsigned>::max();
    static constexpr unsigned none_such = everyone - 1;

    unsigned count_;
};

/// What a `Lock` does unless a call says otherwise. Checked when the `Lock` is made.
struct LockOptions {
    /// How long the server keeps the lock for a silent holder. It has to be longer than the part that `drift`
    /// takes. Default: 30 s.
    Lease lease = std::chrono::seconds{30};

    /// How to wait for another process. Default: `WaitStrategy::queued`.
    WaitStrategy wait_strategy = WaitStrategy::queued;

    /// How often in a row the lock may pass from thread to thread inside this process while other processes wait in the
    /// queue. While none do, there is no limit. The client notices a process that begins to wait within 5 ms;
    /// with 0, at the next release. With `WaitStrategy::polling` nobody knows who waits, and the limit always
    /// holds. Default: 4.
    unsigned local_handoffs = 4;

    /// What `unlock()` and destructors wait for; `release()` always confirms. Default:
    /// `ReleaseMode::confirmed`.
    ReleaseMode release_mode = ReleaseMode::confirmed;

    /// The pauses of a waiter that polls, or that a fault made wait: 0 < min < max ≤ 24 days. Default: 10 ms to 100 ms.
    Backoff backoff{};

    /// With a watchdog: renewal ends this long after the lock was taken, and the hold with it. A lease that
    /// is longer is cut to it. At least 10 ms. Refused without a watchdog. Of nested holds the limit
    /// of the outermost counts; if that one is not watched, the longest of the watched ones. Default: no end.
    std::chrono::milliseconds max_hold = std::chrono::milliseconds::max();

    /// How much longer than the lease the server keeps a dead holder's lock, so that the last data that the
    /// holder sent can arrive before the next one starts. A normal release frees the lock at once.
    /// The end of the `Client` may end the delay early. At most 24 days. Default: 0.
    std::chrono::milliseconds lock_delay{0};

    /// After a release nobody gets the lock until that long after it was taken: for a job that is to run
    /// once per tick on one of many machines whose clocks differ. At most ten years; over several masters at
    /// most `longest_lease`. A holder that dies without a release still blocks others for its lease only.
    /// Until it ends, `inspect()` shows the owner with `:min_hold` behind its token. Waiters look when it
    /// ends, and a newcomer may be faster. An acquisition that failed frees the
    /// lock at once, and so does `force_unlock()`. Default: 0.
    std::chrono::milliseconds min_hold{0};

    /// How many replicas have to have the lock before it counts as taken (`WAIT`). Where fewer have
    /// acknowledged it by the end of the wait, or of `command_timeout` for a single try, it is released
    /// again in the background, and the error is `Errc::not_replicated`. It becomes less likely, and not
    /// impossible, that a failover loses a lock. Takes one command more for each acquisition; the lock does
    /// not pass from thread to thread in memory. Renewals and nested holds wait for nobody. Refused where
    /// several masters decide. Default: `Replicas::none()`.
    Replicas replicas = Replicas::none();

    /// The part of the lease that is not relied on. Default: 1 % + 2 ms.
    Drift drift{};
};

/// Whom an acquisition belongs to: that decides what nests, and what `Lock`'s members speak of.
enum class Owner {
    /// The calling thread. Its next acquisition of a reentrant lock nests; of another one it is
    /// `Errc::deadlock` where the wait has no limit. `Lock`'s members called by it speak of this
    /// hold, also when the `Held` has gone to another thread.
    thread,
    /// The `Held` alone, for one that goes to another thread: the acquiring thread is then excluded
    /// like everybody else, and waits for its end. `Lock`'s members do not speak of it.
    hold,
};

/// How one acquisition differs from the `Lock`'s options.
struct AcquireOptions {
    /// How long to wait. Default: without limit.
    Wait wait = Wait::unlimited();

    /// This acquisition's lease. Default: the `Lock`'s.
    std::optional<Lease> lease{};

    /// Ends the wait within 50 ms with `Errc::cancelled`. Default: never.
    std::stop_token stop{};

    /// Whom the hold belongs to. Default: `Owner::thread`.
    Owner owner = Owner::thread;
};

/// How one asynchronous acquisition differs from the `Lock`'s options. Its stop token is a parameter of its own:
/// g++ 12 destroys the members of such an object twice where it is written in braces inside a `co_await`.
struct AsyncOptions {
    /// How long to wait from where the call begins: at `co_await`, with a callback at once. Default: without
    /// limit.
    Wait wait = Wait::unlimited();

    /// This acquisition's lease. Default: the `Lock`'s.
    std::optional<Lease> lease{};
};
static_assert(std::is_trivially_destructible_v<AsyncOptions>);

/// What one `Semaphore::take()` asks for.
struct TakeOptions {
    /// How many permits, all of them or none. Default: 1.
    std::ptrdiff_t permits = 1;

    /// How long to wait. Default: without limit.
    Wait wait = Wait::unlimited();

    /// This acquisition's lease. Default: the `Semaphore`'s.
    std::optional<Lease> lease{};

    /// Ends the wait within 50 ms with `Errc::cancelled`. Default: never.
    std::stop_token stop{};
};

/// What one `Semaphore::async_take()` asks for; its stop token is a parameter of its own, as with `AsyncOptions`.
struct AsyncTakeOptions {
    /// How many permits, all of them or none. Default: 1.
    std::ptrdiff_t permits = 1;

    /// How long to wait, from where the call begins, as with `AsyncOptions`. Default: without limit.
    Wait wait = Wait::unlimited();

    /// This acquisition's lease. Default: the `Semaphore`'s.
    std::optional<Lease> lease{};
};
static_assert(std::is_trivially_destructible_v<AsyncTakeOptions>);

/// Stands in for a URI where the program makes its connections itself: through a tunnel, with an
/// authentication of its own, over a hiredis that was built in another way.
struct ConnectionFactory {
    /// Returns a new connection that is ready for commands: authenticated, its database selected,
    /// not in a transaction or a subscription, in RESP2. The client owns it and ends it with
    /// `redisFree`. A context with an error, a null pointer and an exception are all faults of kind
    /// `Errc::unavailable`: the client tries again as it would after any other.
    ///
    /// Is called by any thread that needs a connection, several at once too, with no mutex held, and
    /// in a forked child as well. The call that needs the connection takes as long as the factory
    /// does, so this has to return within the time that it is given. A thread that `pthread_cancel` cancels
    /// meanwhile ends when the factory has returned.
    std::function<redisContext*(std::chrono::milliseconds timeout)> connect{};

    /// What messages call the server. Default: `own connection`.
    std::string name = "own connection";
};

/// What a connection logs in with. Without a user it logs in as the default one, without both not at all. A
/// user without a password logs in with an empty one.
struct Credentials {
    std::string user{};      ///< empty: the default user
    std::string password{};  ///< appears in no message
};

/// Gives the credentials for a new connection. See `ClientOptions::credentials`.
using CredentialsFunction = std::function<Credentials()>;

/// How a `Client` reaches its servers. Checked when the `Client` is made.
struct ClientOptions {
    /// The server, here or in `factories`; or several masters that know nothing of each other, best
    /// three or five and 64 at most, of which a majority has to agree on each lock. Sentinel and Cluster
    /// URIs stand alone.
    std::vector<Uri> uris{};

    /// In place of URIs, or beside them: each makes the connections to one server.
    std::vector<ConnectionFactory> factories{};

    /// The time for one connection, name resolution included; positive. No more than `command_timeout` counts: calls,
    /// and renewal too, connect in the time of their command. Default: 1 s.
    std::chrono::milliseconds connect_timeout{1000};

    /// The time for one command and its answer; calls that don't wait for a lock take no longer
    /// in all, connecting and retries included. Positive; 24 days at most count. Default: 1 s.
    std::chrono::milliseconds command_timeout{1000};

    /// With several masters: how long one may take for an answer before the others decide without it.
    /// Several round trips, but much less than a lease; no more than `command_timeout` counts. Default:
    /// 100 ms.
    std::chrono::milliseconds node_timeout{100};

    /// With several masters: the longest lease, with its `lock_delay`, and the longest `min_hold` that anybody uses for
    /// a lock there; a longer one is refused. A master that restarted less than that ago may have forgotten a lock, and
    /// so has no vote on new ones. Use 0 where every restart keeps all data (`appendfsync always`), or takes
    /// longer than any lease. Default: 30 s.
    std::chrono::milliseconds longest_lease{std::chrono::seconds{30}};

    /// How to log in, for passwords that expire; in place of a user or password in the URI. The client calls
    /// it for the first connection, and again when a server has refused what it gave last. Only if that is
    /// refused too, the error is `Errc::denied`. An exception of the function counts as `Errc::unavailable`,
    /// and is never quoted. It runs on a thread of its own with no mutex held; a call that needs a connection
    /// waits for `connect_timeout` at most. It may still run when the client is gone, so it has to own what
    /// it needs. It is not for the Sentinels themselves, nor for `factories`. Default: the URI says it.
    CredentialsFunction credentials{};

    /// @{
    /// With `redis+sentinel://`: how to log in to the Sentinels themselves. The URI's own user and
    /// password are for the master. Default: not at all.
    std::string sentinel_user{};
    std::string sentinel_password{};
    /// @}

    /// For `rediss://` and the like: what `redlatch::tls(…)` of `<redlatch/tls.hpp>` returns. Default: none.
    std::shared_ptr<const TlsLayer> tls{};

    /// Shows in `CLIENT LIST` and in owner tokens: 1 to 64 printable ASCII characters, no space.
    /// Default (empty): `host:pid`.
    std::string client_name{};

    /// What the names of the companion keys and of the channels begin with, so that the ACL of a service can be a
    /// prefix: with `svc:locks:` and locks that are named `svc:…` it is `~svc:* &svc:*`. Any bytes but `{` and
    /// `}`, 1 to 128 of them. No lock's name may begin with it, or with `redlatch:`. Any other key space than the
    /// usual one must not begin with `redlatch:` either.
    ///
    /// All clients of a lock use the same one. Clients of two key spaces exclude each other, but know nothing
    /// of each other's queue. A waiter behind a client of another key space polls, fencing tokens of two have
    /// no order, `set_permits()` counts in one of them, and an observer gets a `warning`. Default:
    /// `redlatch:`.
    std::string key_space = "redlatch:";

    /// The most connections at once for the commands of blocking calls, at least 1. There are never more than
    /// commands under way at once. Renewal has one more, and so have the messages for waiters, from the first
    /// wait for another process on. Asynchronous calls, and blocking ones with `Connections::shared`, have one
    /// more to each master, for each number of `LockOptions::replicas`, and for each policy with scripts of its
    /// own. Default: 64.
    std::size_t max_connections = 64;

    /// Over what blocking calls send their commands; of no consequence for asynchronous ones. Default:
    /// `Connections::pooled`.
    Connections connections = Connections::pooled;

    /// How long a thread that waits for an answer looks for it without sleep before it blocks, at
    /// most 10 ms: saves the time to fall asleep and to wake, and costs a core meanwhile. Worth it
    /// for few threads and a server that is near. Default: 0, not at all.
    std::chrono::microseconds busy_wait{0};

    /// The executor of asynchronous operations that are given no other. It has to outlive them, or
    /// be a `CompletionQueue`. Default (null): threads of the client's own. A `CompletionQueue` that a forked
    /// child inherited discards what the child begins: there, name a new one in each call, or make a new
    /// client.
    Executor* completions{};

    /// Is told what happens to locks, on a thread of the client's own. Default: nobody.
    std::shared_ptr<Observer> observer{};
};

}  // namespace redlatch::inline v0
