#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/master_sets.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// Which of several masters may have a token, and which have not answered for it yet. Shared by the holds
/// of one token and by the answers that come late. Thread-safe.
class TokenAtMasters {
public:
    /// The lock was asked for.
    void attempted(const MasterSets& reached) noexcept {
        asked_ |= reached.asked;
        unsettled_ += std::popcount(reached.late);
    }

    /// An answer to that has come late.
    void settled() noexcept { --unsettled_; }

    std::uint64_t asked() const noexcept { return asked_.load(); }
    bool was_asked(std::size_t master) const noexcept { return ((asked() >> master) & 1U) != 0; }
    /// How many answers are still to come.
    std::int64_t unsettled() const noexcept { return unsettled_.load(); }
    bool all_settled() const noexcept { return unsettled() == 0; }

private:
    std::atomic<std::uint64_t> asked_{0};
    std::atomic<std::int64_t> unsettled_{0};
};

/// What is left open of a token's tries when it has got the lock. Goes with the hold, and over to the next
/// hold of the same token.
struct OpenTries {
    bool unclear =
        false;  ///< one got no answer: the server may carry it out even after the release
    std::shared_ptr<TokenAtMasters> at_masters{};  ///< null where one master decides
    std::chrono::milliseconds longest{0};          ///< what those before asked for at most

    /// Whether the server may carry one of them out after the release.
    bool may_be_carried_out() const noexcept {
        return unclear || (at_masters != nullptr && !at_masters->all_settled());
    }

    /// Of several masters, those that may have the lock; zero where one decides.
    std::uint64_t masters() const noexcept {
        return at_masters == nullptr ? 0 : at_masters->asked();
    }
    bool may_be_at(std::size_t master) const noexcept {
        return at_masters == nullptr || at_masters->was_asked(master);
    }
};

/// How many tries were sent with a token, one after the other by callers of this process, and up to
/// which one they are answered. Those who asked may have wanted the lock for different times.
struct TriesOfToken {
    std::uint64_t sent = 0;
    std::uint64_t answered = 0;
    std::chrono::milliseconds longest{0};  ///< the time to live that they asked for at most
};

/// What one token may have at the server, or at each of several masters, while it asks for a lock, as
/// far as its client can know:
///
/// - *nothing*;
/// - *a place* in the queue, or maybe one: a try that asked for it got no answer. A grant can come;
///   a waiter that gives up has to leave the queue, or to pass the place on;
/// - *the lock*.
///
/// Independently of that, it is *unclear* once a try got no answer: the server may carry that out at
/// any time. And it is *dead* once the lock came too late, or has to be given back: it is never asked with
/// again. The state alone says what has to be released when nobody asks with the token any more.
class TokenState {
public:
    using Milliseconds = std::chrono::milliseconds;

    explicit TokenState(std::string token, bool several_masters = false)
        : token_(std::move(token)),
          at_masters_(several_masters ? std::make_shared<TokenAtMasters>() : nullptr) {}

    /// A token with a place that another waiter of this process has passed on.
    static TokenState with_place(std::string token, bool unclear, const TriesOfToken& tries = {}) {
        TokenState state{std::move(token)};
        state.queued_ = true;
        state.unclear_ = unclear;
        state.tries_ = tries;
        return state;
    }

    const std::string& token() const noexcept { return token_; }
    bool queued() const noexcept { return queued_; }
    bool unclear() const noexcept { return unclear_; }
    bool dead() const noexcept { return dead_; }

    /// Null where one master decides.
    const std::shared_ptr<TokenAtMasters>& at_masters() const noexcept { return at_masters_; }

    /// What outlives this.
    OpenTries open_tries() const {
        return {.unclear = unclear_, .at_masters = at_masters_, .longest = tries_.longest};
    }

    /// Whether the place is worth keeping for another waiter.
    bool can_pass_place_on() const noexcept { return queued_ && !dead_; }

    /// For how long the next try asks to keep a place if the lock is refused; negative to give it
    /// up, zero to leave things as they are. `presence_ttl` is how long the waiter may be unheard of.
    Milliseconds queue_ttl(bool last, bool has_waiters, Milliseconds presence_ttl) const noexcept {
        if (!last || (queued_ && has_waiters)) return presence_ttl;
        return Milliseconds{queued_ ? -1 : 0};
    }

    /// A try is sent, which asks for so long, or was answered.
    void asks(Milliseconds ttl) noexcept {
        ++tries_.sent;
        tries_.longest = std::max(tries_.longest, ttl);
    }
    void answered() noexcept { tries_.answered = tries_.sent; }
    const TriesOfToken& tries() const noexcept { return tries_; }

    /// A try has got so far at several masters. The next call tells its answer, or that it failed.
    void attempted(const MasterSets& reached) noexcept {
        if (at_masters_ == nullptr) return;
        at_masters_->attempted(reached);
        has_votes_ = (reached.unanswered() | reached.agreed) != 0;
        unanswered_ = unanswered_ || reached.unanswered() != 0;
    }

    /// The lock was refused. `place` is how many wait in front, negative without a place. Votes that some
    /// masters gave all the same are needed by others: the token dies.
    void refused(std::int64_t place) noexcept {
        queued_ = place >= 0;
        has_lock_ = false;
        if (has_votes_) die();
    }

    /// With a place, the answer is also what a grant will be measured by.
    void refused(std::int64_t place, ClockSample sample) {
        refused(place);
        sample_ = std::move(sample);
    }

    /// The lock is ours.
    void acquired() noexcept {
        queued_ = false;
        has_lock_ = true;
    }

    /// The lock is of no use to anybody, or has to be given back: the end of the token.
    void die() noexcept {
        dead_ = true;
        unclear_ = true;
    }

    /// A try with `queue_ttl` failed; it may have been, or may yet be, carried out.
    void failed(Milliseconds queue_ttl, bool maybe_executed) noexcept {
        if (has_votes_) die();
        if (!maybe_executed) return;
        unclear_ = true;
        if (queue_ttl > Milliseconds::zero()) queued_ = true;
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

    /// A try that was given up was answered "yours": from when on the lock is ours. Nothing where a later try was
    /// answered otherwise, and one more has to tell.
    std::optional<TimePoint> answered_late(std::string_view token,
                                           const AbandonedTry& late) const noexcept {
        if (dead_ || token != token_ || late.number <= tries_.answered) return std::nullopt;
        return late.sent;
    }

    /// Whether votes have to be given back at once, to several masters, when nobody asks with the token
    /// any more: others need them, and so does our own next try.
    bool has_votes_to_return() const noexcept {
        return at_masters_ != nullptr && clean_up().needed();
    }

    /// The token's release has got so far.
    void votes_returned(const MasterSets& reached) noexcept {
        all_returned_ = !unanswered_ && (at_masters_->asked() & ~reached.heard_of()) == 0;
    }

    /// What has to be released when nobody asks with the token any more.
    CleanUp clean_up() const noexcept {
        const bool may_have = queued_ || has_lock_ || unclear_;
        return after_abandoned_try(may_have && !all_returned_, unclear_);
    }

private:
    std::string token_;
    std::shared_ptr<TokenAtMasters> at_masters_;
    std::optional<ClockSample> sample_;
    TriesOfToken tries_{};
    bool queued_ = false;
    bool has_lock_ = false;
    bool unclear_ = false;
    bool dead_ = false;
    bool has_votes_ = false;  // of the last try: some of several masters have, or may have, done it
    bool unanswered_ = false;    // one of them has been asked with this token and has not answered
    bool all_returned_ = false;  // they have all heard of its release
};

}  // namespace redlatch::inline v0::detail
