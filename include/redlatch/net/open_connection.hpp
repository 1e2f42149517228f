#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/endpoint.hpp>
#include <redlatch/net/handshake.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/process_sockets.hpp>
#include <redlatch/net/resolve.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/stream.hpp>
#include <redlatch/net/tls_layer.hpp>

#include <hiredis/hiredis.h>

#include <memory>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// The connection itself, if its first words went well.
inline Expected<Connection, Fault> if_greeted(Connection connection,
                                              Expected<void, Fault> greeted) {
    if (greeted) return connection;
    greeted.error().maybe_executed = false;  // nothing of the user's was sent yet
    return Unexpected{std::move(greeted).error()};
}

/// Connects, authenticates, selects the database and sets the client's name. `tls` secures it
/// where the endpoint wants that.
inline Expected<Connection, Fault> open_connection(const Endpoint& endpoint,
                                                   const std::string& client_name,
                                                   const TlsLayer* tls, Resolver& resolver,
                                                   const Limit& limit) {
    const auto failed = [&endpoint](Fault fault) {
        fault.error.node = endpoint.name();
        return Unexpected{std::move(fault)};
    };
    auto socket = connect_endpoint(endpoint, resolver, limit);
    if (!socket) return failed(std::move(socket).error());
    std::unique_ptr<Stream> stream;
    if (endpoint.tls) {
        auto secured = tls->secure(socket->get(), endpoint.host, limit);
        if (!secured) return failed(std::move(secured).error());
        stream = *std::move(secured);
    }
    ContextPtr context{redisConnectFd(socket->get())};
    if (context == nullptr) return failed(io_fault("out of memory"));
    make_blocking(socket->release());
    Connection connection{std::move(context), endpoint.name(), std::move(stream)};
    auto done = Handshake{connection, limit}.shake_hands(endpoint, client_name);
    const bool was_hung_up_on = !done && done.error().disconnected && !connection.has_heard();
    if (was_hung_up_on && !endpoint.tls && endpoint.path.empty())
        done.error().error.message += " (does the server expect TLS on this port?)";
    return if_greeted(std::move(connection), std::move(done));
}

/// Takes over a connection that somebody else has made and that is ready for commands, with what
/// carries its bytes if that is more than its socket. Only its socket can make that stream wait for nothing.
inline Expected<Connection, Fault> adopt_connection(ContextPtr context, std::string node,
                                                    std::unique_ptr<Stream> stream,
                                                    const Limit& limit) {
    ::fcntl(context->fd, F_SETFD, FD_CLOEXEC);
    ProcessSockets::add(context->fd);
    if (stream == nullptr) {
        make_blocking(context->fd);
    } else {
        make_non_blocking(context->fd);
    }
    Connection connection{std::move(context), std::move(node), std::move(stream)};
    auto done = Handshake{connection, limit}.learn_server();
    return if_greeted(std::move(connection), std::move(done));
}

}  // namespace redlatch::inline v0::detail
