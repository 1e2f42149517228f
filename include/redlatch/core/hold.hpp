#pragma once

#include <redlatch/core/claim_terms.hpp>
#include <redlatch/core/event_pair.hpp>
#include <redlatch/core/lock_owner.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/core/validity.hpp>
#include <redlatch/options.hpp>
#include <redlatch/policy/lock_keys.hpp>
#include <redlatch/policy/lock_policy.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

class ReaderClaim;

/// One owner's name for one acquisition, as the server stores it.
struct Token {
    std::string bytes;
};

/// What has become of an acquisition.
enum class Phase : std::uint8_t {
    acquiring,  ///< asked for
    held,       ///< ours; whether its validity still runs is a matter of the clock
    releasing,  ///< given up by the holder
    released,
    lost,  ///< over without a release
};

/// One acquisition inside a hold: the outermost, or a nested one.
struct Acquisition {
    std::uint64_t id;
    const void*
        through;  ///< the `LockImpl` whose `take()` or `try_take()` it was; null for a `Held`
    bool watched;
    bool reads = false;  ///< of a shared lock: for reading
};

/// The acquisitions of one hold. A list: the caller brings the place of its acquisition along, and allocates
/// nothing when that begins.
using Nest = std::list<Acquisition, RecyclingAllocator<Acquisition>>;

/// An acquisition that wants its hold to be renewed only until then (`max_hold`).
struct RenewalEnd {
    std::uint64_t acquisition = 0;
    TimePoint time = TimePoint::max();
};

/// What one acquisition needs to know about its lock; does not change while it lasts.
struct HoldTerms {
    std::shared_ptr<const LockKeys> keys;
    PolicyTraits traits;
    Lease lease;
    Drift drift;
    std::chrono::milliseconds lock_delay;
    std::chrono::milliseconds max_hold;
    Replicas replicas = Replicas::none();
    std::chrono::milliseconds min_hold{0};
    ClaimTerms claim{};
    std::string own_entry{};  ///< of the lock table, for a hold that others do not exclude
    bool joins = false;       ///< readers of this process with such terms may share one claim

    /// Under which name the lock table has it.
    const std::string& entry() const noexcept { return own_entry.empty() ? keys->lock : own_entry; }

    /// Whether the server can't tell a hold with these terms from one with those: how a hold is
    /// renewed, and when it has to end, is the client's own business.
    bool same_at_server(const HoldTerms& other) const noexcept {
        return traits.scripts == other.traits.scripts && traits.fenced == other.traits.fenced &&
               lease == other.lease && drift.factor == other.drift.factor &&
               drift.floor == other.drift.floor && lock_delay == other.lock_delay &&
               claim.weight == other.claim.weight;
    }
};

/// One lock as this process holds it, from the outermost acquisition to its end. Shared by its
/// holder, the lock table, the renewal and the notifier.
class Hold {
public:
    Hold(HoldTerms terms, Token token, LockOwner owner)
        : terms_(std::move(terms)), token_(std::move(token)), owner_(owner) {}
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { delete loss_.load(std::memory_order_acquire); }

    const std::string& key() const noexcept { return terms_.keys->lock; }
    const std::string& entry() const noexcept { return terms_.entry(); }
    const LockKeys& keys() const noexcept { return *terms_.keys; }
    const HoldTerms& terms() const noexcept { return terms_; }
    const Token& token() const noexcept { return token_; }
    LockOwner owner() const noexcept { return owner_; }
    const LockScripts& scripts() const noexcept { return *terms_.traits.scripts; }

    Phase phase() const noexcept { return phase_.load(); }
    bool in(Phase phase) const noexcept { return this->phase() == phase; }

    /// Goes from one phase to another; false where it is in a third one by now.
    bool advance(Phase from, Phase to) noexcept { return phase_.compare_exchange_strong(from, to); }

    /// The end of validity: what `held()` and `remaining()` compare the clock with.
    TimePoint valid_until() const noexcept {
        return time_of(valid_until_.load(std::memory_order_acquire));
    }
    /// The holder has ended it: it is neither held nor lost.
    bool is_given_up() const noexcept { return !in(Phase::held) && !in(Phase::lost); }
    bool valid(TimePoint now) const noexcept { return in(Phase::held) && now < valid_until(); }

