#pragma once

#include <redlatch/core/key_space.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/net/uri_parser.hpp>
#include <redlatch/options.hpp>
#include <redlatch/result.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A client's options, checked, and its URIs, taken apart. Where the user connects, there are
/// factories instead.
struct ClientSetup {
    ClientOptions options;
    std::vector<UriParts> uris{};
    /// Of `options.completions`, which a forked child may find destroyed; null for none.
    std::shared_ptr<Executor> completions{};

    std::size_t masters() const noexcept { return uris.size() + options.factories.size(); }

    /// The longest lease that is allowed.
    std::chrono::milliseconds longest_lease() const noexcept {
        const bool any = masters() < 2 || options.longest_lease == options.longest_lease.zero();
        return any ? std::chrono::milliseconds::max() : options.longest_lease;
    }

    bool is(UriParts::Kind kind) const { return uris.size() == 1 && uris.front().kind == kind; }
};

/// What the Sentinels' own credentials are.
inline void set_credentials_of_sentinels(UriParts& uri, const ClientOptions& options) {
    const std::string user = uri.sentinel_user.value_or(options.sentinel_user);
    const std::string password = uri.sentinel_password.value_or(options.sentinel_password);
    for (Endpoint& sentinel : uri.hosts) sentinel.log_in_as(user, password);
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
    if (uri->kind == UriParts::Kind::sentinel) set_credentials_of_sentinels(*uri, options);
    return uri;
}

/// Whether nobody else says how to log in.
inline Result<void> check_credentials(const ClientSetup& setup) {
    if (!setup.options.credentials) return {};
    for (const UriParts& uri : setup.uris) {
        if (uri.user || uri.password) {
            return Unexpected{
                invalid("ClientOptions::credentials and a URI with a user or password, that of " +
                        uri.name() + ": one of them has to go")};
        }
    }
    if (!setup.options.factories.empty()) {
        return Unexpected{
            invalid("ClientOptions::credentials is not for connections that a factory makes")};
    }
    return {};
}

/// Whether several masters can decide together.
inline Result<void> check_masters(const ClientSetup& setup) {
    std::vector<std::string> names;
    for (const UriParts& uri : setup.uris) {
        if (uri.kind != UriParts::Kind::server) {
            return Unexpected{invalid(
                "a Sentinel or Cluster URI stands alone: it cannot be one of several masters")};
        }
        std::string name = uri.name();
        if (uri.path.empty()) name = in_small_letters(std::move(name));
        if (std::find(names.begin(), names.end(), name) != names.end()) {
            return Unexpected{invalid(uri.name() + " is listed twice")};
        }
        names.push_back(std::move(name));
    }
    if (setup.masters() > most_masters) return Unexpected{invalid("more than 64 masters")};
    return {};
}

/// Where a client's servers are, and what their URIs say about the options.
inline Result<ClientSetup> locate(ClientOptions given) {
    ClientSetup setup{std::move(given)};
    ClientOptions& options = setup.options;
    for (const Uri& text : options.uris) {
        auto uri = locate(text, options);
        if (!uri) {
            if (options.uris.size() > 1) {
                uri.error().message +=
                    " (number " + std::to_string(setup.uris.size() + 1) + " of the list)";
            }
            return Unexpected{std::move(uri).error()};
        }
        options.connect_timeout = uri->connect_timeout.value_or(options.connect_timeout);
        options.command_timeout = uri->command_timeout.value_or(options.command_timeout);
        setup.uris.push_back(*std::move(uri));
    }
    for (const ConnectionFactory& factory : options.factories) {
        if (!factory.connect) return Unexpected{invalid("the factory of connections is empty")};
    }
    if (setup.masters() == 0) return Unexpected{invalid("no URI")};
    if (auto fit = check_credentials(setup); !fit) return Unexpected{std::move(fit).error()};
    if (setup.masters() > 1) {
        if (auto fit = check_masters(setup); !fit) return Unexpected{std::move(fit).error()};
    }
    return setup;
}

/// Whether each time makes sense, also where this client does not use it.
inline Result<void> check_times(const ClientOptions& options) {
    constexpr std::chrono::milliseconds none{0};
    if (options.connect_timeout <= none || options.command_timeout <= none) {
        return Unexpected{invalid("connect_timeout and command_timeout must be positive")};
    }
    if (options.node_timeout <= none) return Unexpected{invalid("node_timeout must be positive")};
    if (options.longest_lease < none) {
        return Unexpected{invalid("longest_lease must not be negative")};
    }
    if (options.busy_wait < none || options.busy_wait > std::chrono::milliseconds{10}) {
        return Unexpected{invalid("busy_wait is not between 0 and 10 ms")};
    }
    return {};
}

inline Result<void> check_key_space(const std::string& key_space) {
    constexpr std::size_t longest = 128;
    if (key_space.empty() || key_space.size() > longest) {
        return Unexpected{invalid("key_space is not between 1 and 128 bytes long")};
    }
    if (key_space.find_first_of("{}") != std::string::npos) {
        return Unexpected{invalid(
            "key_space has a brace: in a Cluster the companion keys would lie in other slots "
            "than their locks")};
    }
    if (key_space.starts_with(usual_key_space) && key_space != usual_key_space) {
        return Unexpected{invalid(
            "key_space begins with redlatch:, the usual one, and goes on: the companion keys "
            "of two locks could be the same")};
    }
    return {};
}

/// Checks a client's options as a whole.
inline Result<ClientSetup> check_client(ClientOptions given) {
    auto setup = locate(std::move(given));
    if (!setup) return setup;
    ClientOptions& options = setup->options;
    if (auto fit = check_times(options); !fit) return Unexpected{std::move(fit).error()};
    constexpr std::chrono::milliseconds longest = Lease::max().duration();  // for ever, in effect
    options.connect_timeout = std::min(options.connect_timeout, longest);
    options.command_timeout = std::min(options.command_timeout, longest);
    if (auto fit = check_key_space(options.key_space); !fit)
        return Unexpected{std::move(fit).error()};
    if (options.connections != Connections::pooled && options.connections != Connections::shared) {
        return Unexpected{invalid("connections is none of its enumerators")};
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
    if (options.completions != nullptr) setup->completions = options.completions->share();
    return setup;
}

}  // namespace redlatch::inline v0::detail
