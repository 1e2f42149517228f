#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/server_error.hpp>

#include <functional>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What kind of reply it is to a command whose answers have this `shape`.
inline ReplyKind kind_of(const Expected<Reply, Fault>& reply, Answer shape) {
    if (!reply) return kind_of(reply.error());
    return reply->view().fits(shape) ? ReplyKind::value : ReplyKind::misshapen;
}

/// Gets the answer to a command that its sender did not wait for, or the fault that it met. Called
/// once, on any thread, with no mutex held.
using Awaiting = std::function<void(const Expected<Reply, Fault>&)>;

/// The answers that a server still owes on one connection, in the order in which they will come.
/// Whoever awaits one is told of a fault at the latest when this goes.
class Owed {
public:
    Owed() = default;
    Owed(Owed&& other) noexcept : entries_(std::exchange(other.entries_, {})) {}
    Owed& operator=(Owed&& other) noexcept {
        entries_.swap(other.entries_);
        return *this;
    }
    ~Owed() {
        if (!empty()) fail({.error = {Errc::unavailable, {}, {}, "the connection was closed", {}}});
    }

    bool empty() const noexcept { return entries_.empty(); }

    /// When the command was sent whose answer is next.
    TimePoint since() const noexcept { return entries_.front().since; }

    void add(Command command, Answer answer, TimePoint now, Awaiting awaiting) {
        command.leave();
        entries_.push_back({command, answer, now, std::move(awaiting)});
    }

    /// Passes on the answer that came next. False where what comes next is the answer to something
    /// else.
    bool settle(Expected<Reply, Fault> reply) {
        Entry entry = take_first();
        const CommandStep step = entry.command.answered(kind_of(reply, entry.answer));
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
        Answer answer;
        TimePoint since;
        Awaiting awaiting;

        void pass_on(Expected<Reply, Fault> reply) const {
            if (!reply) reply.error().maybe_executed = command.unclear();
            awaiting(reply);
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
