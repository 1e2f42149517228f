#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/core/validity.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The claim of a reader at the server, and the readers of this process that go on with it: each has a hold of its
/// own with the claim's token. The last one of them releases it. A claim that a reader has lost is kept for
/// its `lock_delay`, or until it ends its hold, as it may still be at work. Guarded by the lock table's
/// mutex.
class ReaderClaim {
public:
    /// `others_wait`: so said the server when it gave the claim to `first`.
    ReaderClaim(const std::shared_ptr<Hold>& first, bool others_wait)
        : terms_(first->terms()),
          token_(first->token()),
          open_tries_(first->open_tries),
          fence_(first->fence),
          refreshed_(first->refreshed_at()),
          news_(refreshed_),
          others_wait_(others_wait),
          readers_{{first}} {}

    const Token& token() const noexcept { return token_; }

    /// The hold of one that is alone with it; null where there are several.
    std::shared_ptr<Hold> only_reader() const noexcept {
        if (going_on_ != 1) return nullptr;
        const auto found = std::find_if(readers_.begin(), readers_.end(),
                                        [](const Reader& reader) { return !reader.has_lost; });
        return found->hold.lock();
    }

    /// Whether the last reader has left: then its token is nobody's any more.
    bool is_over() const noexcept { return going_on_ == 0; }

    /// Until when the server keeps it for those that have lost it, and may still be at work; long ago for nobody.
    TimePoint kept_until() const noexcept {
        TimePoint last = TimePoint::min();
        for (const Reader& reader : readers_) {
            if (reader.has_lost) last = std::max(last, reader.kept_until);
        }
        return last;
    }
    bool is_kept(TimePoint now) const noexcept { return now < kept_until(); }

    /// Whether nobody knows of it any more.
    bool is_forgotten() const noexcept {
        return std::all_of(readers_.begin(), readers_.end(),
                           [](const Reader& reader) { return reader.hold.expired(); });
    }

    /// Whether a reader with these terms may go on with it, if nobody waits.
    bool serves(const HoldTerms& terms, TimePoint now) noexcept {
        if (!is_open_ || is_over() || !terms_.same_at_server(terms)) return false;
        if (!lasts(now)) look_at_renewals();
        return lasts(now);
    }

    /// Whether the server has just said how many wait, so that nobody asks it now.
    bool has_news(TimePoint now) const noexcept {
        return may_pass_silently(refreshed_, news_, now, terms_.lease);
    }
    bool others_wait() const noexcept { return others_wait_; }

    /// The server was asked by a command that was sent then. It says whether others wait, and has extended the
    /// claim where nobody does.
    void answered(TimePoint sent, bool others_wait) noexcept {
        if (!others_wait) {
            const TimePoint end = valid_until(sent, terms_.lease, terms_.drift);
            last_end_ = std::max(last_end_, end);
            refreshed_ = std::max(refreshed_, sent);
        }
        if (sent < news_) return;
        news_ = sent;
        others_wait_ = others_wait;
    }

    /// The server may keep it for longer than its readers know of.
    void may_be_prolonged() noexcept { may_be_prolonged_ = true; }

    /// The server has it no more: no further reader joins. Returns the holds that went on with it, and have
    /// lost it.
    std::vector<std::shared_ptr<Hold>> close() {
        is_open_ = false;
        std::erase_if(readers_, [](const Reader& reader) { return reader.has_lost; });
        std::vector<std::shared_ptr<Hold>> holds;
        for (const Reader& reader : readers_) {
            if (auto hold = reader.hold.lock()) holds.push_back(std::move(hold));
        }
        return holds;
    }

    /// One more reader, whose hold was made with the token. Returns the one that was alone until now, if one was.
    std::shared_ptr<Hold> join(const std::shared_ptr<Hold>& hold, TimePoint now) {
        auto first = only_reader();
        readers_.push_back({hold});
        ++going_on_;
        hold->open_tries = open_tries_;
        hold->fence = fence_;
        hold->taken(now, refreshed_);
        return first;
    }

