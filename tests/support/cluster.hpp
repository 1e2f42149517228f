#pragma once

#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/socket.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace redlatch::test {

/// A free port for a server of a Cluster whose bus, 10,000 above it, is free too. Nobody else is given them as long
/// as this is there; the server may bind them.
class ClusterPorts {
public:
    explicit ClusterPorts(const std::string& host = "127.0.0.1");
    [[nodiscard]] std::uint16_t data() const { return number_; }

private:
    std::uint16_t number_ = 0;
    UniqueFd data_;
    UniqueFd bus_;
};

/// Has a server serve the slots from `first` to before `end`.
[[nodiscard]] RawRedis::Command add_slots(unsigned first, unsigned end);

/// What a ClusterGroup is started with.
struct ClusterGroupOptions {
    /// On ::1 instead of 127.0.0.1; ask `ipv6_available()` first.
    bool ipv6 = false;

    /// On all ports; the certificate is everybody's.
    std::optional<ServerTls> tls = {};

    /// More lines for each server.
    ServerConfig config = {};
};

/// A Redis Cluster of three masters, each with a third of the slots, and a replica for each.
class ClusterGroup {
public:
    /// Throws std::runtime_error if it does not come together.
    explicit ClusterGroup(ClusterGroupOptions options = {});

    /// redis+cluster:// or rediss+cluster:// with the address of server `i`: 0 to 2 began as masters, 3 to 5 as the
    /// replicas of 0 to 2.
    [[nodiscard]] std::string uri(std::size_t i = 0) const;
    RedisServer& server(std::size_t i) { return *servers_[i]; }

    /// The others notice within some two seconds, as opposed to one whose server is frozen.
    void kill(std::size_t i);
    /// The same for one that goes silent, and may be thawed.
    void silence(std::size_t i);

    /// Which master has the key's slot, as the Cluster began.
    [[nodiscard]] static std::size_t owner_of(unsigned slot) { return slot * 3 / 16384; }

    /// Moves a slot between masters, and stops at each stage.
    void begin_to_move(unsigned slot, std::size_t from, std::size_t to);
    void move_key(const std::string& key, std::size_t from, std::size_t to);
    void move_keys(unsigned slot, std::size_t from, std::size_t to);
    void finish_move(unsigned slot, std::size_t from, std::size_t to);

    /// Has server `i` carry out a command; throws std::runtime_error if it refuses.
    void ask(std::size_t i, const RawRedis::Command& command) const;

    /// Whether server `i` becomes the master of some slots; waits for it.
    [[nodiscard]] bool becomes_master(std::size_t i);

private:
    void add_server(std::size_t i);
    void meet(std::size_t i) const;
    void have_others_notice(std::size_t i);
    void set_node_timeout(std::size_t i, const char* timeout) const;
    RawRedis at(std::size_t i) const { return RawRedis{*servers_[i]}; }

    const ClusterGroupOptions options_;
    const std::string host_ = options_.ipv6 ? "::1" : "127.0.0.1";
    std::vector<ClusterPorts> ports_;
    std::vector<std::unique_ptr<RedisServer>> servers_;
    std::vector<std::string> ids_;
};

}  // namespace redlatch::test
