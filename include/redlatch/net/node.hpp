#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/pool.hpp>
#include <redlatch/net/server_error.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// How a node is used.
struct NodeUse {
    std::chrono::milliseconds command_timeout;
    std::size_t max_connections;
    std::chrono::microseconds busy_wait{0};

    /// Is told once of a node whose ACL allows the first key of a script and not the others.
    std::function<void(const std::string&)> on_keys_denied{};

    /// After so long they are asked for again: an ACL can be changed.
    std::chrono::milliseconds keys_denied_for = std::chrono::minutes{1};
};

/// One master, and how a command is run there. Thread-safe.
class Node {
public:
    Node(std::unique_ptr<Dialer> dialer, const NodeUse& use,
         std::function<void(const std::string&)> on_reconnect)
        : command_timeout_(use.command_timeout),
          keys_denied_for_(use.keys_denied_for),
          pool_(std::move(dialer), use.max_connections, use.busy_wait),
          on_reconnect_(std::move(on_reconnect)),
          on_keys_denied_(use.on_keys_denied) {}

    std::string name() const { return pool_.dialer().name(); }
    std::chrono::milliseconds command_timeout() const noexcept { return command_timeout_; }

    /// Sends `call` and returns its reply. Where the connection had died while it lay idle, sends
    /// `again` once on a new one: that has to be right even if `call` was carried out. `asking`: behind
    /// ASKING, as a node of a Cluster wants it for a slot that it is just being given.
    Expected<Reply, Fault> run(const Call& call, const Call& again, const Limit& limit,
                               bool asking = false) {
        Exchange exchange{ReplyUse::awaited};
        auto reply = run_on(exchange, pool_.borrow(limit), call, limit, asking);
        if (exchange.next() == CommandStep::Next::reconnect) {
            reply = run_on(exchange, pool_.borrow_new(limit), again, limit, asking);
        }
        note(reply);
        return reply;
    }

    /// The same for a call that may be sent twice as it is.
    Expected<Reply, Fault> run(const Call& call, const Limit& limit) {
        return run(call, call, limit);
    }

    /// Sends `call` and does not wait for the answer: the next user of the connection, or `drain`, calls
    /// `callback` with it. False where it was not sent, and never will be: so it is with
    /// a script, too, that was never carried out on that connection.
    bool post(const Call& call, ReplyCallback callback, const Limit& limit) {
        auto loan = pool_.borrow(limit);
        if (!loan) return false;
        Connection& connection = **loan;
        Exchange exchange{ReplyUse::left};
        if (!exchange.use(connection, loan->reused(), call, key_access())) return false;
        if (!exchange.send(limit)) return false;
        connection.expect(exchange.left(), std::move(callback));
        return true;
    }

    /// Receives, on connections that lie idle, the answers pending since `since` or longer; each is given
    /// `command_timeout` from when the first of its connection was left. Whether younger ones are left.
    bool drain(TimePoint since) {
        while (auto loan = pool_.borrow_pending(since)) {
            const Limit limit{saturating_add((*loan)->pending_since(), command_timeout_)};
            static_cast<void>((*loan)->drain(limit));
        }
        return pool_.has_pending_replies();
    }

    /// A connection that lies idle and on which no answer is pending; nothing where there is none.
    std::optional<Pool::Loan> borrow_idle() { return pool_.borrow_idle(); }

    /// One on which answers are pending, the oldest since after `since`; see `Pool`.
    std::optional<Pool::Loan> borrow_behind(TimePoint since, const void* about) {
        return pool_.borrow_behind(since, about);
    }

    /// One more connection for everybody; false where there are as many as there may be.
    bool has_room() { return pool_.has_room(); }
    void admit(Connection connection) { pool_.admit(std::move(connection)); }
    void drop_idle() { pool_.drop_idle(); }

    /// A connection outside the pool, for a service that must never wait for a place.
    Expected<Connection, Fault> connect(const Limit& limit) {
        auto connection = pool_.dialer().open(limit);
        // A server that turns this client away is not back for it.
        if (connection || connection.error().error.code == Errc::unavailable) note(connection);
        return connection;
    }

