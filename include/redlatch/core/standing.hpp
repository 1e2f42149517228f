#pragma once

#include <redlatch/core/grant.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// How a token stands at the server while it asks for a lock, as far as its client can know:
///
/// - *fresh*: the server has nothing under it;
/// - *queued*: it has a place in the queue, or may have one, since a try that asked for it got no
///   answer. A grant can come; whoever gives up has to leave the queue, or to bequeath the place;
/// - *dead*: a release of it has been or will be sent, so it is never asked with again.
///
/// Independently of that, it is *unclear* once a try got no answer: the server may carry that out
/// at any time, so a release is sent once more after a pause. Knows no server and reads no clock.
class Standing {
public:
    using Milliseconds = std::chrono::milliseconds;

    explicit Standing(std::string token) : token_(std::move(token)) {}

    /// A place that another thread of this process has left behind.
    static Standing inherited(std::string token, bool unclear) {
        Standing standing{std::move(token)};
        standing.queued_ = true;
        standing.unclear_ = unclear;
        return standing;
    }

    const std::string& token() const noexcept { return token_; }
    bool queued() const noexcept { return queued_; }
    bool unclear() const noexcept { return unclear_; }
    bool dead() const noexcept { return dead_; }

    /// Whether the place is worth keeping for another thread.
    bool can_be_bequeathed() const noexcept { return queued_ && !dead_; }

    /// Whether the server may have, or get, something that has to be taken back.
    bool must_be_released() const noexcept { return queued_ || unclear_; }

    /// For how long the next try asks to keep a place if the lock is refused; negative to give it
    /// up, zero to leave things as they are. `silence` is how long the waiter may be unheard of.
    Milliseconds stay(bool last, bool has_heirs, Milliseconds silence) const noexcept {
        if (!last || (queued_ && has_heirs)) return silence;
        return Milliseconds{queued_ ? -1 : 0};
    }

    /// A try with `stay` was answered. A refusal's `place` is how many wait in front, negative
    /// without a place.
    void refused(std::int64_t place) noexcept { queued_ = place >= 0; }

    /// With a place, the answer is also what a grant will be measured by.
    void refused(std::int64_t place, ClockSample sample) {
        refused(place);
        sample_ = std::move(sample);
    }

    /// The lock is ours.
    void taken() noexcept { queued_ = false; }

    /// The lock is ours and no use to anybody, or given back: the end of the token.
    void die() noexcept {
        dead_ = true;
        unclear_ = true;
    }

    /// A try with `stay` failed; it may have been, or may yet be, carried out.
    void failed(Milliseconds stay, bool maybe_executed) noexcept {
        if (!maybe_executed) return;
        unclear_ = true;
        if (stay > Milliseconds::zero()) queued_ = true;
    }

    /// An answer came, but an earlier sending of the same try may be carried out as well; or the lock is
    /// ours and does not count yet.
    void repeated() noexcept { unclear_ = true; }

    /// From when on the lock is ours, by a message that arrived at `arrived`; nothing where one more
    /// try has to tell.
    std::optional<TimePoint> granted(const Grant& grant, TimePoint arrived,
                                     double drift_factor) const {
        if (dead_ || !queued_ || grant.token != token_ || !sample_) return std::nullopt;
        return granted_at(*sample_, grant, arrived, drift_factor);
    }

private:
    std::string token_;
    std::optional<ClockSample> sample_;
    bool queued_ = false;
    bool unclear_ = false;
    bool dead_ = false;
};

}  // namespace redlatch::inline v0::detail
