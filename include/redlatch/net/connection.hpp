#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/limit.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/owed.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/resolve.hpp>
#include <redlatch/net/script.hpp>
#include <redlatch/uri.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The thin owner of one hiredis context: sends commands, receives replies by an absolute limit.
/// Knows nothing of locks. hiredis formats and parses; all waiting is `poll` with one deadline, as
/// hiredis's own timeouts count per read. After any fault it is closed for good, since a late
/// answer would otherwise be taken for the next command's. One thread at a time.
class Connection {
public:
    /// Connects, authenticates, selects the database and sets the client's name.
    static Expected<Connection, Fault> open(const Endpoint& endpoint,
                                            const std::string& client_name, const Limit& limit) {
        auto socket = connect_endpoint(endpoint, limit);
        if (!socket) return Unexpected{named(std::move(socket).error(), endpoint)};
        redisContext* context = redisConnectFd(socket->get());
        if (context == nullptr) return Unexpected{named(io_fault("out of memory"), endpoint)};
        make_blocking(socket->release());
        Connection connection{context, endpoint.name()};
        if (auto ready = connection.shake_hands(endpoint, client_name, limit); !ready) {
            return Unexpected{std::move(ready).error()};
        }
        return connection;
    }

    /// The run id of the server, which tells it from any other and from itself after a restart; null
    /// if it keeps that to itself.
    const std::shared_ptr<const std::string>& server() const noexcept { return server_; }

    /// Where the server's clock stands. Knows nothing if the server keeps its time to itself.
    ServerClock& clock() noexcept { return clock_; }

    /// A second descriptor of its socket: `shutdown` on that one makes a thread that waits in
    /// `receive` find the connection closed.
    Descriptor duplicate() const noexcept {
        return Descriptor{::fcntl(context_->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
    }

    /// No fault so far: the next reply can be received.
    bool alive() const noexcept { return context_ != nullptr; }

    /// Closes it: what came last shows that answers and commands no longer match.
    void discard() noexcept { context_.reset(); }

    /// Alive, and nothing unread that would be taken for the answer to the next command.
    bool idle() const noexcept { return alive() && context_->reader->pos == context_->reader->len; }

    /// From now on a receive looks for the answer without sleep for that long before it blocks.
    void busy_wait(std::chrono::microseconds time) noexcept { busy_wait_ = time; }

    /// Sends one command and returns its reply, an error reply as a `Fault`.
    Expected<Reply, Fault> call(std::string_view command, const Limit& limit) {
        if (auto sent = send(command, limit); !sent) {
            return Unexpected{std::move(sent).error()};
        }
        return receive(limit);
    }

    /// Writes all of `bytes`, one command or several.
    Expected<void, Fault> send(std::string_view bytes, const Limit& limit) {
        bool began = false;
        while (!bytes.empty()) {
            // MSG_NOSIGNAL: a server that went away must not kill the process with SIGPIPE.
            const ssize_t n =
                ::send(context_->fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(n));
                began = true;
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                if (auto ready = wait_ready(context_->fd, POLLOUT, limit); !ready) {
                    return close(std::move(ready).error(), began);
                }
            } else if (errno != EINTR) {
                return close(last_words(broken("send: " + system_message(errno))), began);
            }
        }
        return {};
    }

    /// A script that the server knows now, and lets us run.
    void note_run(const Script* script) {
        if (!has_run(script)) scripts_run_.push_back(script);
    }
    bool has_run(const Script* script) const noexcept {
        return std::find(scripts_run_.begin(), scripts_run_.end(), script) != scripts_run_.end();
    }

    /// Leaves the answer to the command that was sent last to whoever receives next.
    void owe(Answer answer, Awaiting awaiting) {
        owed_.add(answer, Clock::now(), std::move(awaiting));
    }

    /// Whether answers are owed; if so, since when at most.
    bool owes() const noexcept { return !owed_.empty(); }
    TimePoint owes_since() const noexcept { return owed_.since(); }

    /// Receives what is owed, and passes it on.
    Expected<void, Fault> settle(const Limit& limit) {
        while (owes()) {
            auto reply = receive_next(limit);
            if (!alive()) return Unexpected{std::move(reply).error()};
            if (!owed_.settle(std::move(reply))) return close(unexpected_reply(), true);
        }
        return {};
    }

    /// The reply to the command that was sent last. An error reply comes as a `Fault` too, but leaves
    /// the connection usable.
    Expected<Reply, Fault> receive(const Limit& limit) {
        if (auto settled = settle(limit); !settled) {
            return Unexpected{std::move(settled).error()};
        }
        return receive_next(limit);
    }

private:
    Expected<Reply, Fault> receive_next(const Limit& limit) {
        for (;;) {
            void* raw = nullptr;
            if (redisReaderGetReply(context_->reader, &raw) != REDIS_OK) {
                return close(garbage(context_->reader->errstr), true);
            }
            if (raw != nullptr) return checked(Reply{raw});
            if (auto more = read_some(limit); !more) {
                return close(std::move(more).error(), true);
            }
        }
    }

    /// No reply to a command of ours is near this; a server that sends more is not Redis.
    static constexpr std::size_t largest_reply = std::size_t{1} << 20U;

    Connection(redisContext* context, std::string node)
        : context_(context), node_(std::move(node)) {}

    static Fault named(Fault fault, const Endpoint& endpoint) {
        fault.error.node = endpoint.name();
        return fault;
    }

    static Fault broken(std::string message) {
        Fault fault = io_fault(std::move(message));
        fault.stale = true;  // the pool clears this for a connection that was new
        return fault;
    }

    static Fault garbage(std::string message) {
        return {.error = {Errc::protocol, {}, {}, std::move(message), {}}, .transient = false};
    }

    Unexpected<Fault> close(Fault fault, bool maybe_executed) {
        context_.reset();
        fault.error.node = node_;
        fault.maybe_executed = maybe_executed;
        owed_.fail(fault);
        return Unexpected{std::move(fault)};
    }

    Expected<void, Fault> read_some(const Limit& limit) {
        std::array<char, std::size_t{16} * 1024> buffer;
        bool block = limit.left() > blocking_receive;
        bool awake = busy_wait_ > busy_wait_.zero();
        const TimePoint asleep_at = awake ? Clock::now() + busy_wait_ : TimePoint::min();
        for (;;) {
            awake = awake && Clock::now() < std::min(asleep_at, limit.at);
            if (!awake && !block) {
                if (auto ready = wait_ready(context_->fd, POLLIN, limit); !ready) return ready;
            }
            const int flags = block && !awake ? 0 : MSG_DONTWAIT;
            const ssize_t n = ::recv(context_->fd, buffer.data(), buffer.size(), flags);
            if (n > 0) return feed({buffer.data(), static_cast<std::size_t>(n)});
            if (n == 0) return Unexpected{broken("the server closed the connection")};
            if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
                return Unexpected{broken("receive: " + system_message(errno))};
            }
            if (awake) {
                std::this_thread::yield();  // the server may be waiting for this core
            } else {
                block = false;
            }
        }
    }