    /// The same for an answer to the user, at the present time. Once a user was told that the hold is over, it stays
    /// over: the answer to a renewal that is just being counted comes too late.
    bool is_seen_valid(TimePoint now) const noexcept {
        if (!in(Phase::held)) return false;
        Clock::rep end = valid_until_.load(std::memory_order_acquire);
        while (!is_seen_over(end)) {
            if (now < time_of(end)) return true;
            if (valid_until_.compare_exchange_weak(end, end | seen_over)) return false;
        }
        return false;
    }

    /// When the hold ends whatever happens (`max_hold`).
    TimePoint last_end() const noexcept { return last_end_; }

    TimePoint taken_at() const noexcept { return taken_at_; }

    /// How much it takes of a lock with claims: a writer that was downgraded is a reader.
    std::int64_t weight() const noexcept {
        return reads_.load(std::memory_order_acquire) ? ClaimTerms::reader : terms_.claim.weight;
    }
    bool reads() const noexcept { return terms_.traits.shared && weight() == ClaimTerms::reader; }
    /// From now on it is for reading only.
    void downgrade() noexcept { reads_.store(true, std::memory_order_release); }

    /// The server gave the lock after `sent`, to a command that went out then or by a grant.
    void taken(TimePoint sent) noexcept { taken(sent, sent); }

    /// It is ours as of now, by a command of the hold before that went out after `sent`.
    void taken(TimePoint now, TimePoint sent) noexcept {
        taken_at_ = now;
        if (terms_.traits.watched) {
            last_end_ = saturating_add(now, saturating_cast<Clock::duration>(terms_.max_hold));
        }
        confirm(sent, terms_.lease);
        phase_.store(Phase::held, std::memory_order_release);
    }

    /// The server gave it the lock, as its first acquisition has it. Before it is shared. `unclear`: a
    /// command that asks for it may be carried out yet.
    void begin(const Acquisition& first, TimePoint sent, std::uint64_t its_fence, bool unclear) {
        open_tries.unclear = unclear;
        nest.push_back(first);
        fence = its_fence;
        taken(sent);
    }

    /// Somebody has the hold from `now` on: for `min_hold` nobody is to get the lock after it.
    void begin_min_hold(TimePoint now) noexcept {
        if (terms_.min_hold <= std::chrono::milliseconds::zero()) return;
        const auto length = saturating_cast<Clock::duration>(terms_.min_hold);
        kept_until_ = saturating_add(now, length).time_since_epoch().count();
    }

    /// Nobody has had it: its release frees the lock at once.
    void drop_min_hold() noexcept { kept_until_ = TimePoint::min().time_since_epoch().count(); }

    /// The lock may have moved to it from `other`, and is kept from all for as long.
    void keep_like(const Hold& other) noexcept { kept_until_ = other.kept_until_.load(); }

    /// Nobody has it before `delivered()`: until then its release frees the lock at once.
    void deliver_later() noexcept { delivered_.store(false, std::memory_order_relaxed); }
    void delivered() noexcept { delivered_.store(true, std::memory_order_relaxed); }
    bool is_delivered() const noexcept { return delivered_.load(std::memory_order_relaxed); }

    /// Until when its release leaves the lock to nobody; long ago without a `min_hold`.
    TimePoint kept_until() const noexcept {
        if (!is_delivered()) return TimePoint::min();
        return TimePoint{Clock::duration{kept_until_.load(std::memory_order_relaxed)}};
    }

    /// When the last command went out that gave the lock its full lease.
    TimePoint refreshed_at() const noexcept {
        return TimePoint{Clock::duration{refreshed_at_.load(std::memory_order_acquire)}};
    }

