#include "support/sentinels.hpp"

#include "support/raw_redis.hpp"
#include "support/wait.hpp"

#include <fcntl.h>

#include <chrono>
#include <fstream>
#include <stdexcept>

namespace redlatch::test {
namespace {

/// Asks a Sentinel; an empty answer where it gives none.
RawReply ask(const std::string& uri, const std::string& password,
             const RawRedis::Command& question) {
    try {
        RawRedis redis{uri, std::chrono::seconds{2}};
        if (!password.empty()) redis.auth(password);
        return redis.command(question);
    } catch (const std::runtime_error&) {
        return {};
    }
}

/// In milliseconds, after which a server that is silent counts as gone. A busy machine makes one look so.
constexpr const char* short_down_after = "700";
constexpr const char* long_down_after = "15000";

std::string field(const RawReply& pairs, const std::string& name) {
    for (std::size_t i = 0; i + 1 < pairs.elements.size(); i += 2) {
        if (pairs.elements[i].text == name) return pairs.elements[i + 1].text;
    }
    return {};
}

}  // namespace

Sentinel::Sentinel(std::uint16_t master_port, int quorum, const ServerConfig& config,
                   const std::optional<ServerTls>& tls) {
    const std::string file = folder_.file("sentinel.conf");
    std::ofstream out{file};
    const auto write = [&out](const ServerConfig& lines) {
        for (const auto& [name, value] : lines) out << name << ' ' << value << '\n';
    };
    out << "port " << address_.port << "\nbind 127.0.0.1\ndir " << folder_.path() << "\nunixsocket "
        << folder_.file("socket") << '\n'
        << "sentinel monitor mymaster 127.0.0.1 " << master_port << ' ' << quorum << '\n'
        << "sentinel down-after-milliseconds mymaster " << short_down_after << '\n'
        << "sentinel failover-timeout mymaster 4000\n";
    if (tls) write(tls->config(address_.port));
    write(config);
    out.close();
    const UniqueFd log{::open(folder_.file("log").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    process_ = spawn({.argv = {redis_server_program(), file, "--sentinel"},
                      .output = log.get(),
                      .error = log.get()});
}

std::string Sentinel::address() const {
    return address_.host + ":" + std::to_string(address_.port);
}

void Sentinel::kill() {
    process_.kill();
    process_.wait();
}

SentinelGroup::SentinelGroup(SentinelGroupOptions options) : options_{std::move(options)} {
    ServerConfig both{{"repl-diskless-sync-delay", "0"}, {"repl-ping-replica-period", "1"}};
    if (!options_.password.empty()) both.emplace_back("masterauth", options_.password);
    const auto add_server = [&] {
        servers_.push_back(std::make_unique<RedisServer>(RedisServerOptions{
            .tcp = true, .tls = options_.tls, .password = options_.password, .config = both}));
    };
    add_server();
    both.emplace_back("replicaof", "127.0.0.1 " + std::to_string(first().port()));
    add_server();
    // What a Sentinel has once seen of a replica, it looks at again after ten seconds only.
    RawRedis replica{second()};
    if (!eventually([&] { return replica.info("replication")["master_link_status"] == "up"; })) {
        throw std::runtime_error{"the replica does not follow its master"};
    }

    ServerConfig config = options_.sentinel_config;
    if (!options_.password.empty()) {
        config.emplace_back("sentinel auth-pass mymaster", options_.password);
    }
    if (!options_.sentinel_password.empty()) {
        config.emplace_back("requirepass", options_.sentinel_password);
    }
    const int quorum = static_cast<int>(options_.sentinels) / 2 + 1;
    for (std::size_t i = 0; i < options_.sentinels; ++i) {
        sentinels_.push_back(
            std::make_unique<Sentinel>(first().port(), quorum, config, options_.tls));
    }
    for (const auto& sentinel : sentinels_) {
        if (!eventually([&] { return is_complete(*sentinel); })) {
            throw std::runtime_error{"a Sentinel does not find all servers"};
        }
    }
    set_down_after(long_down_after);
}

std::string SentinelGroup::uri() const {
    std::string uri = options_.tls ? "rediss+sentinel://" : "redis+sentinel://";
    if (!options_.password.empty()) uri += ":" + options_.password + "@";
    for (const auto& sentinel : sentinels_) {
        if (sentinel != sentinels_.front()) uri += ",";
        uri += sentinel->address();
    }
    return uri + "/mymaster";
}

void SentinelGroup::set_down_after(const char* time) const {
    for (const auto& sentinel : sentinels_) {
        // A busy one may need longer; one that a test has ended never says yes.
        static_cast<void>(eventually([&] {
            return !sentinel->running() ||
                   ask(sentinel->uri(), options_.sentinel_password,
                       {"SENTINEL", "SET", "mymaster", "down-after-milliseconds", time})
                           .text == "OK";
        }));
    }
}

bool SentinelGroup::master_becomes(std::uint16_t port) {
    constexpr std::chrono::minutes limit{3};  // a failover that fails is begun anew
    set_down_after(short_down_after);
    return eventually(
        [&] {
            std::size_t agree = 0;
            std::size_t answer = 0;
            for (const auto& sentinel : sentinels_) {
                const RawReply master = ask(sentinel->uri(), options_.sentinel_password,
                                            {"SENTINEL", "get-master-addr-by-name", "mymaster"});
                if (master.elements.size() != 2) continue;
                ++answer;
                if (master.elements[1].text == std::to_string(port)) ++agree;
            }
            return answer > 0 && agree == answer;
        },
        limit);
}

bool SentinelGroup::switch_master() {
    const RawReply now = ask(sentinels_.front()->uri(), options_.sentinel_password,
                             {"SENTINEL", "get-master-addr-by-name", "mymaster"});
    const bool at_first = now.elements.at(1).text == std::to_string(first().port());
    // A Sentinel that has just seen a failover refuses for a while.
    const bool begun = eventually([&] {
        const RawReply done = ask(sentinels_.front()->uri(), options_.sentinel_password,
                                  {"SENTINEL", "FAILOVER", "mymaster"});
        return done.text == "OK";
    });
    return begun && master_becomes(at_first ? second().port() : first().port());
}

/// It has found the replica, in order, and all other Sentinels.
bool SentinelGroup::is_complete(const Sentinel& sentinel) const {
    const RawReply master =
        ask(sentinel.uri(), options_.sentinel_password, {"SENTINEL", "MASTER", "mymaster"});
    const RawReply replicas =
        ask(sentinel.uri(), options_.sentinel_password, {"SENTINEL", "REPLICAS", "mymaster"});
    return field(master, "num-other-sentinels") == std::to_string(sentinels_.size() - 1) &&
           replicas.elements.size() == 1 &&
           field(replicas.elements[0], "master-link-status") == "ok" &&
           field(replicas.elements[0], "flags") == "slave";
}

}  // namespace redlatch::test
