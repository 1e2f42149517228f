#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/server_error.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
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

/// The answers that a server still owes on one connection, in the order in which they will come.
/// Whoever awaits one is told of a fault at the latest when this goes.
class PendingReplies {
public:
    PendingReplies() = default;
    PendingReplies(PendingReplies&& other) noexcept : entries_(std::exchange(other.entries_, {})) {}
    PendingReplies& operator=(PendingReplies&& other) noexcept {
        entries_.swap(other.entries_);
        return *this;
    }
    ~PendingReplies() {
        if (!empty()) fail({.error = {Errc::unavailable, {}, {}, "the connection was closed", {}}});
    }

    bool empty() const noexcept { return entries_.empty(); }

    /// When the command was sent whose answer is next.
    TimePoint since() const noexcept { return entries_.front().since; }

    /// `about`: an address that all commands about the same thing have; may be null.
    void expect(Command command, ReplyShape shape, TimePoint now, ReplyCallback callback,
                const void* about = nullptr) {
        command.leave();
        entries_.push_back({command, shape, now, std::move(callback), about});
    }

    /// How many of them are about that.
    std::ptrdiff_t count(const void* about) const noexcept {
        return std::count_if(entries_.begin(), entries_.end(),
                             [about](const Entry& entry) { return entry.about == about; });
    }

    /// Passes on the answer that came next. False where what comes next is the answer to something
    /// else.
    bool take(Expected<Reply, Fault> reply) {
        Entry entry = take_first();
        const CommandStep step = entry.command.answered(kind_of(reply, entry.shape));
        if (step.drop_connection) reply = Unexpected{unexpected_reply()};
        entry.pass_on(std::move(reply));
        return !step.drop_connection;
    }

    /// There will be no answers.
    void fail(const Fault& fault) {
        while (!empty()) {
            Entry entry = take_first();
            entry.command.failed({.disconnected = fault.disconnected, .maybe_executed = true});
            entry.pass_on(Unexpected{fault});
        }
    }

private:
    struct Entry {
        Command command;
        ReplyShape shape;
        TimePoint since;
        ReplyCallback callback;
        const void* about;

        void pass_on(Expected<Reply, Fault> reply) const {
            if (!reply) reply.error().maybe_executed = command.unclear();
            callback(reply);
        }
    };

    Entry take_first() {
        Entry first = std::move(entries_.front());
        entries_.erase(entries_.begin());
        return first;
    }

    std::vector<Entry> entries_;
};

}  // namespace redlatch::inline v0::detail
