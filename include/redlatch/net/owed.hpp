#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/net/reply.hpp>

#include <functional>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

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

    void add(Answer answer, TimePoint now, Awaiting awaiting) {
        entries_.push_back({answer, now, std::move(awaiting)});
    }

    /// Passes on the answer that came next. False where it has another shape: then it was the answer
    /// to something else, and so will be those to come.
    bool settle(Expected<Reply, Fault> reply) {
        const Entry entry = std::move(entries_.front());
        entries_.erase(entries_.begin());
        const bool fits = !reply || reply->view().fits(entry.answer);
        if (!fits) reply = Unexpected{unexpected_reply()};
        entry.awaiting(reply);
        return fits;
    }

    /// There will be no answers.
    void fail(Fault fault) {
        fault.maybe_executed = true;
        while (!empty()) settle(Unexpected{fault});
    }

private:
    struct Entry {
        Answer answer;
        TimePoint since;
        Awaiting awaiting;
    };
    std::vector<Entry> entries_;
};

}  // namespace redlatch::inline v0::detail
