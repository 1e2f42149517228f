#pragma once

#include <redlatch/service/process.hpp>
#include <redlatch/service/session.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0 {

namespace detail {

inline Error invalid(std::string message) {
    return {Errc::invalid_argument, {}, {}, std::move(message), {}};
}

/// What the Sentinels' own credentials are.
inline void log_in_to_sentinels(UriParts& uri, const ClientOptions& options) {
    const std::string user = uri.sentinel_user.value_or(options.sentinel_user);
    const std::string password = uri.sentinel_password.value_or(options.sentinel_password);
    for (Endpoint& sentinel : uri.hosts) {
        if (!user.empty()) sentinel.user = user;
        if (!password.empty()) sentinel.password = password;
    }
}

/// Where one server is, or one deployment of servers.
inline Result<UriParts> locate(const Uri& text, const ClientOptions& options) {
    auto uri = parse_uri(text);
    if (!uri) return uri;
    if (uri->tls && options.tls == nullptr) {
        return Unexpected{
            invalid("rediss:// wants TLS: set ClientOptions::tls to redlatch::tls(), from "
                    "<redlatch/tls.hpp>, and link redlatch::tls")};
    }
    if (uri->kind == UriParts::Kind::sentinel) log_in_to_sentinels(*uri, options);
    return uri;
}

/// Whether several masters can decide together.
inline Result<void> check_masters(const ClientSetup& setup) {
    std::vector<std::string> names;
    for (const UriParts& uri : setup.uris) {
        if (uri.kind != UriParts::Kind::server) {
            return Unexpected{invalid(
                "a Sentinel or Cluster URI stands alone: it cannot be one of several masters")};
        }
        if (std::find(names.begin(), names.end(), uri.name()) != names.end()) {
            return Unexpected{invalid(uri.name() + " is listed twice")};
        }
        names.push_back(uri.name());
    }
    if (setup.masters() > most_masters) return Unexpected{invalid("more than 64 masters")};
    if (setup.options.node_timeout <= std::chrono::milliseconds::zero()) {
        return Unexpected{invalid("node_timeout must be positive")};
    }
    if (setup.options.longest_lease < std::chrono::milliseconds::zero()) {
        return Unexpected{invalid("longest_lease must not be negative")};
    }
    return {};
}

/// Where a client's servers are, and what their URIs say about the options.
inline Result<ClientSetup> locate(ClientOptions given) {
    ClientSetup setup{std::move(given)};
    ClientOptions& options = setup.options;
    for (const Uri& text : options.uris) {
        auto uri = locate(text, options);
        if (!uri) return Unexpected{std::move(uri).error()};
        options.connect_timeout = uri->connect_timeout.value_or(options.connect_timeout);
        options.command_timeout = uri->command_timeout.value_or(options.command_timeout);
        setup.uris.push_back(*std::move(uri));
    }
    for (const ConnectionFactory& factory : options.factories) {
        if (!factory.connect) return Unexpected{invalid("the factory of connections is empty")};
    }
    if (setup.masters() == 0) return Unexpected{invalid("no URI")};
    if (setup.masters() > 1) {
        if (auto fit = check_masters(setup); !fit) return Unexpected{std::move(fit).error()};
    }
    return setup;
}

/// Checks a client's options as a whole.
inline Result<ClientSetup> check(ClientOptions given) {
    auto setup = locate(std::move(given));
    if (!setup) return setup;
    ClientOptions& options = setup->options;
    if (options.connect_timeout <= std::chrono::milliseconds::zero() ||
        options.command_timeout <= std::chrono::milliseconds::zero()) {
        return Unexpected{invalid("connect_timeout and command_timeout must be positive")};
    }
    constexpr std::chrono::milliseconds longest = Lease::max().duration();  // for ever, in effect
    options.connect_timeout = std::min(options.connect_timeout, longest);
    options.command_timeout = std::min(options.command_timeout, longest);
    if (options.busy_wait < std::chrono::microseconds::zero() ||
        options.busy_wait > std::chrono::milliseconds{10}) {
        return Unexpected{invalid("busy_wait is not between 0 and 10 ms")};
    }
    if (options.max_connections == 0) {
        return Unexpected{invalid("max_connections must be at least 1")};
    }
    const std::string& name = options.client_name;
    const bool printable =
        std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c <= '~'; });
    if (!printable || name.size() > 64) {
        return Unexpected{
            invalid("client_name must be 1 to 64 printable ASCII characters without space")};
    }
    return setup;
}