    /// The server confirmed `lease` to a command that went out after `sent`. Never shortens.
    void confirm(TimePoint sent, Lease lease) noexcept {
        const Clock::rep wanted = end_of(sent, lease);
        Clock::rep old = valid_until_.load(std::memory_order_relaxed);
        while (old < wanted && !valid_until_.compare_exchange_weak(old, wanted)) {
        }
        note_confirmed(sent, lease);
    }

    /// The same for an answer that may have come too late: a hold that was over once stays over, and
    /// false says that what the server has has to be released.
    bool confirm_in_time(TimePoint now, TimePoint sent, Lease lease) noexcept {
        const Clock::rep wanted = end_of(sent, lease);
        Clock::rep old = valid_until_.load(std::memory_order_acquire);
        do {
            if (!in(Phase::held) || is_seen_over(old) || now >= time_of(old)) return false;
        } while (!valid_until_.compare_exchange_weak(old, std::max(old, wanted)));
        note_confirmed(sent, lease);
        return in(Phase::held);
    }

    /// An extension is about to be sent, if the hold is valid, which is returned. The mark comes before that
    /// look: so a caller that goes on with the token after the hold's end knows that an extension may be
    /// under way.
    bool begin_extension(TimePoint now) noexcept {
        extended = true;
        return valid(now);
    }

    /// A renewal got no answer.
    void doubt() noexcept { uncertain_.store(true, std::memory_order_relaxed); }

    HoldState state(TimePoint now) const noexcept {
        switch (phase()) {
            case Phase::held: break;
            case Phase::lost: return HoldState::lost;
            default: return HoldState::none;
        }
        if (!is_seen_valid(now)) return HoldState::lost;
        return uncertain_.load(std::memory_order_relaxed) ? HoldState::uncertain : HoldState::held;
    }

    std::chrono::milliseconds remaining(TimePoint now) const noexcept {
        if (!is_seen_valid(now)) return std::chrono::milliseconds::zero();
        return std::chrono::floor<std::chrono::milliseconds>(saturating_sub(valid_until(), now));
    }

    /// How long the server is asked to keep the key for `lease`.
    std::int64_t server_ttl(Lease lease) const noexcept {
        return (lease.duration() + terms_.lock_delay).count();
    }

    /// For how long the server may have been asked to keep the key, by any caller with the token.
    std::chrono::milliseconds longest_ttl() const noexcept {
        const std::chrono::milliseconds own{server_ttl(terms_.lease)};
        return std::max(own, open_tries.longest);
    }

    /// The server keeps the lock for longer than the hold is valid.
    bool has_lock_delay() const noexcept { return terms_.lock_delay.count() > 0; }

    /// Fires at a loss. The caller has to see to it that somebody watches the clock for it.
    std::stop_token lost_token() { return loss().get_token(); }

    /// Whether anybody has asked for `lost_token`. A caller that asks after the loss sees that the hold is
    /// lost.
    bool loss_is_awaited() const noexcept { return loss_.load() != nullptr; }

    /// Tells everybody who asked for `lost_token`. Runs their callbacks: only on the notifier.
    void tell_lost() { loss().request_stop(); }

    /// Removes the innermost acquisition that matches, and returns it; nothing where none does. With the lock
    /// table's mutex.
    template <class Predicate>
    std::optional<Acquisition> take_acquisition(Predicate matches) {
        const auto found = std::find_if(nest.rbegin(), nest.rend(),
                                        [&](const Acquisition& a) { return matches(*this, a); });
        if (found == nest.rend()) return std::nullopt;
        const Acquisition taken = *found;
        nest.erase(std::next(found).base());
        return taken;
    }

    // Guarded by the lock table's mutex.
    Nest nest;

    /// Whether an acquisition nests in no other one.
    bool is_outermost(std::uint64_t id) const { return !nest.empty() && nest.front().id == id; }

    /// An acquisition that was delivered wants the hold to be renewed, as of now.
    void watch(std::uint64_t id) {
        for (Acquisition& acquisition : nest) {
            if (acquisition.id == id) acquisition.watched = true;
        }
    }

    // Likewise: a reader's claim that others of this process may go on with; null for any other hold.
    std::shared_ptr<ReaderClaim> claim;

