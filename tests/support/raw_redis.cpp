#include "support/raw_redis.hpp"

#include "support/redis_server.hpp"
#include "support/socket.hpp"

#include <hiredis/hiredis.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

namespace redlatch::test {
namespace {

/// hiredis writes to dead sockets without MSG_NOSIGNAL. The signal is kept from this thread only,
/// so that a test process still dies of a SIGPIPE that the library under test lets through.
class SigpipeBlocked {
public:
    SigpipeBlocked() {
        sigset_t pending;
        ::sigpending(&pending);
        was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
        ::sigemptyset(&sigpipe_);
        ::sigaddset(&sigpipe_, SIGPIPE);
        ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
    }

    ~SigpipeBlocked() {
        const timespec at_once{};
        if (!was_pending_) {
            ::sigtimedwait(&sigpipe_, nullptr, &at_once);
        }
        ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

    SigpipeBlocked(const SigpipeBlocked&) = delete;
    SigpipeBlocked& operator=(const SigpipeBlocked&) = delete;

private:
    sigset_t sigpipe_{};
    sigset_t before_{};
    bool was_pending_ = false;
};

timeval to_timeval(std::chrono::milliseconds time) {
    timeval result{};
    result.tv_sec = static_cast<time_t>(time.count() / 1000);
    result.tv_usec = static_cast<suseconds_t>(time.count() % 1000 * 1000);
    return result;
}

redisContext* connect(const Address& address, timeval timeout) {
    if (address.is_unix()) {
        return ::redisConnectUnixWithTimeout(address.path.c_str(), timeout);
    }
    return ::redisConnectWithTimeout(address.host.c_str(), address.port, timeout);
}

RawReply::Type type_of(const redisReply& reply) {
    switch (reply.type) {
        case REDIS_REPLY_STRING: return RawReply::Type::string;
        case REDIS_REPLY_ARRAY: return RawReply::Type::array;
        case REDIS_REPLY_INTEGER: return RawReply::Type::integer;
        case REDIS_REPLY_NIL: return RawReply::Type::nil;
        case REDIS_REPLY_STATUS: return RawReply::Type::status;
        case REDIS_REPLY_ERROR: return RawReply::Type::error;
        default: return RawReply::Type::other;
    }
}

RawReply copy_of(const redisReply& reply) {
    RawReply result;
    result.type = type_of(reply);
    switch (result.type) {
        case RawReply::Type::integer: result.integer = reply.integer; break;
        case RawReply::Type::string:
        case RawReply::Type::status:
        case RawReply::Type::error: result.text.assign(reply.str, reply.len); break;
        case RawReply::Type::array:
            for (std::size_t i = 0; i < reply.elements; ++i) {
                result.elements.push_back(copy_of(*reply.element[i]));
            }
            break;
        case RawReply::Type::nil:
        case RawReply::Type::other: break;
    }
    return result;
}

/// Splits at a separator; leaves out the carriage returns of INFO and empty parts.
std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::string part;
    for (const char c : text + separator) {
        if (c == separator && !part.empty()) {
            parts.push_back(std::exchange(part, {}));
        } else if (c != separator && c != '\r') {
            part += c;
        }
    }
    return parts;
}

/// Reads "a<between>1" pairs, such as the "name=x" of CLIENT LIST or the "name:x" of INFO.
std::map<std::string, std::string> pairs(const std::vector<std::string>& texts, char between) {
    std::map<std::string, std::string> result;
    for (const std::string& text : texts) {
        const std::size_t middle = text.find(between);
        if (middle != std::string::npos) {
            result[text.substr(0, middle)] = text.substr(middle + 1);
        }
    }
    return result;
}

}  // namespace

void RawRedis::Disconnect::operator()(redisContext* context) const {
    ::redisFree(context);
}

RawRedis::RawRedis(std::string_view address, std::chrono::milliseconds timeout) {
    const SigpipeBlocked blocked;
    context_.reset(connect(Address::parse(address), to_timeval(timeout)));
    if (context_ == nullptr || context_->err != 0) {
        fail("connect to " + std::string{address});
    }
    ::fcntl(context_->fd, F_SETFD, FD_CLOEXEC);
    set_timeout(timeout);
}

RawRedis::RawRedis(const RedisServer& server) : RawRedis{server.socket_path()} {
    if (!server.password().empty()) {
        auth(server.password());
    }
}

void RawRedis::set_timeout(std::chrono::milliseconds timeout) {
    ::redisSetTimeout(context_.get(), to_timeval(timeout));
}

RawReply RawRedis::command(std::initializer_list<std::string_view> arguments) {
    append({arguments.begin(), arguments.size()});
    return read_reply();
}

RawReply RawRedis::wire(std::string_view command) {
    if (::redisAppendFormattedCommand(context_.get(), command.data(), command.size()) != REDIS_OK) {
        fail("send a command");
    }
    return read_reply();
}

RawReply RawRedis::command(const Command& arguments) {
    return std::move(pipeline({arguments}).front());
}

std::vector<RawReply> RawRedis::pipeline(const std::vector<Command>& commands) {
    for (const Command& command : commands) {
        append(std::vector<std::string_view>{command.begin(), command.end()});
    }
    std::vector<RawReply> replies;
    for (std::size_t i = 0; i < commands.size(); ++i) {
        replies.push_back(read_reply());
    }
    return replies;
}

void RawRedis::ping() {
    checked({"PING"});
}

void RawRedis::auth(std::string_view password) {
    checked({"AUTH", password});
}

void RawRedis::auth(std::string_view user, std::string_view password) {
    checked({"AUTH", user, password});
}

void RawRedis::select(int database) {
    checked({"SELECT", std::to_string(database)});
}

std::optional<std::string> RawRedis::get(std::string_view key) {
    RawReply reply = checked({"GET", key});
    if (reply.is_nil()) {
        return std::nullopt;
    }
    return std::move(reply.text);
}

void RawRedis::set(std::string_view key, std::string_view value) {
    checked({"SET", key, value});
}

bool RawRedis::exists(std::string_view key) {
    return checked({"EXISTS", key}).integer == 1;
}

bool RawRedis::del(std::string_view key) {
    return checked({"DEL", key}).integer == 1;
}

long long RawRedis::pttl(std::string_view key) {
    return checked({"PTTL", key}).integer;
}

std::string RawRedis::type(std::string_view key) {
    return checked({"TYPE", key}).text;
}

std::map<std::string, std::string> RawRedis::hgetall(std::string_view key) {
    const RawReply reply = checked({"HGETALL", key});
    std::map<std::string, std::string> result;
    for (std::size_t i = 0; i + 1 < reply.elements.size(); i += 2) {
        result[reply.elements[i].text] = reply.elements[i + 1].text;
    }
    return result;
}

std::vector<std::string> RawRedis::keys() {
    std::vector<std::string> result;
    for (const RawReply& key : checked({"KEYS", "*"}).elements) {
        result.push_back(key.text);
    }
    std::sort(result.begin(), result.end());
    return result;
}

void RawRedis::flushall() {
    checked({"FLUSHALL"});
}

void RawRedis::script_flush() {
    checked({"SCRIPT", "FLUSH"});
}

std::vector<std::map<std::string, std::string>> RawRedis::client_list() {
    std::vector<std::map<std::string, std::string>> result;
    for (const std::string& line : split(checked({"CLIENT", "LIST"}).text, '\n')) {
        result.push_back(pairs(split(line, ' '), '='));
    }
    return result;
}

std::map<std::string, std::string> RawRedis::info(std::string_view section) {
    return pairs(split(checked({"INFO", section}).text, '\n'), ':');
}

long long RawRedis::command_calls(const std::string& name) {
    const std::map<std::string, std::string> stats = info("commandstats");
    const bool tells_subcommands = redis_server_version() >= redis_7;
    const auto found =
        stats.find("cmdstat_" + (tells_subcommands ? name : name.substr(0, name.find('|'))));
    return found == stats.end() ? 0 : std::stoll(pairs(split(found->second, ','), '=').at("calls"));
}

long long RawRedis::commands_processed() {
    return std::stoll(info("stats").at("total_commands_processed"));
}

void RawRedis::reset_stats() {
    checked({"CONFIG", "RESETSTAT"});
}

void RawRedis::append(std::span<const std::string_view> arguments) {
    std::vector<const char*> texts;
    std::vector<std::size_t> sizes;
    for (const std::string_view argument : arguments) {
        texts.push_back(argument.empty() ? "" : argument.data());
        sizes.push_back(argument.size());
    }
    const int count = static_cast<int>(arguments.size());
    if (::redisAppendCommandArgv(context_.get(), count, texts.data(), sizes.data()) != REDIS_OK) {
        fail("send a command");
    }
}

RawReply RawRedis::read_reply() {
    const SigpipeBlocked blocked;
    void* reply = nullptr;
    if (::redisGetReply(context_.get(), &reply) != REDIS_OK) {
        fail("read a reply");
    }
    const std::unique_ptr<redisReply, void (*)(void*)> owner{static_cast<redisReply*>(reply),
                                                             ::freeReplyObject};
    return copy_of(*owner);
}

RawReply RawRedis::checked(std::initializer_list<std::string_view> arguments) {
    RawReply reply = command(arguments);
    if (reply.is_error()) {
        throw std::runtime_error{std::string{*arguments.begin()} + ": " + reply.text};
    }
    return reply;
}

void RawRedis::fail(const std::string& action) const {
    std::string reason = "out of memory";
    if (context_ != nullptr) {
        const bool by_errno = context_->err == REDIS_ERR_IO && context_->errstr[0] == '\0';
        reason = by_errno ? std::strerror(errno) : context_->errstr;
    }
    throw std::runtime_error{"cannot " + action + ": " + reason};
}

}  // namespace redlatch::test
