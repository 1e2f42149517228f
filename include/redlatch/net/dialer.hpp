#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/endpoint.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/log_in.hpp>
#include <redlatch/net/open_connection.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// Makes the connections to a master, whichever server that is at the time. Thread-safe.
class Dialer {
public:
    Dialer() = default;
    Dialer(const Dialer&) = delete;
    Dialer& operator=(const Dialer&) = delete;
    virtual ~Dialer() = default;

    /// A new connection, ready for commands.
    virtual Expected<Connection, Fault> open(const Limit& limit) = 0;

    /// What messages call the master, or where it is looked for while it is not known.
    virtual std::string name() const = 0;

    /// Whether a new connection would lead to the same server, as far as is known.
    bool is_current(const Connection& connection) const noexcept {
        return connection.epoch() == epoch();
    }

    /// The server at the other end has turned out not to be the master: no connection that was made
    /// before is used any more. The first of several calls counts.
    void leave(const Connection& connection) {
        unsigned epoch = connection.epoch();
        if (epoch_.compare_exchange_strong(epoch, epoch + 1)) tell_moved();
    }

    /// `act` is called, with no mutex held, when connections made before have become useless. To be
    /// set before the first use.
    void on_move(std::function<void()> act) { on_move_ = std::move(act); }

protected:
    /// To be read before dialling: the master may change meanwhile.
    unsigned epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

    /// Begins a new one: the master is another server.
    unsigned next_epoch() noexcept { return epoch_.fetch_add(1) + 1; }

    /// To be called after that, with no mutex held.
    void tell_moved() const {
        if (on_move_) on_move_();
    }

    static Expected<Connection, Fault> of_epoch(unsigned epoch,
                                                Expected<Connection, Fault> connection) {
        if (connection) connection->set_epoch(epoch);
        return connection;
    }

private:
    std::atomic<unsigned> epoch_{0};
    std::function<void()> on_move_;
};

/// Gets to see each new connection before it is used. A fault means that it broke.
using Examine = std::function<Expected<void, Fault>(Connection&, const Limit&)>;

inline Expected<Connection, Fault> examined(Expected<Connection, Fault> connection,
                                            const Examine& examine, const Limit& limit) {
    if (!connection || !examine) return connection;
    if (auto sound = examine(*connection, limit); !sound) {
        sound.error().maybe_executed = false;  // nothing of the user's was sent yet
        return Unexpected{std::move(sound).error()};
    }
    return connection;
}

/// What a client's connections have in common, wherever they lead.
struct DialOptions {
    std::string client_name;
    std::chrono::milliseconds connect_timeout;
    std::shared_ptr<const TlsLayer> tls;  ///< null where no endpoint wants it
    Examine examine;                      ///< may be empty
    Resolver* resolver;                   ///< has to outlive the connections that are being made
    std::shared_ptr<LogIn> log_in;        ///< null where the endpoints say how to log in

    Expected<Connection, Fault> connect(const Endpoint& endpoint, const Limit& limit) const {
        const Limit own = limit.within(connect_timeout);
        return log_in == nullptr ? open(endpoint, own) : open_with_log_in(endpoint, own);
    }

    /// The same, logging in as the endpoint says.
    Expected<Connection, Fault> connect_as_given(const Endpoint& endpoint,
                                                 const Limit& limit) const {
        return open(endpoint, limit.within(connect_timeout));
    }

private:
    Expected<Connection, Fault> open(const Endpoint& endpoint, const Limit& limit) const {
        auto connection = open_connection(endpoint, client_name, tls.get(), *resolver, limit);
        const bool stores_locks = endpoint.mode != Endpoint::Mode::sentinel && !endpoint.any_role;
        return stores_locks ? examined(std::move(connection), examine, limit)
                            : std::move(connection);
    }

    /// Credentials that were refused may have expired: there is one more try with those given then.
    Expected<Connection, Fault> open_with_log_in(const Endpoint& endpoint,
                                                 const Limit& limit) const {
        for (bool again = false;; again = true) {
            auto given = log_in->get(limit);
            if (!given) {
                given.error().error.node = endpoint.name();
                return Unexpected{std::move(given).error()};
            }
            const auto& [user, password] = **given;
            Endpoint as_user = endpoint;
            as_user.log_in_as(user, password);
            auto connection = open(as_user, limit);
            if (connection || !connection.error().refuses_log_in) return connection;
            log_in->refused(*given);
            if (again) return connection;
        }
    }
};

/// Dials one server.
class DirectDialer final : public Dialer {
public:
    DirectDialer(Endpoint endpoint, DialOptions options)
        : endpoint_(std::move(endpoint)), options_(std::move(options)) {}

    std::string name() const override { return endpoint_.name(); }

    Expected<Connection, Fault> open(const Limit& limit) override {
        const unsigned epoch = this->epoch();
        return of_epoch(epoch, options_.connect(endpoint_, limit));
    }

private:
    const Endpoint endpoint_;
    const DialOptions options_;
};

}  // namespace redlatch::inline v0::detail
