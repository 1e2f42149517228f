#pragma once

#include <redlatch/core/hold.hpp>
#include <redlatch/core/reader_claim.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What the readers of each lock have in common in this process: the claims that they go on with, and the crowds in
/// which they wait for one. Guarded by the lock table's mutex.
class Readers {
public:
    // ---- Claims

    /// The one that the server gave last; null where none goes on.
    std::shared_ptr<ReaderClaim> last_claim(const std::string& lock) const {
        const auto found = locks_.find(lock);
        if (found == locks_.end()) return nullptr;
        const auto& claims = found->second.claims;
        const auto last = std::find_if(claims.rbegin(), claims.rend(),
                                       [](const auto& claim) { return !claim->is_over(); });
        return last == claims.rend() ? nullptr : *last;
    }

    /// Whether some go on with the claim of that token, or have lost it and not ended their hold.
    bool go_by(const std::string& lock, std::string_view token) const {
        const auto found = locks_.find(lock);
        if (found == locks_.end()) return false;
        const auto& claims = found->second.claims;
        return std::any_of(claims.begin(), claims.end(),
                           [token](const auto& claim) { return claim->token().bytes == token; });
    }

    /// The server gave a claim to `hold`, and others may go on with it. Without memory, nobody does.
    void open_claim(const std::shared_ptr<Hold>& hold, bool others_wait) noexcept {
        try {
            auto claim = std::make_shared<ReaderClaim>(hold, others_wait);
            auto& claims = locks_[hold->key()].claims;
            std::erase_if(claims, [](const auto& old) { return old->is_forgotten(); });
            claims.push_back(claim);
            hold->claim = std::move(claim);
        } catch (const std::bad_alloc&) {
            erase_if_unused(hold->key());
        }
    }

    /// The hold has ended, for whatever reason.
    void leave_claim(Hold& hold) noexcept {
        if (hold.claim == nullptr || hold.claim->is_over()) return;
        hold.claim->leave(hold);
        forget_if_unused(hold.claim, hold.key());
    }

    /// The holder has ended a hold that was lost before. True where the claim is to be released.
    bool end_lost(Hold& hold, TimePoint now) noexcept {
        if (hold.claim == nullptr) return false;
        const bool is_last = hold.claim->end_lost(hold, now);
        forget_if_unused(hold.claim, hold.key());
        return is_last;
    }

    // ---- Crowds: readers who wait for one claim, in one place at the server

    /// The entry of the lock table where readers with those terms wait. One more may come to it until `close_crowds`.
    const std::string& crowd_for(const HoldTerms& terms) {
        const std::string& lock = terms.keys->lock;
        auto& crowds = locks_[lock].crowds;
        for (const Crowd& crowd : crowds) {
            if (crowd.terms.same_at_server(terms)) return crowd.entry;
        }
        const std::string number = std::to_string(++crowds_made_);
        return crowds.emplace_back(Crowd{"redlatch:readers:" + number + ':' + lock, terms}).entry;
    }

    /// A writer of this process waits now. A reader that comes later waits behind it, in a new crowd.
    void close_crowds(const std::string& lock) noexcept {
        const auto found = locks_.find(lock);
        if (found == locks_.end()) return;
        found->second.crowds.clear();
        erase_if_unused(lock);
    }

    /// Nobody waits in that entry any more.
    void forget_crowd(const std::string& lock, const std::string& entry) noexcept {
        const auto found = locks_.find(lock);
        if (found == locks_.end()) return;
        std::erase_if(found->second.crowds,
                      [&entry](const Crowd& crowd) { return crowd.entry == entry; });
        erase_if_unused(lock);
    }

    bool is_empty() const noexcept { return locks_.empty(); }

private:
    struct Crowd {
        std::string entry;
        HoldTerms terms;
    };

    struct OfLock {
        std::vector<std::shared_ptr<ReaderClaim>> claims{};  // that somebody knows of
        std::vector<Crowd> crowds{};                         // that are not closed
    };

    void forget_if_unused(const std::shared_ptr<ReaderClaim>& claim,
                          const std::string& lock) noexcept {
        const auto found = locks_.find(lock);
        if (found == locks_.end() || !claim->is_forgotten()) return;
        std::erase(found->second.claims, claim);
        erase_if_unused(lock);
    }

    void erase_if_unused(const std::string& lock) noexcept {
        const auto found = locks_.find(lock);
        if (found == locks_.end()) return;
        if (found->second.claims.empty() && found->second.crowds.empty()) locks_.erase(found);
    }

    std::unordered_map<std::string, OfLock> locks_;  // by their keys
    std::uint64_t crowds_made_ = 0;
};

}  // namespace redlatch::inline v0::detail
