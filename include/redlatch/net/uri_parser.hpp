#pragma once

#include <redlatch/core/parse_number.hpp>
#include <redlatch/core/server_address.hpp>
#include <redlatch/net/endpoint.hpp>
#include <redlatch/result.hpp>
#include <redlatch/uri.hpp>

#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A URI, taken apart: a server, or what all servers of a deployment have in common.
struct UriParts : Endpoint {
    enum class Kind { server, sentinel, cluster };

    Kind kind = Kind::server;
    std::vector<Endpoint> hosts;  ///< the Sentinels, or some nodes of the Cluster
    std::string service;          ///< what they call the master
    std::optional<std::string> sentinel_user;
    std::optional<std::string> sentinel_password;
};

/// Of a scheme or a host, which are the same in capitals.
inline std::string in_small_letters(std::string text) {
    for (char& c : text) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return text;
}

/// Takes a URI apart from left to right. Messages name the bad part and quote it only where it
/// cannot be, or contain, a password.
class UriParser {
public:
    explicit UriParser(std::string_view text) : rest_(text) {}

    Result<UriParts> parse() && {
        if (!parse_scheme() || !parse_query() || !parse_credentials() || !parse_place()) {
            return Unexpected{invalid("URI: " + problem_)};
        }
        return std::move(parts_);
    }

private:
    bool fail(std::string problem) {
        problem_ = std::move(problem);
        return false;
    }

    /// The text behind a number is shown if it can be seen in no other way; the number is not, as
    /// it may be a password in the wrong place.
    bool fail_number(const std::string& what, std::string_view text, const char* expected) {
        const auto end = std::find_if(text.begin(), text.end(), is_blank);
        const bool only_blanks = std::all_of(end, text.end(), is_blank);
        const bool is_number = end != text.begin() && std::all_of(text.begin(), end, [](char c) {
                                   return c >= '0' && c <= '9';
                               });
        if (end == text.end() || !only_blanks || !is_number) {
            return fail(what + " is not " + expected);
        }
        return fail(what + " is followed by '" + printable({end, text.end()}) + "'");
    }

    static bool is_blank(char c) noexcept {
        return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
    }

    static constexpr const char* schemes =
        "redis://, rediss://, unix://, redis+sentinel://, rediss+sentinel://, redis+cluster:// or "
        "rediss+cluster://";

    bool parse_scheme() {
        const auto scheme = take_scheme();
        if (!scheme) return false;
        parts_.tls = scheme->starts_with("rediss");
        if (*scheme == "unix") {
            parts_.transport = Endpoint::Transport::unix_socket;
        } else if (*scheme == "redis+sentinel" || *scheme == "rediss+sentinel") {
            parts_.kind = UriParts::Kind::sentinel;
        } else if (*scheme == "redis+cluster" || *scheme == "rediss+cluster") {
            parts_.kind = UriParts::Kind::cluster;
        } else if (*scheme != "redis" && *scheme != "rediss") {
            return fail(std::string{"unknown scheme, expected "} + schemes);
        }
        if (rest_.find('#') != std::string_view::npos) {
            return fail("a fragment (#) has no meaning; in a password, percent-encode # as %23");
        }
        return true;
    }

    /// What stands before `://`, in small letters.
    std::optional<std::string> take_scheme() {
        if (rest_.empty()) return refuse("the URI is empty");
        if (is_blank(rest_.front()))
            return refuse("a blank or control character before the scheme");
        const auto end = rest_.find(':');
        std::string scheme = in_small_letters(std::string{rest_.substr(0, end)});
        if (end != std::string_view::npos && rest_.substr(end).starts_with("://")) {
            rest_.remove_prefix(end + 3);
            return scheme;
        }
        if (end != std::string_view::npos && scheme == "unix") {
            return refuse("two slashes are missing behind the scheme, as in unix:///path");
        }
        if (end != std::string_view::npos && (scheme == "redis" || scheme == "rediss")) {
            return refuse("two slashes are missing behind the scheme, as in redis://host");
        }
        return refuse(std::string{"no scheme, expected "} + schemes +
                      ", such as redis://localhost:6379");
    }

    std::nullopt_t refuse(std::string problem) {
        fail(std::move(problem));
        return std::nullopt;
    }

    bool parse_query() {
        const auto begin = rest_.find('?');
        if (begin == std::string_view::npos) return true;
        std::string_view query = rest_.substr(begin + 1);
        query_has_at_ = query.find('@') != std::string_view::npos;
        rest_ = rest_.substr(0, begin);
        while (!query.empty()) {
            const std::string_view item = query.substr(0, query.find('&'));
            query.remove_prefix(std::min(item.size() + 1, query.size()));
            if (!parse_parameter(item)) return false;
        }
        return true;
    }

