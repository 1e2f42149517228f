#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/script.hpp>
#include <redlatch/net/server_error.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What kind of reply it is to a command whose answers have this `shape`.
inline ReplyKind kind_of(const Expected<Reply, Fault>& reply, ReplyShape shape) {
    if (!reply) return kind_of(reply.error());
    return reply->view().fits(shape) ? ReplyKind::value : ReplyKind::misshapen;
}

/// Gets the answer to a command that its sender did not wait for, or the fault that it met. Called
/// once, on any thread, with no mutex held.
using ReplyCallback = std::function<void(const Expected<Reply, Fault>&)>;

/// A command whose answer its sender does not wait for.
struct LeftCommand {
    Command command;
    ReplyShape shape;
    TimePoint sent;
    const Script* script;  ///< what it runs; null for none
};

/// The time that a server tells in a reply of this `shape`, or in an error.
inline std::optional<std::chrono::microseconds> time_in(const Expected<Reply, Fault>& reply,
                                                        ReplyShape shape) {
    return reply ? reply->view().time(shape) : late_reply_time(reply.error());
}

/// The answers that a server still owes on one connection, in the order in which they will come.
/// A caller that awaits one is told of a fault at the latest when this goes.
class PendingReplies {
public:
    PendingReplies() = default;
    PendingReplies(PendingReplies&& other) noexcept
        : entries_(std::exchange(other.entries_, {})), taken_(std::exchange(other.taken_, 0)) {}
    PendingReplies& operator=(PendingReplies&& other) noexcept {
        entries_.swap(other.entries_);
        std::swap(taken_, other.taken_);
        return *this;
    }
    ~PendingReplies() {
        if (!empty()) fail({.error = make_error(Errc::unavailable, "the connection was closed")});
    }

    bool empty() const noexcept { return taken_ == entries_.size(); }

    /// When the sender of the command whose answer is next left it.
    TimePoint since() const noexcept { return next()->since; }

    /// `about`: an address that all commands about the same thing have; may be null.
    void expect(LeftCommand left, TimePoint now, ReplyCallback callback, const void* about) {
        left.command.leave();
        entries_.push_back({left, now, std::move(callback), about});
    }

    /// How many of them are about that.
    std::ptrdiff_t count(const void* about) const noexcept {
        return std::count_if(next(), entries_.end(),
                             [about](const Entry& entry) { return entry.about == about; });
    }

    /// What an answer tells of the server.
    struct Taken {
        LeftCommand of;
        ReplyKind kind;
        std::optional<std::chrono::microseconds> time;  ///< that the server's clock has shown
        bool is_misplaced;  ///< it, or what comes next, is the answer to something else
    };

    /// Passes on the answer that came next.
    Taken take(Expected<Reply, Fault> reply) {
        Entry entry = take_first();
        const ReplyKind kind = kind_of(reply, entry.left.shape);
        const auto time = time_in(reply, entry.left.shape);
        const CommandStep step = entry.left.command.answered(kind);
        if (step.drop_connection) reply = Unexpected{unexpected_reply()};
        entry.pass_on(std::move(reply));
        return {entry.left, kind, time, step.drop_connection};
    }

    /// There will be no answers.
    void fail(const Fault& fault) {
        while (!empty()) {
            Entry entry = take_first();
            entry.left.command.failed({.disconnected = fault.disconnected, .maybe_executed = true});
            entry.pass_on(Unexpected{fault});
        }
    }

private:
    struct Entry {
        LeftCommand left;
        TimePoint since;
        ReplyCallback callback;
        const void* about;

        void pass_on(Expected<Reply, Fault> reply) const {
            if (!reply) reply.error().maybe_executed = left.command.unclear();
            callback(reply);
        }
    };

    std::vector<Entry>::const_iterator next() const noexcept {
        return entries_.begin() + static_cast<std::ptrdiff_t>(taken_);
    }

    /// Those that are taken stay until they are half of all, as to erase one moves all behind it.
    Entry take_first() {
        Entry first = std::move(entries_[taken_++]);
        if (2 * taken_ >= entries_.size()) {
            entries_.erase(entries_.begin(), next());
            taken_ = 0;
        }
        return first;
    }

    std::vector<Entry> entries_;
    std::size_t taken_ = 0;  // of these
};

}  // namespace redlatch::inline v0::detail
