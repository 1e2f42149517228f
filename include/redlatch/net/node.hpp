#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/limit.hpp>
#include <redlatch/net/pool.hpp>
#include <redlatch/net/script.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// One server, and how a command is run there. Thread-safe.
class Node {
public:
    Node(Dial dial, std::chrono::milliseconds command_timeout, std::size_t max_connections,
         std::function<void(const std::string&)> on_reconnect)
        : command_timeout_(command_timeout),
          pool_(std::move(dial), max_connections),
          on_reconnect_(std::move(on_reconnect)) {}

    std::string name() const { return pool_.dial().endpoint.name(); }
    std::chrono::milliseconds command_timeout() const noexcept { return command_timeout_; }

    /// Sends `call` and returns its reply. Where the connection had died while it lay idle, sends
    /// `again` once on a new one: that has to be right even if `call` was carried out.
    Expected<Reply, Fault> run(const Call& call, const Call& again, const Limit& limit) {
        auto reply = run_on(pool_.borrow(limit), call, limit);
        if (!reply && reply.error().stale) {
            const Fault first = std::move(reply).error();
            reply = run_on(pool_.borrow_new(limit), again, limit);
            if (reply) reply->repeated = first.maybe_executed;
            if (!reply && first.maybe_executed) reply.error().maybe_executed = true;
        }
        note_health(reply);
        return reply;
    }

    /// The same for a call that may be sent twice as it is.
    Expected<Reply, Fault> run(const Call& call, const Limit& limit) {
        return run(call, call, limit);
    }

    /// A connection outside the pool, for a service that must never wait for a place.
    Expected<Connection, Fault> connect(const Limit& limit) {
        auto connection = pool_.dial().open(limit);
        note_health(connection);
        return connection;
    }

private:
    Expected<Reply, Fault> run_on(Expected<Pool::Loan, Fault> loan, const Call& call,
                                  const Limit& limit) {
        if (!loan) return Unexpected{std::move(loan).error()};
        Connection& connection = **loan;
        auto reply = connection.call(call.wire(), limit);
        if (!reply && call.is_script() && is_noscript(reply.error())) {
            reply = connection.call(call.wire(Call::Form::whole), limit);
        }
        if (reply && !reply->view().fits(call.answer())) {
            connection.discard();
            reply = Unexpected{unexpected_reply()};
            reply.error().error.node = name();
        }
        if (!reply && !loan->reused()) reply.error().stale = false;
        return reply;
    }

    template <class T>
    void note_health(const Expected<T, Fault>& outcome) {
        const bool down = !outcome && outcome.error().error.code == Errc::unavailable;
        // Read first: a shared write for every command would make the threads wait for each other.
        if (down_.load(std::memory_order_relaxed) == down) return;
        if (down_.exchange(down) && !down && on_reconnect_) on_reconnect_(name());
    }

    const std::chrono::milliseconds command_timeout_;
    Pool pool_;
    const std::function<void(const std::string&)> on_reconnect_;
    std::atomic<bool> down_{false};
};

}  // namespace redlatch::inline v0::detail
