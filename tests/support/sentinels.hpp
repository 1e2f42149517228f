#pragma once

#include "support/process.hpp"
#include "support/redis_server.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redlatch::test {

/// One Sentinel, a real process. Knows the service "mymaster".
class Sentinel {
public:
    /// Begins to watch the master at 127.0.0.1:`master_port`; `quorum` Sentinels have to agree that
    /// it is down. `config`: more lines, such as requirepass. With `tls`, its port and the servers'
    /// speak that.
    Sentinel(std::uint16_t master_port, int quorum, const ServerConfig& config = {},
             const std::optional<ServerTls>& tls = {});

    /// "127.0.0.1:<port>".
    [[nodiscard]] std::string address() const;

    /// "unix://<path>", for a look at it.
    [[nodiscard]] std::string uri() const { return "unix://" + folder_.file("socket"); }
    [[nodiscard]] std::uint16_t port() const { return address_.port; }

    [[nodiscard]] bool running() { return process_.running(); }
    void kill();
    void freeze() { process_.freeze(); }
    void thaw() { process_.thaw(); }

private:
    TempFolder folder_;
    Address address_{.path = {}, .host = "127.0.0.1", .port = 0};
    UniqueFd reserved_ = bind_to(address_);
    ProcessHandle process_;
};

/// What a group of servers under Sentinel is started with.
struct SentinelGroupOptions {
    std::string password = {};           ///< of master and replica
    std::string sentinel_password = {};  ///< of the Sentinels
    ServerConfig sentinel_config = {};   ///< more lines for them
    std::optional<ServerTls> tls = {};   ///< on all ports; the certificate is everybody's
    std::size_t sentinels = 3;
};

/// A master with one replica, and Sentinels that know all of it.
class SentinelGroup {
public:
    explicit SentinelGroup(SentinelGroupOptions options = {});

    /// redis+sentinel://…/mymaster, or rediss+sentinel://…; with the master's password, not the Sentinels'.
    [[nodiscard]] std::string uri() const;

    /// The server that began as the master, and the other one.
    RedisServer& first() { return *servers_[0]; }
    RedisServer& second() { return *servers_[1]; }
    Sentinel& sentinel(std::size_t i) { return *sentinels_[i]; }

    /// Whether all Sentinels that run name the server with this port as the master; waits for it. Only from
    /// then on they take a server for dead that is silent for less than a second.
    [[nodiscard]] bool master_becomes(std::uint16_t port);

    /// Has the Sentinels change the master while all servers are well, and waits until they have.
    [[nodiscard]] bool switch_master();

private:
    void set_down_after(const char* time) const;
    [[nodiscard]] bool is_complete(const Sentinel& sentinel) const;

    SentinelGroupOptions options_;
    std::vector<std::unique_ptr<RedisServer>> servers_;
    std::vector<std::unique_ptr<Sentinel>> sentinels_;
};

}  // namespace redlatch::test
