#pragma once

#include <redlatch/result.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0 {

/// Where a server is, as text. These forms are understood:
///
///     redis://[[user]:password@]host[:port][/db]     (port 6379, db 0; IPv6 in brackets)
///     rediss://…                                     (the same over TLS)
///     unix://[[user]:password@]/path/of/socket[?db=0]
///     redis+sentinel://[[user]:password@]host[:port][,host…]/service[/db]
///         (the master of that service, wherever Sentinel says it is; port 26379)
///     rediss+sentinel://…                            (the same, Sentinels and master over TLS)
///     redis+cluster://[[user]:password@]host[:port][,host…]
///         (a Redis Cluster, of which these are some nodes; port 6379)
///     rediss+cluster://…                             (the same over TLS)
///
/// Each may end in `?connect_timeout=500&command_timeout=500` (milliseconds), and those with
/// Sentinel also in `sentinel_user` and `sentinel_password`; that overrides `ClientOptions`. Users,
/// passwords, path, hosts and service may be percent-encoded. A bad one is reported when a `Client`
/// is made of it.
class Uri {
public:
    /// @{
    /// Keeps the text as it is. Throws `LockError` with `Errc::invalid_argument` for a null
    /// pointer.
    Uri(const char* text) : text_(detail::string_of(text, "the URI")) {}
    Uri(std::string text) : text_(std::move(text)) {}
    Uri(std::string_view text) : text_(text) {}
    /// @}

    /// The text, with its password if it has one.
    const std::string& text() const noexcept { return text_; }

private:
    std::string text_;
};

}  // namespace redlatch::inline v0
