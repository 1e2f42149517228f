#pragma once

#include <redlatch/clock.hpp>

#include <algorithm>

namespace redlatch::inline v0::detail {

/// What it means that nothing comes over a connection, on which commands go out without waiting for the
/// answers to those before: when it is given up, and whether a new one takes its place.
class Silence {
public:
    explicit Silence(Clock::duration command_timeout) noexcept
        : command_timeout_(command_timeout) {}

    /// There is a new connection. `lies_idle`: nobody wants it any more.
    void connected(TimePoint now, bool lies_idle) noexcept {
        answered_at_ = now;
        reused_ = lies_idle;
    }
    void disconnected() noexcept { reused_ = false; }

    /// `last`: no more answers are to come.
    void answered(TimePoint now, bool last) noexcept {
        answered_at_ = now;
        reused_ = last;
    }

    bool has_answered_since(TimePoint time) const noexcept { return answered_at_ > time; }

    /// Nothing has been heard from the server since its last answer, after which nothing was asked: it may
    /// have gone meanwhile.
    bool is_reused() const noexcept { return reused_; }

    /// When the connection is given up, unless an answer comes. Also where answers trickle in, slower than
    /// commands are added. `oldest`: when the command was written whose answer is next; for ever where none
    /// is.
    TimePoint gone_at(TimePoint oldest) const noexcept {
        const TimePoint silent_since = std::max(answered_at_, oldest);
        return std::min(saturating_add(silent_since, command_timeout_),
                        saturating_add(oldest, 3 * command_timeout_));
    }

    /// A command written at `written` got no answer in time. Whether to make a new connection for it; the old
    /// one counts until then.
    bool wants_replacement(TimePoint written, TimePoint now) const noexcept {
        return answered_at_ <= written && now >= replaceable_at_;
    }

    /// A new connection was to be made, from `begun` on. Whether the old one gives way to it. `made`: there
    /// is one. `owes`: answers are to come on the old one.
    bool gives_way(bool made, bool owes, TimePoint begun, TimePoint now) noexcept {
        replaceable_at_ = saturating_add(now, command_timeout_);
        return made && owes && answered_at_ < begun;
    }

private:
    const Clock::duration command_timeout_;
    TimePoint answered_at_ = TimePoint::min();  // or else connected
    TimePoint replaceable_at_ = TimePoint::min();
    bool reused_ = false;
};

}  // namespace redlatch::inline v0::detail
