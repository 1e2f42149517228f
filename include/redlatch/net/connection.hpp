#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/no_cancellation.hpp>
#include <redlatch/net/pending_replies.hpp>
#include <redlatch/net/process_sockets.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/reply_bounds.hpp>
#include <redlatch/net/server_error.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/stream.hpp>

#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

struct FreeContext {
    void operator()(redisContext* context) const noexcept {
        const NoCancellation uncancelled;
        ProcessSockets::shut_down(context->fd);
        ProcessSockets::remove(context->fd);
        redisFree(context);
    }
};
using ContextPtr = std::unique_ptr<redisContext, FreeContext>;

/// The same for one whose reader uses these bounds to its end.
struct FreeBoundedContext : FreeContext {
    std::unique_ptr<ReplyBounds> bounds;
};

/// The thin owner of one hiredis context: sends commands, receives replies by an absolute limit.
/// Knows nothing of locks. `Call` formats, hiredis parses. A receive blocks in `recv` for 20 ms at most, and
/// then waits by `poll`. After any fault it is closed for good, since a late answer would otherwise be taken
/// for the next command's. One thread at a time.
class Connection {
public:
    /// `stream`: null where the socket itself carries the bytes.
    Connection(ContextPtr context, std::string node, std::unique_ptr<Stream> stream)
        : context_(context.release()), stream_(std::move(stream)), node_(std::move(node)) {
        context_.get_deleter().bounds = std::make_unique<ReplyBounds>(*context_->reader);
    }

    /// The run id of the server, which tells it from any other and from itself after a restart; null
    /// if it keeps that to itself.
    const std::shared_ptr<const std::string>& server() const noexcept { return server_; }

    /// Where the server's clock stands. Knows nothing if the server keeps its time to itself.
    ServerClock& clock() noexcept { return clock_; }

    /// What messages call the server.
    const std::string& node() const noexcept { return node_; }

    /// The latest moment at which the server may have started; nothing if it keeps that to itself.
    std::optional<TimePoint> started_by() const noexcept { return started_by_; }

    void set_server(std::shared_ptr<const std::string> run_id, TimePoint started_by) noexcept {
        server_ = std::move(run_id);
        started_by_ = started_by;
    }

    /// Of which generation of its dialer's connections it is.
    unsigned epoch() const noexcept { return epoch_; }
    void set_epoch(unsigned epoch) noexcept { epoch_ = epoch; }

