#pragma once

#include "support/authority.hpp"
#include "support/process.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test {

/// What tests start as a server: the environment's REDLATCH_REDIS_SERVER, such as a valkey-server,
/// or else redis-server from PATH.
[[nodiscard]] std::string redis_server_program();

/// Of a server. Valkey's go on where Redis 7.2 was.
struct ServerVersion {
    int major = 0;
    int minor = 0;

    friend auto operator<=>(const ServerVersion&, const ServerVersion&) = default;
    friend std::ostream& operator<<(std::ostream& out, const ServerVersion& version) {
        return out << version.major << '.' << version.minor;
    }
};

/// Of `redis_server_program()`. A test of what an older server cannot do is skipped there.
[[nodiscard]] const ServerVersion& redis_server_version();

inline constexpr ServerVersion redis_6_2{6, 2};
inline constexpr ServerVersion redis_7{7, 0};

/// The rules of an ACL as that server takes them: without those of channels, of which older ones know nothing.
[[nodiscard]] std::string acl_rules(const std::string& rules);

/// Lines of redis.conf, as name and value. A value is copied as it is: quote it if it has to be
/// quoted there.
using ServerConfig = std::vector<std::pair<std::string, std::string>>;

/// A port that speaks TLS instead of plain text.
struct ServerTls {
    Certificate certificate;
    std::string ca_file;       ///< vouches for other servers, and for clients
    bool ask_clients = false;  ///< refuse those without a certificate of their own

    /// For a server or a Sentinel on that port; what it asks of others is by TLS too.
    [[nodiscard]] ServerConfig config(std::uint16_t port) const;
};

/// What a RedisServer is started with.
struct RedisServerOptions {
    /// Listen on a free port of 127.0.0.1 too, not only on the Unix socket.
    bool tcp = false;

    /// The same on ::1 instead; ask `ipv6_available()` first.
    bool ipv6 = false;

    /// Not any free port, but this one.
    std::uint16_t port = 0;

    /// The port speaks TLS.
    std::optional<ServerTls> tls = {};

    /// `requirepass`, the default user's password.
    std::string password = {};

    /// Users, as after `user` in redis.conf: "alice on >secret ~* +@all". They may use all channels, as in
    /// Redis 6, unless told otherwise.
    std::vector<std::string> acl = {};

    /// More lines; they stand last, so they override what is above them. What an older server does not know,
    /// and allows in any case, is left out there.
    ServerConfig config = {};

    /// Write an append-only file with every command, so that keys survive restart() and kill().
    /// Otherwise nothing is kept. The server waits for no disk: what a killed process has written stays
    /// without fsync, which takes seconds on a busy machine.
    bool append_only = false;

    /// Added to the environment that the server runs in.
    std::map<std::string, std::string> env = {};
};

/// A real redis-server of this test's own: on a Unix socket (and port) of its own, in a temporary
/// folder of its own. It is running and answers when the constructor returns; the destructor ends
/// it and removes the folder. If the test process dies, the kernel kills the server.
///
/// One thread at a time may use an object.
class RedisServer {
public:
    /// Throws std::runtime_error, with what the server wrote, if it does not come up.
    explicit RedisServer(RedisServerOptions options = {});
    ~RedisServer() = default;

    RedisServer(const RedisServer&) = delete;
    RedisServer& operator=(const RedisServer&) = delete;

    /// "unix://<path>"; without the password.
    [[nodiscard]] std::string uri() const { return socket_.uri(); }

    /// "redis://127.0.0.1:<port>" or "redis://[::1]:<port>".
    [[nodiscard]] std::string tcp_uri() const { return tcp_.uri(); }

    /// "rediss://<host>:<port>", where the port speaks TLS.
    [[nodiscard]] std::string tls_uri(const std::string& host = "localhost") const;

    [[nodiscard]] const std::string& socket_path() const { return socket_.path; }
    [[nodiscard]] std::uint16_t port() const { return tcp_.port; }
    [[nodiscard]] const std::string& password() const { return options_.password; }

    /// Starts again on the same addresses, after stop() or kill(). Nothing else can have taken the
    /// port meanwhile; connecting to it was refused.
    void start();

    /// Ends the server in order (SIGTERM) and waits for its end.
    void stop();

    /// SIGKILL, and waits for its end.
    void kill();

    /// stop() and start().
    void restart();

    /// Removes what a stopped server has kept on disk: it will start without keys.
    void forget_data();

    /// SIGSTOP: connections stay open and new ones are accepted by the kernel, but nothing answers
    /// until thaw(). When freeze() returns, the server has stopped.
    void freeze() { process_.freeze(); }
    void thaw() { process_.thaw(); }

    [[nodiscard]] bool running() { return process_.running(); }
    [[nodiscard]] pid_t pid() const { return process_.pid(); }
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }

    /// All that the server has written since it was made.
    [[nodiscard]] std::string log() const;

private:
    [[nodiscard]] bool listens_on_tcp() const {
        return options_.tcp || options_.ipv6 || options_.tls;
    }
    void write_config() const;
    [[nodiscard]] bool answers() const;
    void wait_until_ready();

    RedisServerOptions options_;
    TempFolder folder_;
    Address socket_;
    Address tcp_;
    UniqueFd reserved_port_;
    ProcessHandle process_;
};

}  // namespace redlatch::test