    /// The hold has ended. The last one knows what the others have left at the server.
    void leave(Hold& hold) noexcept {
        const auto reader = find(hold);
        if (reader == readers_.end() || reader->has_lost) return;
        --going_on_;
        last_end_ = std::max(last_end_, hold.valid_until());
        if (is_open_ && hold.in(Phase::lost) && hold.has_lock_delay()) {
            reader->has_lost = true;
            reader->kept_until = delay_over(hold.valid_until(), terms_.lock_delay, terms_.drift);
        } else {
            readers_.erase(reader);
        }
        const bool may_be_under_way = hold.renewed_by_watchdog || hold.extended;
        if (hold.may_be_prolonged || (may_be_under_way && !is_over())) may_be_prolonged();
        if (is_over()) tell_what_is_left(hold);
    }

    /// One that has lost it is not at work any more. True where it was the last that the server kept the claim for: the
    /// claim is to be released.
    bool end_lost(Hold& hold, TimePoint now) noexcept {
        leave(hold);  // of whose loss the table may not have heard yet
        const auto reader = find(hold);
        if (reader == readers_.end()) return false;
        readers_.erase(reader);
        if (!is_over() || is_released_ || is_kept(now)) return false;
        tell_what_is_left(hold);
        is_released_ = true;
        return true;
    }

    /// Its release goes out.
    void released() noexcept { is_released_ = true; }

    /// What to release after a vain join. Nothing where the claim's last reader releases it: a second release
    /// could come first, and that reader's would find nothing.
    CleanUp after_vain_join(bool unclear, TimePoint now) const noexcept {
        if (is_over() && is_kept(now)) return after_delayed_claim();
        return after_abandoned_try(is_over() && !is_released_, unclear);
    }

private:
    struct Reader {
        std::weak_ptr<Hold> hold;  // the lock table owns it
        bool has_lost = false;     // and has not ended it
        TimePoint kept_until{};    // for one that has lost it
    };

    bool lasts(TimePoint now) const noexcept {
        return now < valid_until(refreshed_, terms_.lease, terms_.drift);
    }

    /// A renewal's answer is noted in the holds that it is for, and nowhere else.
    void look_at_renewals() noexcept {
        for (const Reader& reader : readers_) {
            if (reader.has_lost) continue;
            if (const auto hold = reader.hold.lock()) {
                refreshed_ = std::max(refreshed_, hold->refreshed_at());
            }
        }
    }

    std::vector<Reader>::iterator find(const Hold& hold) noexcept {
        return std::find_if(readers_.begin(), readers_.end(), [&hold](const Reader& reader) {
            return reader.hold.lock().get() == &hold;
        });
    }

    void tell_what_is_left(Hold& hold) const noexcept {
        if (may_be_prolonged_ || last_end_ > hold.valid_until()) hold.may_be_prolonged = true;
    }

    HoldTerms terms_;
    Token token_;
    OpenTries open_tries_;
    std::uint64_t fence_;
    TimePoint refreshed_;  // when the last command that it knows of gave it its lease
    TimePoint news_;       // when the last one did that told of waiters
    bool others_wait_;
    bool is_open_ = true;
    bool is_released_ = false;
    bool may_be_prolonged_ = false;
    TimePoint last_end_ =
        TimePoint::min();  // of what it was extended to, and of those that have left
    std::size_t going_on_ = 1;
    std::vector<Reader> readers_;
};

/// Whether the token of a hold that has ended is still used.
inline bool is_used_by_others(const Hold& hold) noexcept {
    return hold.claim != nullptr && !hold.claim->is_over();
}

/// Whether to release what the server may have under the token of a hold that has ended. Not while other
/// readers use the token: then the last one of them sees to that.
inline bool may_clean_up(const Hold& hold) noexcept {
    if (!is_used_by_others(hold)) return true;
    hold.claim->may_be_prolonged();
    return false;
}

/// The server has the claim of that hold no more: all that went on with it have lost it.
inline std::vector<std::shared_ptr<Hold>> close_claim_of(const Hold& hold) {
    if (hold.claim == nullptr) return {};
    return hold.claim->close();
}

/// Whether the server is to keep the claim of the last reader for others, who have lost it and may be at
/// work.
inline bool is_kept_for_others(const Hold& hold, TimePoint now) noexcept {
    if (hold.claim == nullptr) return false;
    if (hold.claim->is_kept(now)) return true;
    hold.claim->released();
    return false;
}

}  // namespace redlatch::inline v0::detail
