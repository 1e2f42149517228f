#include "support/redis_server.hpp"

#include "support/raw_redis.hpp"
#include "support/wait.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace redlatch::test {
namespace {

constexpr std::chrono::seconds start_limit{60};
constexpr std::chrono::seconds stop_limit{10};

/// For redis.conf: bytes that need it are escaped.
std::string quoted(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            result += '\\';
        }
        result += c;
    }
    return result + '"';
}

/// The first version that has a directive which older ones do without.
ServerVersion first_version_with(const std::string& directive) {
    if (directive == "acl-pubsub-default" || directive == "loading-process-events-interval-bytes") {
        return redis_6_2;
    }
    if (directive == "enable-debug-command" || directive == "enable-protected-configs") {
        return redis_7;
    }
    return {};
}

void write_lines(std::ostream& out, const ServerConfig& config) {
    for (const auto& [name, value] : config) {
        if (redis_server_version() < first_version_with(name)) continue;
        out << name << ' ' << (name == "user" ? acl_rules(value) : value) << '\n';
    }
}

/// Of what a server writes: "Redis server v=7.0.15 sha=…".
ServerVersion version_in(const std::string& text) {
    const std::size_t at = text.find(" v=");
    ServerVersion version;
    char dot = 0;
    if (at == std::string::npos ||
        !(std::istringstream{text.substr(at + 3)} >> version.major >> dot >> version.minor)) {
        throw std::runtime_error{"a server that does not say its version: " + text};
    }
    return version;
}

ServerVersion ask_for_version() {
    const TempFolder folder;
    const std::string file = folder.file("version");
    const UniqueFd output{::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    ProcessHandle process =
        spawn({.argv = {redis_server_program(), "--version"}, .output = output.get()});
    process.wait();
    std::ostringstream text;
    text << std::ifstream{file}.rdbuf();
    return version_in(text.str());
}

}  // namespace

std::string redis_server_program() {
    const char* const program = std::getenv("REDLATCH_REDIS_SERVER");
    return program != nullptr && *program != '\0' ? program : "redis-server";
}

const ServerVersion& redis_server_version() {
    static const ServerVersion version = ask_for_version();
    return version;
}

std::string acl_rules(const std::string& rules) {
    if (redis_server_version() >= redis_6_2) return rules;
    std::istringstream words{rules};
    std::string known;
    for (std::string word; words >> word;) {
        if (word.starts_with('&') || word == "resetchannels") continue;
        known += (known.empty() ? "" : " ") + word;
    }
    return known;
}

ServerConfig ServerTls::config(std::uint16_t port) const {
    return {{"port", "0"},
            {"tls-port", std::to_string(port)},
            {"tls-cert-file", quoted(certificate.file)},
            {"tls-key-file", quoted(certificate.key_file)},
            {"tls-ca-cert-file", quoted(ca_file)},
            {"tls-auth-clients", ask_clients ? "yes" : "no"},
            {"tls-replication", "yes"}};
}

RedisServer::RedisServer(RedisServerOptions options) : options_{std::move(options)} {
    socket_.path = folder_.file("redis.sock");
    if (listens_on_tcp()) {
        tcp_.host = options_.ipv6 ? "::1" : "127.0.0.1";
        tcp_.port = options_.port;
        reserved_port_ = bind_to(tcp_);
    }
    write_config();
    start();
}

void RedisServer::start() {
    if (process_.running()) {
        throw std::logic_error{"the redis-server is running already"};
    }
    const UniqueFd log_file{::open(folder_.file("server.log").c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
    if (!log_file) {
        throw std::system_error{errno, std::generic_category(), "open the server's log"};
    }
    process_ = spawn({.argv = {redis_server_program(), folder_.file("redis.conf")},
                      .env = options_.env,
                      .output = log_file.get(),
                      .error = log_file.get()});
    wait_until_ready();
}

void RedisServer::stop() {
    process_.kill(SIGTERM);
    process_.thaw();
    if (!process_.wait(stop_limit)) {
        kill();  // it hangs in a script, which SIGTERM does not end
    }
}

void RedisServer::kill() {
    process_.kill(SIGKILL);
    process_.wait();
}

void RedisServer::restart() {
    stop();
    start();
}

void RedisServer::forget_data() {
    std::filesystem::remove_all(folder_.file("appendonlydir"));  // from Redis 7 on
    std::filesystem::remove(folder_.file("appendonly.aof"));
}

std::string RedisServer::tls_uri(const std::string& host) const {
    return "rediss://" + host + ":" + std::to_string(port());
}

std::string RedisServer::log() const {
    std::ostringstream text;
    text << std::ifstream{folder_.file("server.log")}.rdbuf();
    return text.str();
}

void RedisServer::write_config() const {
    std::ofstream file{folder_.file("redis.conf")};
    file << "daemonize no\n"
         << "databases 16\n"
         << "logfile \"\"\n"
         << "save \"\"\n"
         << "dir " << quoted(folder_.path()) << '\n'
         << "unixsocket " << quoted(socket_.path) << '\n'
         << "unixsocketperm 700\n"
         << "port " << tcp_.port << '\n'
         << "appendonly " << (options_.append_only ? "yes" : "no") << '\n'
         << "appendfsync no\n";
    if (listens_on_tcp()) {
        file << "bind " << tcp_.host << '\n';
    }
    if (!options_.password.empty()) {
        file << "requirepass " << quoted(options_.password) << '\n';
    }
    write_lines(file, {{"acl-pubsub-default", "allchannels"}});
    for (const std::string& user : options_.acl) write_lines(file, {{"user", user}});
    if (options_.tls) {
        write_lines(file, options_.tls->config(tcp_.port));
    }
    write_lines(file, options_.config);
    if (!file.flush()) {
        throw std::runtime_error{"cannot write the server's configuration"};
    }
}

bool RedisServer::answers() const {
    try {
        RawRedis redis{socket_.path, std::chrono::seconds{1}};
        const RawReply reply = redis.command({"PING"});
        // Any answer but "still loading" is one of a live server, also "not allowed".
        return !reply.text.starts_with("LOADING");
    } catch (const std::runtime_error&) {
        return false;
    }
}

void RedisServer::wait_until_ready() {
    bool ready = false;
    const bool decided = eventually(
        [&] {
            ready = answers();
            return ready || !process_.running();
        },
        start_limit);
    if (ready) {
        return;
    }
    const std::string what =
        decided ? "redis-server ended at once" : "redis-server does not answer";
    throw std::runtime_error{what + ":\n" + log()};
}

}  // namespace redlatch::test
