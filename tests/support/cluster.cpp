#include "support/cluster.hpp"

#include "support/wait.hpp"

#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace redlatch::test {
namespace {

constexpr std::size_t masters = 3;

/// In milliseconds, after which a server counts as gone. The Cluster comes together the sooner for a short
/// one, and a busy machine makes a server look dead.
constexpr const char* short_node_timeout = "1000";
constexpr const char* long_node_timeout = "15000";

unsigned first_slot(std::size_t master) {
    return static_cast<unsigned>((master * 16384 + masters - 1) / masters);
}

}  // namespace

ClusterPorts::ClusterPorts(const std::string& host) {
    constexpr int to_bus = 10'000;
    while (!bus_) {
        Address data{.path = {}, .host = host, .port = 0};
        data_ = bind_to(data);
        if (data.port > 65'535 - to_bus) continue;
        number_ = data.port;
        const Address bus{
            .path = {}, .host = host, .port = static_cast<std::uint16_t>(number_ + to_bus)};
        try {
            bus_ = bind_alone_to(bus);
        } catch (const std::system_error&) {
            continue;  // somebody has it
        }
    }
}

RawRedis::Command add_slots(unsigned first, unsigned end) {
    RawRedis::Command command{"CLUSTER", "ADDSLOTS"};
    for (unsigned slot = first; slot < end; ++slot) command.push_back(std::to_string(slot));
    return command;
}

ClusterGroup::ClusterGroup(ClusterGroupOptions options) : options_{std::move(options)} {
    for (std::size_t i = 0; i < 2 * masters; ++i) add_server(i);
    const auto wait_for = [](auto predicate, const char* what) {
        if (!eventually(predicate)) throw std::runtime_error{what};
    };
    Stopwatch since_meeting;
    for (std::size_t i = masters; i < 2 * masters; ++i) {
        wait_for(
            [&] {
                const auto& master = ids_[i - masters];
                if (at(i).command({"CLUSTER", "REPLICATE", master}).text == "OK") return true;
                // A server that has had no time for a second forgets whom it was to meet.
                if (since_meeting.elapsed() > std::chrono::seconds{1}) {
                    for (std::size_t other = 1; other < 2 * masters; ++other) meet(other);
                    since_meeting.restart();
                }
                return false;
            },
            "a replica does not hear of its master");
    }
    for (std::size_t i = 0; i < 2 * masters; ++i) {
        wait_for(
            [&] {
                RawRedis redis = at(i);
                const bool fine =
                    redis.command({"CLUSTER", "INFO"}).text.find("cluster_state:ok") !=
                    std::string::npos;
                const bool follows =
                    i < masters || redis.info("replication")["master_link_status"] == "up";
                return fine && follows && redis.command({"CLUSTER", "SLOTS"}).elements.size() == 3;
            },
            "the Cluster does not come together");
    }
    for (std::size_t i = 0; i < 2 * masters; ++i) set_node_timeout(i, long_node_timeout);
}

void ClusterGroup::kill(std::size_t i) {
    have_others_notice(i);
    server(i).kill();
}

void ClusterGroup::silence(std::size_t i) {
    have_others_notice(i);
    server(i).freeze();
}

void ClusterGroup::have_others_notice(std::size_t i) {
    for (std::size_t other = 0; other < servers_.size(); ++other) {
        if (other != i && server(other).running()) set_node_timeout(other, short_node_timeout);
    }
}

void ClusterGroup::set_node_timeout(std::size_t i, const char* timeout) const {
    ask(i, {"CONFIG", "SET", "cluster-node-timeout", timeout});
}

/// Number `i`, which the first one then meets.
void ClusterGroup::add_server(std::size_t i) {
    ServerConfig config{{"cluster-enabled", "yes"},
                        {"cluster-node-timeout", short_node_timeout},
                        {"cluster-replica-validity-factor", "0"},
                        {"cluster-require-full-coverage", "no"},
                        {"repl-diskless-sync-delay", "0"}};
    if (options_.tls) config.emplace_back("tls-cluster", "yes");
    config.insert(config.end(), options_.config.begin(), options_.config.end());
    ports_.emplace_back(host_);
    servers_.push_back(
        std::make_unique<RedisServer>(RedisServerOptions{.tcp = true,
                                                         .ipv6 = options_.ipv6,
                                                         .port = ports_.back().data(),
                                                         .tls = options_.tls,
                                                         .config = std::move(config)}));
    ids_.push_back(at(i).command({"CLUSTER", "MYID"}).text);
    ask(i, {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
    if (i < masters) ask(i, add_slots(first_slot(i), first_slot(i + 1)));
    if (i > 0) meet(i);
}

/// Has the first one meet number `i`.
void ClusterGroup::meet(std::size_t i) const {
    ask(0, {"CLUSTER", "MEET", host_, std::to_string(servers_[i]->port())});
}

std::string ClusterGroup::uri(std::size_t i) const {
    const std::string host = options_.ipv6 ? "[" + host_ + "]" : host_;
    return (options_.tls ? "rediss+cluster://" : "redis+cluster://") + host + ":" +
           std::to_string(servers_[i]->port());
}

void ClusterGroup::begin_to_move(unsigned slot, std::size_t from, std::size_t to) {
    const std::string name = std::to_string(slot);
    ask(to, {"CLUSTER", "SETSLOT", name, "IMPORTING", ids_[from]});
    ask(from, {"CLUSTER", "SETSLOT", name, "MIGRATING", ids_[to]});
}

void ClusterGroup::move_key(const std::string& key, std::size_t from, std::size_t to) {
    ask(from, {"MIGRATE", host_, std::to_string(servers_[to]->port()), key, "0", "5000"});
}

void ClusterGroup::move_keys(unsigned slot, std::size_t from, std::size_t to) {
    const RawReply keys =
        at(from).command({"CLUSTER", "GETKEYSINSLOT", std::to_string(slot), "100"});
    for (const RawReply& key : keys.elements) move_key(key.text, from, to);
}

void ClusterGroup::finish_move(unsigned slot, std::size_t from, std::size_t to) {
    for (const std::size_t i : {to, from}) {
        ask(i, {"CLUSTER", "SETSLOT", std::to_string(slot), "NODE", ids_[to]});
    }
}

bool ClusterGroup::becomes_master(std::size_t i) {
    return eventually([&] {
        RawRedis redis = at(i);
        return redis.info("replication")["role"] == "master" &&
               redis.command({"CLUSTER", "INFO"}).text.find("cluster_state:ok") !=
                   std::string::npos;
    });
}

void ClusterGroup::ask(std::size_t i, const RawRedis::Command& command) const {
    // Valkey tells the replicas of a moving slot first, and refuses while none of them has caught up.
    RawReply reply;
    static_cast<void>(eventually([&] {
        reply = at(i).command(command);
        return !reply.text.starts_with("NOREPLICAS");
    }));
    if (reply.is_error())
        throw std::runtime_error{command[0] + " " + command[1] + ": " + reply.text};
}

}  // namespace redlatch::test
