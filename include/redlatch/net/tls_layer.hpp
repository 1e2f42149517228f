#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/stream.hpp>

#include <memory>
#include <string>

namespace redlatch::inline v0 {

/// Secures connections. `<redlatch/tls.hpp>` makes one.
class TlsLayer {
public:
    TlsLayer() = default;
    TlsLayer(const TlsLayer&) = delete;
    TlsLayer& operator=(const TlsLayer&) = delete;
    virtual ~TlsLayer() = default;

    /// Shakes hands on a connected socket with a server that has to be `host`.
    virtual Expected<std::unique_ptr<detail::Stream>, detail::Fault> secure(
        int fd, const std::string& host, const detail::Limit& limit) const = 0;

    /// The same once more, sharing nothing: for a forked child, whose parent may have been in the
    /// middle of anything. Where it cannot be set up again, `secure` of the new one says why.
    virtual std::shared_ptr<const TlsLayer> afresh() const = 0;
};

}  // namespace redlatch::inline v0
