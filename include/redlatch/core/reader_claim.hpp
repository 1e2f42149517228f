#pragma once

#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/token_state.hpp>
#include <redlatch/core/validity.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The claim of a reader at the server, and the readers of this process that go on with it: each has a hold of its
/// own with the claim's token. The last one of them releases it. Guarded by the lock table's mutex.
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
          readers_{first} {}

    const Token& token() const noexcept { return token_; }

    std::vector<std::shared_ptr<Hold>> readers() const {
        std::vector<std::shared_ptr<Hold>> holds;
        for (const auto& reader : readers_) {
            if (auto hold = reader.lock()) holds.push_back(std::move(hold));
        }
        return holds;
    }

    /// The hold of one that is alone with it; null where there are several.
    std::shared_ptr<Hold> only_reader() const noexcept {
        return readers_.size() == 1 ? readers_.front().lock() : nullptr;
    }

    /// Whether the last reader has left: then its token is nobody's any more.
    bool is_over() const noexcept { return readers_.empty(); }

    /// Whether a reader with these terms may go on with it, if nobody waits.
    bool serves(const HoldTerms& terms, TimePoint now) const noexcept {
        return is_open_ && !is_over() && terms_.same_at_server(terms) &&
               now < valid_until(refreshed_, terms_.lease, terms_.drift);
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

    /// The server has it no more: no further reader joins.
    void close() noexcept { is_open_ = false; }

    /// One more reader, whose hold was made with the token. Returns the one that was alone until now, if one was.
    std::shared_ptr<Hold> join(const std::shared_ptr<Hold>& hold, TimePoint now) {
        readers_.push_back(hold);
        hold->open_tries = open_tries_;
        hold->fence = fence_;
        hold->taken(now, refreshed_);
        return readers_.size() == 2 ? readers_.front().lock() : nullptr;
    }

    /// The hold has ended. The last one knows what the others have left at the server.
    void leave(Hold& hold) noexcept {
        const auto is_it = [&hold](const auto& reader) { return reader.lock().get() == &hold; };
        if (std::erase_if(readers_, is_it) == 0) return;
        last_end_ = std::max(last_end_, hold.valid_until());
        const bool may_be_under_way = hold.renewed_by_watchdog || hold.extended;
        if (hold.may_be_prolonged || (may_be_under_way && !is_over())) may_be_prolonged();
        const bool lasts_longer = may_be_prolonged_ || last_end_ > hold.valid_until();
        if (is_over() && lasts_longer) hold.may_be_prolonged = true;
    }

private:
    HoldTerms terms_;
    Token token_;
    OpenTries open_tries_;
    std::uint64_t fence_;
    TimePoint refreshed_;  // when the last command went out that gave it its lease
    TimePoint news_;       // when the last one did that told of waiters
    bool others_wait_;
    bool is_open_ = true;
    bool may_be_prolonged_ = false;
    TimePoint last_end_ =
        TimePoint::min();  // of what it was extended to, and of those that have left
    std::vector<std::weak_ptr<Hold>> readers_;  // the lock table owns them
};

}  // namespace redlatch::inline v0::detail