/// A client as its locks and holds share it. Hands out the session of this process: after a fork
/// the child's first call makes one, without touching any mutex of the parent's, which may be
/// locked for ever.
class SharedClient {
public:
    explicit SharedClient(ClientSetup setup)
        : setup_(std::move(setup)), session_(new Session{setup_}) {}
    SharedClient(const SharedClient&) = delete;
    SharedClient& operator=(const SharedClient&) = delete;
    ~SharedClient() {
        if (Session* const own = existing_session()) {
            delete own;
        } else {
            abandon(session_.load());
        }
    }

    Session& session() {
        Session* session = session_.load(std::memory_order_acquire);
        if (session->pid() == ProcessId::of_this_process()) return *session;
        return session_after_fork(session);
    }

    /// Whether all keys of a lock have to lie in one slot.
    bool has_slots() const { return setup_.is(UriParts::Kind::cluster); }

    /// Whether several masters decide; and the longest lease that is allowed.
    bool has_quorum() const noexcept { return setup_.masters() > 1; }
    std::chrono::milliseconds longest_lease() const noexcept { return setup_.longest_lease(); }

    /// This process's session if it has one yet: for destructors, which should not start any.
    Session* existing_session() noexcept {
        Session* const session = session_.load(std::memory_order_acquire);
        return session->pid() == ProcessId::of_this_process() ? session : nullptr;
    }

private:
    Session& session_after_fork(Session* inherited) {
        ClientSetup setup = setup_;
        if (setup.options.tls != nullptr) setup.options.tls = setup.options.tls->afresh();
        auto own = std::make_unique<Session>(setup);
        if (!session_.compare_exchange_strong(inherited, own.get())) return *inherited;
        abandon(inherited);
        return *own.release();
    }

    /// The parent's session stays as it is: its threads are not here to be joined, and closing its
    /// connections is the parent's business. Keeps it reachable, as it is no leak by mistake.
    static void abandon(Session* inherited) {
        struct Link {
            Session* session;
            Link* next;
        };
        static std::atomic<Link*> abandoned{nullptr};
        auto* const link = new Link{inherited, abandoned.load()};
        while (!abandoned.compare_exchange_weak(link->next, link)) {
        }
    }

    const ClientSetup setup_;
    std::atomic<Session*> session_;
};

struct Access;

}  // namespace detail

/// A connection to Redis for locks: owns the sockets, the renewal of watched locks and all state
/// that handles on the same lock share. One per process and server is enough; all members may be
/// called from any thread. Nothing is connected before the first use.
///
/// The destructor fires `lost()` of every lock still held, releases it, and makes everybody who
/// waits return with `Errc::cancelled`; it takes at most three times `command_timeout`, the time
/// that it gives to callbacks included, and four times where releases were only sent. Handles may
/// outlive their client, and then fail in the same way.
///
/// In a forked child, a client works with connections and an owner's identity of its own: it holds
/// none of its parent's locks and cannot touch them.
class Client {
public:
    /// Throws `LockError` with `Errc::invalid_argument` for a bad URI.
    explicit Client(Uri uri) : Client(ClientOptions{.uris = {std::move(uri)}}) {}

    /// For several masters that know nothing of each other: a majority has to agree on each lock
    /// (Redlock). See `ClientOptions::uris`. Throws `LockError` with `Errc::invalid_argument` for a bad
    /// URI, and for one that is there twice.
    template <std::convertible_to<Uri>... More>
    Client(Uri first, Uri second, More&&... more)
        : Client(ClientOptions{
              .uris = {std::move(first), std::move(second), Uri{std::forward<More>(more)}...}}) {}

    /// For connections that the program makes itself. Throws `LockError` with
    /// `Errc::invalid_argument` for an empty factory.
    explicit Client(ConnectionFactory factory)
        : Client(ClientOptions{.factories = {std::move(factory)}}) {}

    /// Throws `LockError` with `Errc::invalid_argument` for a bad URI or option.
    explicit Client(ClientOptions options)
        : shared_(
              std::make_shared<detail::SharedClient>(detail::check(std::move(options)).value())) {}

    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() {
        if (detail::Session* const session = shared_->existing_session()) session->close();
    }

    /// Asks the server for an answer, of several masters a majority; connects if need be. Blocks for at
    /// most `command_timeout`.
    Result<void> ping() {
        detail::Session& session = shared_->session();
        const auto limit = detail::Limit::in(session.command_timeout());
        auto reply = session.run({}, detail::Call::plain({"PING"}), limit);
        if (!reply) return Unexpected{std::move(reply).error().error};
        return {};
    }

private:
    friend struct detail::Access;

    std::shared_ptr<detail::SharedClient> shared_;
};

}  // namespace redlatch::inline v0