    bool parse_parameter(std::string_view item) {
        const auto equals = item.find('=');
        const std::string_view name = item.substr(0, equals);
        const std::string_view value =
            equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
        if (name == "connect_timeout") return parse_timeout(name, value, parts_.connect_timeout);
        if (name == "command_timeout") return parse_timeout(name, value, parts_.command_timeout);
        if (parts_.kind == UriParts::Kind::sentinel) {
            if (name == "sentinel_user") return parse_secret(name, value, parts_.sentinel_user);
            if (name == "sentinel_password") {
                return parse_secret(name, value, parts_.sentinel_password);
            }
        }
        if (name == "db" && parts_.transport == Endpoint::Transport::unix_socket) {
            if (std::exchange(has_db_, true)) return fail("parameter db is given twice");
            return parse_db(value);
        }
        const bool is_name = equals != std::string_view::npos && may_be_parameter(name);
        const char* const hint = has_secret_     ? "; in a password, percent-encode & as %26"
                                 : query_has_at_ ? in_a_password
                                                 : "";
        return fail("unknown parameter" + (is_name ? " '" + std::string{name} + "'" : "") +
                    ", expected connect_timeout, command_timeout or, with "
                    "unix://, db or, with redis+sentinel://, sentinel_user, sentinel_password" +
                    hint);
    }

    /// Behind a problem with what stands before an @: it may be the end of a password.
    static constexpr const char* in_a_password =
        "; in a password, percent-encode / as %2F and ? as %3F";

    /// Whether a name can be shown: not where it may be the end of a password with a question mark.
    bool may_be_parameter(std::string_view name) const {
        constexpr std::size_t longest = 32;
        return !query_has_at_ && !has_secret_ && name.size() <= longest &&
               std::all_of(name.begin(), name.end(), [](char c) {
                   return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
               });
    }

    bool parse_secret(std::string_view name, std::string_view value,
                      std::optional<std::string>& secret) {
        if (secret) return fail("parameter " + std::string{name} + " is given twice");
        has_secret_ = has_secret_ || name == "sentinel_password";
        secret = decode(value);
        if (!secret) return fail("parameter " + std::string{name} + " has a bad percent-encoding");
        return true;
    }

    bool parse_timeout(std::string_view name, std::string_view value,
                       std::optional<std::chrono::milliseconds>& timeout) {
        const auto count = whole_number<std::uint32_t>(value);
        if (!count || *count == 0) {
            return fail_number("parameter " + std::string{name}, value, "a positive number of ms");
        }
        if (timeout) return fail("parameter " + std::string{name} + " is given twice");
        timeout = std::chrono::milliseconds{*count};
        return true;
    }

    bool parse_db(std::string_view value) {
        constexpr std::uint32_t largest = 0x7fffffff;  // the server reads it as an int
        const auto db = whole_number<std::uint32_t>(value);
        if (!db || *db > largest) return fail_number("the database", value, "a number");
        parts_.db = *db;
        return true;
    }

    bool parse_credentials() {
        const auto slash = rest_.find('/');
        const auto at = rest_.substr(0, slash).rfind('@');
        if (at == std::string_view::npos) return true;
        const std::string_view credentials = rest_.substr(0, at);
        rest_.remove_prefix(at + 1);
        const auto colon = credentials.find(':');
        if (colon == std::string_view::npos) {
            return fail("credentials without a colon, expected user:password@ or :password@");
        }
        parts_.password = decode(credentials.substr(colon + 1));
        if (!parts_.password) return fail("the password has a bad percent-encoding");
        if (credentials == ":") parts_.password.reset();  // a template without its values
        if (colon == 0) return true;
        parts_.user = decode(credentials.substr(0, colon));
        if (!parts_.user) return fail("the user has a bad percent-encoding");
        return true;
    }

    bool parse_place() {
        if (parts_.kind == UriParts::Kind::sentinel) return parse_sentinels();
        if (parts_.kind == UriParts::Kind::cluster) return parse_nodes();
        return parts_.transport == Endpoint::Transport::tcp ? parse_tcp() : parse_socket();
    }

    bool parse_tcp() {
        const auto slash = rest_.find('/');
        if (slash != std::string_view::npos) {
            const std::string_view db = rest_.substr(slash + 1);
            rest_ = rest_.substr(0, slash);
            if (db.find('@') != std::string_view::npos)
                return fail(std::string{"the database is not a number"} + in_a_password);
            if (!db.empty() && !parse_db(db)) return false;
        }
        return parse_address(rest_, parts_);
    }

    bool parse_sentinels() {
        const auto slash = rest_.find('/');
        if (slash == std::string_view::npos) return fail("no service behind the Sentinels' hosts");
        std::string_view hosts = rest_.substr(0, slash);
        std::string_view service = rest_.substr(slash + 1);
        // A password with a `/` in it that is not encoded looks like this.
        if (service.find('@') != std::string_view::npos) {
            return fail("the service has an @ in it: write %40, and %2F for a / in a password");
        }
        const auto end = service.find('/');
        if (end != std::string_view::npos) {
            const std::string_view db = service.substr(end + 1);
            service = service.substr(0, end);
            if (!db.empty() && !parse_db(db)) return false;
        }
        const auto name = decode(service);
        if (!name || name->empty()) return fail("the service is empty or badly encoded");
        parts_.service = *name;
        constexpr std::uint16_t sentinels_port = 26379;
        return parse_hosts(hosts, sentinels_port);
    }