    /// A second descriptor of its socket: `shutdown` on that one makes a thread that waits in
    /// `receive` find the connection closed.
    Descriptor duplicate() const noexcept {
        const int fd = ::fcntl(context_->fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        ProcessSockets::add(fd);
        return Descriptor{fd};
    }

    /// No fault so far: the next reply can be received.
    bool alive() const noexcept { return context_ != nullptr; }

    /// Whether anything has come from the server.
    bool has_heard() const noexcept { return heard_; }

    /// Closes it: the last reply shows that answers and commands no longer match.
    void discard() noexcept { context_.reset(); }

    /// Alive, and nothing unread that would be taken for the answer to the next command. Bytes that are
    /// unread while answers are pending are a part of these.
    bool idle() const noexcept {
        return alive() && !is_asked_ &&
               (has_pending_replies() || context_->reader->pos == context_->reader->len);
    }

    /// Whether it is idle, and nothing has come that nobody asked for. Reads what has come where answers are
    /// not pending: a connection that is not in step is of no use any more.
    bool is_in_step() {
        if (!idle()) return false;
        if (has_pending_replies()) return true;
        pollfd entry{.fd = context_->fd, .events = POLLIN, .revents = 0};
        // A stream needs more than one system call to read.
        if (stream_ != nullptr && ::poll(&entry, 1, 0) <= 0) return true;
        std::array<char, 1> byte{};
        return read_bytes(byte, false) <= 0;  // the next command finds out that it was closed
    }

    /// From now on a receive looks for the answer without sleep for that long before it blocks.
    void busy_wait(std::chrono::microseconds time) noexcept { busy_wait_ = time; }

    /// The next answer is to that command of the handshake: where it is an error, it may quote a password. Borrowed;
    /// empty where answers quote none.
    void expect_answer_to(std::string_view handshake) noexcept { handshake_ = handshake; }

    /// Sends one command and returns its reply, an error reply as a `Fault`.
    Expected<Reply, Fault> call(std::string_view command, const Limit& limit) {
        begin_exchange();
        if (auto sent = send(command, limit); !sent) {
            return Unexpected{std::move(sent).error()};
        }
        auto reply = receive(limit);
        end_exchange();
        return reply;
    }

    /// A command is sent whose answer its sender waits for. Where an exception ends that, nobody uses the
    /// connection any more: the answer would be taken for the next command's.
    void begin_exchange() noexcept { is_asked_ = true; }
    void end_exchange() noexcept { is_asked_ = false; }

    /// Writes all of `bytes`, one command or several.
    Expected<void, Fault> send(std::string_view bytes, const Limit& limit) {
        bool began = false;
        while (!bytes.empty()) {
            const ssize_t n = write_some(bytes);
            if (n >= 0) {
                bytes.remove_prefix(static_cast<std::size_t>(n));
                began = true;
            } else if (errno == EAGAIN) {
                if (auto ready = wait_ready(context_->fd, awaited(POLLOUT), limit); !ready) {
                    return close(std::move(ready).error(), began);
                }
            } else if (errno != EINTR) {
                return close(last_words(failed("send: ")), began);
            }
        }
        return {};
    }

    /// Writes what the socket takes at once, and says how many bytes that were. The caller has to give the
    /// rest again as it is.
    Expected<std::size_t, Fault> send_if_possible(std::string_view bytes) {
        std::size_t taken = 0;  // a stream takes no more than a record at a time
        while (taken != bytes.size()) {
            const ssize_t n = write_some(bytes.substr(taken));
            if (n >= 0) {
                taken += static_cast<std::size_t>(n);
            } else if (errno == EAGAIN) {
                break;
            } else if (errno != EINTR) {
                return close(last_words(failed("send: ")), true);
            }
        }
        return taken;
    }

    /// A script that the server knows now, and lets us run. Without memory it stays unknown, and its text is
    /// sent again.
    void note_run(const Script* script) noexcept {
        if (has_run(script)) return;
        try {
            scripts_run_.push_back(script);
        } catch (const std::bad_alloc&) {
            return;
        }
    }
    bool has_run(const Script* script) const noexcept {
        return std::find(scripts_run_.begin(), scripts_run_.end(), script) != scripts_run_.end();
    }

    /// Leaves the answer to the command that was sent last to the next receiver.
    void expect(const LeftCommand& left, ReplyCallback callback, const void* about = nullptr) {
        pending_.expect(left, Clock::now(), std::move(callback), about);
        end_exchange();
    }

    /// Whether answers are pending; if so, since when at most.
    bool has_pending_replies() const noexcept { return !pending_.empty(); }
    TimePoint pending_since() const noexcept { return pending_.since(); }
    std::ptrdiff_t pending_about(const void* about) const noexcept { return pending_.count(about); }

    /// Receives the pending answers, and passes them on.
    Expected<void, Fault> drain(const Limit& limit) {
        while (has_pending_replies()) {
            auto reply = receive_next(limit);
            if (!alive()) return Unexpected{std::move(reply).error()};
            if (!take_pending(std::move(reply))) return close(unexpected_reply(), true);
        }
        return {};
    }

    /// The same as far as answers have come, which are not waited for. Whether that was all.
    Expected<bool, Fault> drain_available() {
        while (has_pending_replies()) {
            auto reply = receive_if_there();
            if (!alive()) return Unexpected{std::move(reply).error()};
            if (reply && !*reply) return false;
            auto answer = reply ? Expected<Reply, Fault>{**std::move(reply)}
                                : Unexpected{std::move(reply).error()};
            if (!take_pending(std::move(answer))) return close(unexpected_reply(), true);
        }
        return true;
    }

    /// What to wait for before there can be more of a reply, or, with `to_write`, the next bytes can be sent.
    pollfd more_to_come(bool to_write = false) const noexcept {
        short events = awaited(POLLIN);
        if (to_write) events = static_cast<short>(events | awaited(POLLOUT));
        return {.fd = context_->fd, .events = events, .revents = 0};
    }

    /// The next reply if it has come, which is not waited for. An error reply comes as a `Fault`, as
    /// from `receive`.
    Expected<std::optional<Reply>, Fault> receive_if_there() {
        bool from_socket = false;
        return receive_if_there(from_socket);
    }

    /// `from_socket` becomes whether the socket was read: else the reply came with the one before.
    Expected<std::optional<Reply>, Fault> receive_if_there(bool& from_socket) {
        from_socket = false;
        std::array<char, std::size_t{4} * 1024> buffer;
        for (;;) {
            void* raw = nullptr;
            if (redisReaderGetReply(context_->reader, &raw) != REDIS_OK) {
                return close(unreadable(), true);
            }
            if (raw != nullptr) {
                auto reply = checked(Reply{raw});
                if (!reply) return Unexpected{std::move(reply).error()};
                return std::optional<Reply>{*std::move(reply)};
            }
            from_socket = true;
            auto more = read_there(buffer);
            if (!more) return close(std::move(more).error(), true);
            if (!*more) return std::optional<Reply>{};
        }
    }

    /// The reply to the command that was sent last. An error reply comes as a `Fault` too, but leaves
    /// the connection usable.
    Expected<Reply, Fault> receive(const Limit& limit) {
        if (auto drained = drain(limit); !drained) {
            return Unexpected{std::move(drained).error()};
        }
        return receive_next(limit);
    }

    /// Waits until so many replicas have what was written on this connection, or so many as there are
    /// just now. Says in `taken`, the answer to what was written, how many have it when the time is
    /// almost over.
    Expected<Reply, Fault> wait_for(Replicas replicas, Reply taken, const Limit& limit) {
        auto wanted = count_of(replicas, limit);
        if (!wanted) return Unexpected{std::move(wanted).error()};
        taken.replicas_wanted = *wanted;
        if (*wanted == 0) return taken;
        auto reply = call(Call::wait_for_replicas(*wanted, limit.left()).wire(), limit);
        if (reply) taken.replicas = reply->view().integer().value_or(0);
        if (reply || (limit.over() && !limit.cancelled())) return taken;
        return Unexpected{std::move(reply).error()};
    }

private:
    /// Passes a pending answer on, and learns from it what one that is awaited tells. False where it was the answer
    /// to something else.
    bool take_pending(Expected<Reply, Fault> reply) {
        const PendingReplies::Taken taken = pending_.take(std::move(reply));
        const LeftCommand& left = taken.of;
        if (taken.time) clock_.answered(left.sent, *taken.time, Clock::now());
        if (left.script != nullptr && taken.kind == ReplyKind::value) note_run(left.script);
        if (taken.kind == ReplyKind::unknown_script) std::erase(scripts_run_, left.script);
        return !taken.is_misplaced;
    }

    Expected<std::int64_t, Fault> count_of(Replicas replicas, const Limit& limit) {
        if (replicas != Replicas::all()) return std::int64_t{replicas.count()};
        auto reply = call(Call::plain({"INFO", "replication"}).wire(), limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        return replicas_in(reply->view());
    }

    /// False where nothing is there. `block`: it waits in `recv` first, for `blocking_receive` at most, or until a
    /// signal.
    Expected<bool, Fault> read_there(std::span<char> buffer, bool block = false) {
        const ssize_t n = read_bytes(buffer, block);
        if (n > 0) {
            auto fed = feed({buffer.data(), static_cast<std::size_t>(n)});
            return fed ? Expected<bool, Fault>{true} : Unexpected{std::move(fed).error()};
        }
        if (n == 0) return Unexpected{broken(io_fault("the server closed the connection"))};
        if (errno == EAGAIN || errno == EINTR) return false;
        return Unexpected{failed("receive: ")};
    }

    Expected<Reply, Fault> receive_next(const Limit& limit) {
        for (;;) {
            void* raw = nullptr;
            if (redisReaderGetReply(context_->reader, &raw) != REDIS_OK) {
                return close(unreadable(), true);
            }
            if (raw != nullptr) return checked(Reply{raw});
            auto more = read_some(limit);
            // Where bytes come one after the other, it never waits, and looks at no stop token.
            if (more && limit.cancelled()) more = Unexpected{cancelled_fault()};
            if (!more) return close(std::move(more).error(), true);
        }
    }

    /// No reply to a command of ours is near this; a server that sends more is not Redis.
    static constexpr std::size_t largest_reply = std::size_t{1} << 20U;

    static Fault broken(Fault fault) {
        fault.disconnected = true;
        return fault;
    }

    static Fault garbage(std::string message) {
        return {.error = make_error(Errc::protocol, std::move(message)), .transient = false};
    }

    /// hiredis can make no reply of what came.
    Fault unreadable() const {
        const redisReader& reader = *context_->reader;
        if (reader.err != REDIS_ERR_OOM)
            return garbage(std::string{reader.errstr} + " (is that a Redis server?)");
        return garbage("a reply that is too large or too deep, or no memory for it");
    }

    Unexpected<Fault> close(Fault fault, bool maybe_executed) {
        context_.reset();
        fault.error.node = node_;
        fault.maybe_executed = maybe_executed;
        pending_.fail(fault);
        return Unexpected{std::move(fault)};
    }

    /// Waits until something has come, and reads it: awake first, then in one `recv`, then by `poll`. True, or a fault.
    Expected<bool, Fault> read_some(const Limit& limit) {
        std::array<char, std::size_t{16} * 1024> buffer;
        if (busy_wait_ > busy_wait_.zero()) {
            const TimePoint asleep_at = std::min(Clock::now() + busy_wait_, limit.at);
            while (Clock::now() < asleep_at) {
                if (auto read = read_there(buffer); !read || *read) return read;
                std::this_thread::yield();  // the server may be waiting for this core
            }
        }
        const bool block = limit.left() > blocking_receive;
        // A stream is asked first: it may keep bytes that its socket has already given away.
        if (block || stream_ != nullptr) {
            if (auto read = read_there(buffer, block); !read || *read) return read;
        }
        for (;;) {
            if (auto ready = wait_ready(context_->fd, awaited(POLLIN), limit); !ready) {
                return Unexpected{std::move(ready).error()};
            }
            if (auto read = read_there(buffer); !read || *read) return read;
        }
    }

    ssize_t write_some(std::string_view bytes) {
        if (stream_ != nullptr) return stream_->write(bytes);
        // MSG_NOSIGNAL: a server that went away must not kill the process with SIGPIPE.
        return ::send(context_->fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }

    ssize_t read_bytes(std::span<char> buffer, bool block) {
        if (stream_ != nullptr) return stream_->read(buffer, block);
        return ::recv(context_->fd, buffer.data(), buffer.size(), block ? 0 : MSG_DONTWAIT);
    }

    /// What to wait for before a read (POLLIN) or a write (POLLOUT) can go on.
    short awaited(short direction) const noexcept {
        if (stream_ == nullptr) return direction;
        return direction == POLLIN ? stream_->read_awaits() : stream_->write_awaits();
    }

    /// After an operation that failed.
    Fault failed(const char* operation) const {
        return broken(stream_ != nullptr ? stream_->fault()
                                         : io_fault(operation + system_message(errno)));
    }

    /// A server that turns a client away says why and hangs up, before it has read anything: its words, if
    /// they are there, tell more than that it hung up.
    Fault last_words(Fault fault) {
        if (heard_) return fault;         // it is the answer to what was sent before
        std::array<char, 4096> buffer{};  // protected mode has a whole page to say
        const ssize_t n = read_bytes(buffer, false);
        void* raw = nullptr;
        const bool says_why = n < 0 && stream_ != nullptr && errno == EPROTO;
        if (says_why) return failed("receive: ");
        if (n <= 0 || !feed({buffer.data(), static_cast<std::size_t>(n)}) ||
            redisReaderGetReply(context_->reader, &raw) != REDIS_OK || raw == nullptr) {
            return fault;
        }
        if (auto said = checked(Reply{raw}); !said) {
            fault.transient = said.error().transient;
            fault.error = std::move(said).error().error;
            fault.from_server = true;
        }
        return fault;
    }

    Expected<void, Fault> feed(std::string_view bytes) {
        heard_ = true;
        redisReader* const reader = context_->reader;
        if (redisReaderFeed(reader, bytes.data(), bytes.size()) != REDIS_OK) {
            return Unexpected{garbage(reader->errstr)};
        }
        if (reader->len - reader->pos > largest_reply) {
            return Unexpected{garbage("a reply of more than 1 MiB")};
        }
        return {};
    }

    /// A log that gets a line of each try has room for so much of what a peer says.
    static std::string shown(std::string_view words) {
        constexpr std::size_t longest = 2048;  // two names of a lock, and what is said of them
        std::string text = printable(words.substr(0, longest));
        if (words.size() > longest) text += "...";
        return text;
    }

    Expected<Reply, Fault> checked(Reply reply) {
        if (!reply.view().is_error()) return reply;
        const std::string_view text = reply.view().text();
        auto [code, transient] = classify_server_error(text);
        if (handshake_ == "AUTH" && code == Errc::protocol) code = Errc::denied;
        std::string message =
            handshake_.empty() ? shown(plain_words(text)) : without_quotation(text, handshake_);
        const bool is_log_in = handshake_ == "AUTH" || text.starts_with("NOAUTH");
        const bool is_protected = text.starts_with("DENIED");
        return Unexpected{
            Fault{.error = make_error(code, std::move(message), node_),
                  .transient = transient,
                  .from_server = true,
                  .refuses_log_in = is_log_in && code == Errc::denied,
                  .refuses_client = (is_log_in || is_protected) && code == Errc::denied}};
    }

    std::unique_ptr<redisContext, FreeBoundedContext> context_;
    std::unique_ptr<Stream> stream_;  // null where the socket itself carries the bytes
    std::string node_;
    std::shared_ptr<const std::string> server_;
    std::optional<TimePoint> started_by_;
    ServerClock clock_;
    std::chrono::microseconds busy_wait_{0};
    std::vector<const Script*> scripts_run_;
    PendingReplies pending_;
    unsigned epoch_ = 0;
    bool heard_ = false;          // anything
    bool is_asked_ = false;       // somebody waits for an answer
    std::string_view handshake_;  // what is answered next, while the answer may quote a password
};

}  // namespace redlatch::inline v0::detail
