#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/options.hpp>
#include <redlatch/result.hpp>

#include <concepts>
#include <memory>
#include <utility>

#if REDLATCH_DEFINITIONS
#include <redlatch/service/shared_client.hpp>
#endif

namespace redlatch::inline v0 {

namespace detail {
class SharedClient;
struct Access;
}  // namespace detail

/// A connection to Redis for locks: owns the sockets, the renewal of watched locks and all state
/// that handles on the same lock share. One per process and server is enough; all members may be
/// called from any thread. Nothing is connected before the first use.
///
/// The destructor fires `lost()` of every lock still held, releases it, and makes every call that waits
/// return with `Errc::cancelled`. A blocking call that has just sent a command waits for the answer first,
/// for at most `command_timeout` after the destructor began. Where the server answers, a lock that a call is
/// just acquiring is given back before the destructor returns. The destructor takes at most three times
/// `command_timeout`, and four times where releases were only sent; that includes the time that it gives to
/// callbacks. Handles may outlive their client, and then fail in the same way, in a forked child too.
///
/// In a forked child, a client works with connections and an owner's identity of its own: it holds
/// none of its parent's locks and cannot touch them.
class Client {
public:
    /// For one server, one Sentinel service or one Cluster. Throws `LockError` with
    /// `Errc::invalid_argument` for a bad URI.
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

    /// With all options. Throws `LockError` with `Errc::invalid_argument` for a bad URI or option.
    explicit Client(ClientOptions options);

    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    /// Releases what is still held and ends every wait, within the time that is said above.
    ~Client();

    /// Asks the server, or a majority of several masters, for an answer; connects if need be. Blocks for at
    /// most `command_timeout`.
    ///
    /// Errors: `unavailable`; `no_quorum` over several masters; `denied`; `protocol`.
    Result<void> ping();

private:
    friend struct detail::Access;

    std::shared_ptr<detail::SharedClient> shared_;
};

#if REDLATCH_DEFINITIONS

REDLATCH_INLINE Client::Client(ClientOptions options)
    : shared_(std::make_shared<detail::SharedClient>(
          detail::check_client(std::move(options)).value())) {}

REDLATCH_INLINE Client::~Client() {
    shared_->end();
}

REDLATCH_INLINE Result<void> Client::ping() {
    detail::Session& session = shared_->session();
    const auto limit = detail::Limit::in(session.command_timeout());
    auto reply = session.run(detail::Call::plain({"PING"}), limit);
    if (!reply) return Unexpected{std::move(reply).error().error};
    return {};
}

#endif

}  // namespace redlatch::inline v0