    bool parse_nodes() {
        const auto slash = rest_.find('/');
        if (slash != std::string_view::npos && slash + 1 < rest_.size()) {
            const bool is_cut = rest_.find('@', slash) != std::string_view::npos;
            return fail(
                std::string{"a Cluster has one database only: nothing may follow the hosts"} +
                (is_cut ? in_a_password : ""));
        }
        constexpr std::uint16_t redis_port = 6379;
        return parse_hosts(rest_.substr(0, slash), redis_port);
    }

    bool parse_hosts(std::string_view list, std::uint16_t default_port) {
        for (bool more = true; more;) {
            const std::string_view address = list.substr(0, list.find(','));
            more = address.size() < list.size();
            list.remove_prefix(std::min(address.size() + 1, list.size()));
            Endpoint host;
            host.port = default_port;
            host.tls = parts_.tls;
            if (parts_.kind == UriParts::Kind::sentinel) host.mode = Endpoint::Mode::sentinel;
            if (!parse_address(address, host)) return false;
            parts_.hosts.push_back(std::move(host));
        }
        return true;
    }

    bool parse_address(std::string_view text, Endpoint& to) {
        return text.starts_with('[') ? parse_bracketed_host(text, to) : parse_host(text, to);
    }

    bool parse_bracketed_host(std::string_view text, Endpoint& to) {
        const auto end = text.find(']');
        if (end == std::string_view::npos) return fail("the host has a [ without its ]");
        const std::string_view host = text.substr(1, end - 1);
        const std::string_view after = text.substr(end + 1);
        if (!after.empty() && !after.starts_with(':')) return fail("text between ] and the port");
        if (host.find(':') == std::string_view::npos) {
            return fail("the host in brackets is not an IPv6 address");
        }
        return set_host(host, to) && (after.empty() || set_port(after.substr(1), to));
    }

    bool parse_host(std::string_view text, Endpoint& to) {
        const auto colon = text.find(':');
        if (colon == std::string_view::npos) return set_host(text, to);
        if (text.rfind(':') != colon) {
            return fail("the host has several colons: an IPv6 address stands in brackets");
        }
        return set_host(text.substr(0, colon), to) && set_port(text.substr(colon + 1), to);
    }

    bool set_host(std::string_view encoded, Endpoint& to) {
        auto host = decode(encoded);
        if (!host || host->empty()) return fail("the host is empty or badly encoded");
        if (std::any_of(host->begin(), host->end(), is_blank)) {
            return fail("the host has a space or a control character");
        }
        if (host->find(',') != std::string::npos) return fail("the host has a comma");
        to.host = *std::move(host);
        return true;
    }

    bool set_port(std::string_view digits, Endpoint& to) {
        const auto port = parse_port(digits);
        if (!port) return fail_number("the port", digits, "a number from 1 to 65535");
        to.port = *port;
        return true;
    }

    bool parse_socket() {
        const auto path = decode(rest_);
        if (!path || !path->starts_with('/')) {
            const bool is_cut = rest_.find('@') != std::string_view::npos;
            return fail(
                std::string{
                    "the socket's path is not absolute, as in unix:///path, or badly encoded"} +
                (is_cut ? in_a_password : ""));
        }
        if (path->find('\0') != std::string::npos) return fail("the socket's path has a NUL");
        if (path->size() >= sizeof(sockaddr_un::sun_path)) {
            return fail("the socket's path is longer than the system allows");
        }
        parts_.path = *path;
        return true;
    }

    static std::optional<std::string> decode(std::string_view encoded) {
        std::string bytes;
        bytes.reserve(encoded.size());
        for (std::size_t i = 0; i < encoded.size(); ++i) {
            if (encoded[i] != '%') {
                bytes += encoded[i];
                continue;
            }
            const std::string_view digits = encoded.substr(i + 1, 2);
            unsigned value = 0;
            const auto [stop, error] =
                std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
            if (digits.size() != 2 || error != std::errc{} || stop != digits.data() + 2) {
                return std::nullopt;
            }
            bytes += static_cast<char>(value);
            i += 2;
        }
        return bytes;
    }

    std::string_view rest_;
    UriParts parts_;
    bool has_db_ = false;  // as a parameter
    bool query_has_at_ = false;
    bool has_secret_ =
        false;  // a parameter that has a password, whose end may look like another one
    std::string problem_;
};

inline Result<UriParts> parse_uri(const Uri& uri) {
    return UriParser{uri.text()}.parse();
}

}  // namespace redlatch::inline v0::detail