    // Likewise: until when others may be at work who have lost its claim, and for whom its release waits.
    std::optional<TimePoint> left_until{};

    // Written by the acquiring thread before the hold is shared.
    OpenTries open_tries{};

    // Likewise: its fencing token; 0 without one.
    std::uint64_t fence = 0;

    /// The server may have the lock for longer than the validity tells: a command that makes it last
    /// longer got no answer, or an earlier waiter with the token has asked for more.
    std::atomic<bool> may_be_prolonged = false;

    /// An extension of it may be under way.
    std::atomic<bool> extended = false;

    /// Which commands with its token may be carried out after its release.
    Unanswered unanswered() const noexcept {
        return {.acquire = open_tries.may_be_carried_out(), .extend = may_be_prolonged};
    }

    // Guarded by the renewal's mutex: how many of its acquisitions want it to be renewed, which of them not for
    // ever, and whether it is.
    std::size_t watchers = 0;
    std::vector<RenewalEnd> renewal_ends;
    bool is_renewed = false;
    bool keys_are_apart =
        false;  ///< in two places as their slot moves, as its last renewal has found

    /// Likewise: until when the one that wants it for longest does.
    TimePoint renewed_until() const noexcept {
        if (watchers > renewal_ends.size()) return TimePoint::max();
        TimePoint last = TimePoint::min();
        for (const RenewalEnd& end : renewal_ends) last = std::max(last, end.time);
        return last;
    }

    /// Of its beginning and its end.
    EventPair events;

    // Which services know of the hold and have to be told of its end.
    std::atomic<bool> renewed_by_watchdog = false;
    std::atomic<bool> watched_by_notifier = false;

private:
    /// Made for the first caller that asks. Sequentially consistent with the phase: either the thread that
    /// asks sees the loss, or the thread that declares the loss sees that it was asked for.
    std::stop_source& loss() {
        std::stop_source* there = loss_.load();
        if (there != nullptr) return *there;
        auto made = std::make_unique<std::stop_source>();
        if (!loss_.compare_exchange_strong(there, made.get())) {
            return *there;  // another thread was faster
        }
        return *made.release();
    }

    // The end of validity is an even number of nanoseconds. An odd one says that somebody was told that it is over.
    static constexpr Clock::rep seen_over = 1;

    static bool is_seen_over(Clock::rep end) noexcept { return (end & seen_over) != 0; }
    static TimePoint time_of(Clock::rep end) noexcept {
        return TimePoint{Clock::duration{end & ~seen_over}};
    }
    Clock::rep end_of(TimePoint sent, Lease lease) const noexcept {
        const TimePoint end = std::min(detail::valid_until(sent, lease, terms_.drift), last_end_);
        return end.time_since_epoch().count() & ~seen_over;
    }
    void note_confirmed(TimePoint sent, Lease lease) noexcept {
        if (lease >= terms_.lease) advance_to(refreshed_at_, sent);
        uncertain_.store(false, std::memory_order_relaxed);
    }

    static void advance_to(std::atomic<Clock::rep>& at, TimePoint to) noexcept {
        const Clock::rep wanted = to.time_since_epoch().count();
        auto old = at.load(std::memory_order_relaxed);
        while (old < wanted && !at.compare_exchange_weak(old, wanted)) {
        }
    }

    const HoldTerms terms_;
    const Token token_;
    const LockOwner owner_;
    std::atomic<Phase> phase_{Phase::acquiring};
    mutable std::atomic<Clock::rep> valid_until_{TimePoint::min().time_since_epoch().count()};
    std::atomic<Clock::rep> refreshed_at_{TimePoint::min().time_since_epoch().count()};
    std::atomic<Clock::rep> kept_until_{TimePoint::min().time_since_epoch().count()};
    std::atomic<bool> uncertain_{false};
    std::atomic<bool> delivered_{true};
    std::atomic<bool> reads_{false};
    TimePoint taken_at_{};
    TimePoint last_end_ = TimePoint::max();
    std::atomic<std::stop_source*> loss_{nullptr};
};

}  // namespace redlatch::inline v0::detail
