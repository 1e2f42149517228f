#pragma once

#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct redisContext;

namespace redlatch::test {

class RedisServer;

/// What a server answered, owning its content.
struct RawReply {
    enum class Type { string, array, integer, nil, status, error, other };

    Type type = Type::nil;
    long long integer = 0;
    std::string text;  ///< of a string, a status or an error
    std::vector<RawReply> elements;

    [[nodiscard]] bool is_nil() const { return type == Type::nil; }
    [[nodiscard]] bool is_error() const { return type == Type::error; }
};

/// A small blocking connection that looks behind the scenes of a test. One thread at a time.
///
/// `command` and `pipeline` hand an error reply back as it is; the named conveniences throw it.
/// Everything throws std::runtime_error when the connection fails, and never raises SIGPIPE; after
/// that the object is of no more use.
class RawRedis {
public:
    using Command = std::vector<std::string>;

    /// Connects to `unix:///path`, a bare `/path` or `redis://host:port`. `timeout` bounds the
    /// connect and each single wait for a reply.
    explicit RawRedis(std::string_view address,
                      std::chrono::milliseconds timeout = std::chrono::seconds{20});

    /// Connects to the server's Unix socket, with its password if it has one.
    explicit RawRedis(const RedisServer& server);

    /// From now on bounds each single wait for a reply.
    void set_timeout(std::chrono::milliseconds timeout);

    /// Arguments are binary safe.
    RawReply command(std::initializer_list<std::string_view> arguments);
    RawReply command(const Command& arguments);

    /// Sends one command as its bytes are.
    RawReply wire(std::string_view command);

    /// Sends all commands at once and reads their replies.
    std::vector<RawReply> pipeline(const std::vector<Command>& commands);

    /// Waits for what the server says unasked, such as a message of a channel.
    RawReply next() { return read_reply(); }

    void ping();
    void auth(std::string_view password);
    void auth(std::string_view user, std::string_view password);
    void select(int database);

    std::optional<std::string> get(std::string_view key);
    void set(std::string_view key, std::string_view value);
    bool exists(std::string_view key);
    bool del(std::string_view key);

    /// Milliseconds to live; -1 for a key that never expires, -2 for none.
    long long pttl(std::string_view key);

    /// "none", "string", "hash", ...
    std::string type(std::string_view key);
    std::map<std::string, std::string> hgetall(std::string_view key);

    /// All keys of the selected database (KEYS *), sorted.
    std::vector<std::string> keys();

    void flushall();
    void script_flush();

    /// One map per connection: "id", "name", "addr", "cmd", ... This connection is among them.
    std::vector<std::map<std::string, std::string>> client_list();

    /// The fields of one section of INFO.
    std::map<std::string, std::string> info(std::string_view section);

    /// How often the server has run a command since it started or since `reset_stats`; also those
    /// that scripts ran. `name` in lower case, a subcommand as "client|list": before Redis 7
    /// these are counted together.
    long long command_calls(const std::string& name);

    /// All commands of all connections, without those that scripts ran. INFO itself counts too.
    long long commands_processed();
    void reset_stats();

private:
    struct Disconnect {
        void operator()(redisContext* context) const;
    };

    void append(std::span<const std::string_view> arguments);
    RawReply read_reply();
    RawReply checked(std::initializer_list<std::string_view> arguments);
    [[noreturn]] void fail(const std::string& action) const;

    std::unique_ptr<redisContext, Disconnect> context_;
};

}  // namespace redlatch::test