    /// A server that turns a client away says why and hangs up, before it has read anything: what it
    /// said, if it is there, tells more than that it hung up.
    Fault last_words(Fault fault) {
        std::array<char, 1024> buffer{};
        const ssize_t n = ::recv(context_->fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
        void* raw = nullptr;
        if (n <= 0 || !feed({buffer.data(), static_cast<std::size_t>(n)}) ||
            redisReaderGetReply(context_->reader, &raw) != REDIS_OK || raw == nullptr) {
            return fault;
        }
        if (auto said = checked(Reply{raw}); !said) {
            fault.transient = said.error().transient;
            fault.error = std::move(said).error().error;
        }
        return fault;
    }

    Expected<void, Fault> feed(std::string_view bytes) {
        redisReader* const reader = context_->reader;
        if (redisReaderFeed(reader, bytes.data(), bytes.size()) != REDIS_OK) {
            return Unexpected{garbage(reader->errstr)};
        }
        if (reader->len - reader->pos > largest_reply) {
            return Unexpected{garbage("a reply of more than 1 MiB")};
        }
        return {};
    }

    Expected<Reply, Fault> checked(Reply reply) {
        if (!reply.view().is_error()) return reply;
        const std::string_view text = reply.view().text();
        const auto [code, transient] = classify_server_error(text);
        return Unexpected{
            Fault{.error = {code, {}, node_, printable(text), {}}, .transient = transient}};
    }

    /// All in one round trip.
    Expected<void, Fault> shake_hands(const Endpoint& endpoint, const std::string& client_name,
                                      const Limit& limit) {
        std::string commands;
        if (endpoint.password) {
            const Call auth = endpoint.user
                                  ? Call::plain({"AUTH", *endpoint.user, *endpoint.password})
                                  : Call::plain({"AUTH", *endpoint.password});
            commands += auth.wire();
        }
        commands += Call::plain({"CLIENT", "SETNAME", client_name}).wire();
        if (endpoint.db != 0) {
            commands += Call::plain({"SELECT", std::int64_t{endpoint.db}}).wire();
        }
        commands += Call::plain({"INFO", "server"}).wire();
        commands += Call::plain({"INFO", "replication"}).wire();
        commands += Call::plain({"TIME"}).wire();
        const TimePoint sent = Clock::now();
        auto done = send(commands, limit);
        if (done && endpoint.password) done = expect_ok(limit);
        if (done) done = expect_name_taken(limit);
        if (done && endpoint.db != 0) done = expect_ok(limit);
        if (done) done = read_run_id(limit);
        if (done) done = expect_master(limit);
        if (done) done = read_time(sent, limit);
        if (!done) done.error().maybe_executed = false;  // nothing of the user's was sent yet
        return done;
    }

    Expected<void, Fault> expect_ok(const Limit& limit) {
        auto reply = receive(limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        return {};
    }

    /// A name is a nicety: an ACL may forbid to set it.
    Expected<void, Fault> expect_name_taken(const Limit& limit) {
        auto done = expect_ok(limit);
        return !done && can_do_without(done.error()) ? Expected<void, Fault>{} : done;
    }

    /// A reply that is a help where the server gives it; null where it forbids that.
    Expected<std::optional<Reply>, Fault> receive_if_allowed(const Limit& limit) {
        auto reply = receive(limit);
        if (reply) return std::optional<Reply>{*std::move(reply)};
        if (can_do_without(reply.error())) return std::optional<Reply>{};
        return Unexpected{std::move(reply).error()};
    }

    /// The value of a line `field:value` in an answer to INFO; empty where there is none.
    static std::string_view value_in(std::string_view info, std::string_view field) {
        const std::size_t at = info.find(field);
        if (at == std::string_view::npos) return {};
        const std::string_view rest = info.substr(at + field.size());
        return rest.substr(0, rest.find_first_of("\r\n"));
    }

    /// Where an ACL forbids INFO, a lock that a message gives us is confirmed by one more command.
    Expected<void, Fault> read_run_id(const Limit& limit) {
        auto reply = receive_if_allowed(limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply) return {};
        const std::string_view id = value_in((*reply)->view().text(), "run_id:");
        if (!id.empty()) server_ = std::make_shared<const std::string>(id);
        return {};
    }

    /// What a replica says about a lock may be long out of date.
    Expected<void, Fault> expect_master(const Limit& limit) {
        auto reply = receive_if_allowed(limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply || value_in((*reply)->view().text(), "role:") != "slave") return {};
        Fault fault = io_fault("READONLY the server is a replica");
        fault.error.node = node_;
        return Unexpected{std::move(fault)};
    }

    /// Where an ACL forbids TIME, what a command does that arrives late is undone by its release only.
    Expected<void, Fault> read_time(TimePoint sent, const Limit& limit) {
        auto reply = receive_if_allowed(limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply || (*reply)->view().size() != 2) return {};
        const auto number = [&reply](std::size_t i) {
            const std::string_view text = (*reply)->view()[i].text();
            std::int64_t number = 0;
            std::from_chars(text.data(), text.data() + text.size(), number);
            return number;
        };
        const std::chrono::microseconds time =
            std::chrono::seconds{number(0)} + std::chrono::microseconds{number(1)};
        clock_.answered(sent, time, Clock::now());
        return {};
    }

    /// Whether the server only forbids it. One that wants a password first says NOAUTH, and it would
    /// say so again.
    bool can_do_without(const Fault& fault) const {
        return alive() && !fault.transient && !fault.error.message.starts_with("NOAUTH");
    }

    struct Free {
        void operator()(redisContext* context) const noexcept { redisFree(context); }
    };
    std::unique_ptr<redisContext, Free> context_;
    std::string node_;
    std::shared_ptr<const std::string> server_;
    ServerClock clock_;
    std::chrono::microseconds busy_wait_{0};
    std::vector<const Script*> scripts_run_;
    Owed owed_;
};

}  // namespace redlatch::inline v0::detail