    /// Whether a connection that was made by `connect` is still to be used.
    bool is_current(const Connection& connection) const noexcept {
        return pool_.dialer().is_current(connection);
    }

    /// A connection that was made by `connect` leads to a replica: new ones are due.
    void leave(const Connection& connection) { pool_.dialer().leave(connection); }

    /// Which keys of a script the server's ACL allows, as far as is known.
    KeyAccess key_access() const noexcept {
        const TimePoint until = keys_denied_until_.load(std::memory_order_relaxed);
        if (until == TimePoint::min()) return KeyAccess::all;
        return Clock::now() >= until ? KeyAccess::doubtful : KeyAccess::first_only;
    }

    /// Whether scripts may use more keys than the first, or are to try it.
    bool allows_all_keys() const noexcept { return key_access() != KeyAccess::first_only; }

    /// Remembers which keys the server has accepted.
    void learn(const Exchange& exchange) {
        if (exchange.call().can_omit_keys()) learn(exchange.command().form());
    }

    /// The same of a script that can do without all keys but the first.
    void learn(SendForm accepted) {
        if (!accepted.first_key_only) {
            // Read first, as a shared write for every command would make the threads wait.
            if (keys_denied_until_.load(std::memory_order_relaxed) != TimePoint::min()) {
                keys_denied_until_ = TimePoint::min();
            }
        } else if (allows_all_keys()) {
            keys_denied_until_ = saturating_add(Clock::now(), keys_denied_for_);
            if (!told_of_keys_.exchange(true) && on_keys_denied_) on_keys_denied_(name());
        }
    }

    /// Something was asked of the server, or connected to it. Tells of its coming back. An error for now, as
    /// of one that is loading its data, says nothing of that; nor does a fault that ends a call before it
    /// gets there.
    template <class T>
    void note(const Expected<T, Fault>& outcome) {
        if (outcome) return note_health(false);
        const Fault& fault = outcome.error();
        const bool is_unavailable = fault.error.code == Errc::unavailable;
        if (fault.error.code == Errc::cancelled || fault.in_client) return;
        if (!is_unavailable || !fault.from_server) note_health(is_unavailable);
    }

private:
    Expected<Reply, Fault> run_on(Exchange& exchange, Expected<Pool::Loan, Fault> loan,
                                  const Call& call, const Limit& limit, bool asking) {
        if (!loan) return after(exchange, std::move(loan).error());
        Connection& connection = **loan;
        exchange.use(connection, loan->reused(), call, key_access(), asking);
        auto reply = exchange.run(limit);
        if (reply) learn(exchange);
        if (reply && call.replicas() != Replicas::none() && reply->view().is_taken(call.shape())) {
            reply = connection.wait_for(call.replicas(), *std::move(reply), limit);
            if (!reply) {
                reply.error().maybe_executed = true;
                explain(reply.error(), call);
                exchange.failed(reply.error());
            }
        }
        if (!reply) note_fault(connection, exchange.step(), reply.error());
        return reply;
    }

    static Unexpected<Fault> after(Exchange& exchange, Fault fault) {
        exchange.failed(fault);
        return Unexpected{std::move(fault)};
    }

    /// Connections to one server tend to die together: where one did, the others are not tried.
    void note_fault(const Connection& connection, CommandStep step, const Fault& fault) {
        if (step.leave_server) leave(connection);
        if (!connection.alive() && fault.error.code == Errc::unavailable) pool_.drop_idle();
    }

    void note_health(bool down) {
        // Read first: a shared write for every command would make the threads wait for each other.
        if (down_.load(std::memory_order_relaxed) == down) return;
        if (down_.exchange(down) && !down && on_reconnect_) on_reconnect_(name());
    }

    const std::chrono::milliseconds command_timeout_;
    const std::chrono::milliseconds keys_denied_for_;
    Pool pool_;
    const std::function<void(const std::string&)> on_reconnect_;
    const std::function<void(const std::string&)> on_keys_denied_;
    std::atomic<bool> down_{false};
    std::atomic<bool> told_of_keys_{false};
    std::atomic<TimePoint> keys_denied_until_{TimePoint::min()};  // all but the first, by the ACL
};

}  // namespace redlatch::inline v0::detail
