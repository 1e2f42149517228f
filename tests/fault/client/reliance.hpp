#pragma once

#include "../history/event.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>

namespace redlatch::test::fault {

/// What a client gets wrong by itself.
enum class Mistake {
    none,
    counts_from_reply,  ///< of `CountsFromReply`: it has not read the clock before it asked
    deaf,               ///< of `Deaf`: it is never told by `lost()`
    completes_twice,    ///< of `CompletesTwice`: what it awaits completes again
    delivers_late,      ///< of `DeliversLate`: a lock is delivered when its lease is over
    takes_part,         ///< of `PartOfSet`: one lock of a set is left out
    keeps_untaken,      ///< of `KeepsUntaken`: a lock that nobody takes any more is not released
};

/// What a client relies on while it has a lock: the library's word, as `Held` or `Lock` gives it, or what
/// it mistakes for that.
template <class View>
class Reliance {
public:
    /// `answered`: when the call was back.
    Reliance(View& view, Mistake mistake, Time answered, Lease lease)
        : view_{&view},
          mistaken_{mistake == Mistake::counts_from_reply},
          deaf_{mistake == Mistake::deaf},
          believed_end_{answered + lease.duration()} {}

    [[nodiscard]] bool held() const { return mistaken_ ? now() < believed_end_ : view_->held(); }

    [[nodiscard]] std::chrono::milliseconds remaining() const {
        if (!mistaken_) return view_->remaining();
        return std::chrono::floor<std::chrono::milliseconds>(
            std::max(believed_end_ - now(), Time{0}));
    }

    /// Tells of the loss. Who counts in another way than the library is not told by it.
    [[nodiscard]] std::stop_token lost() const {
        if (deaf_) return silence_.get_token();
        return mistaken_ ? std::stop_token{} : view_->lost();
    }

    [[nodiscard]] HoldState state() const {
        if (!mistaken_) return view_->state();
        return held() ? HoldState::held : HoldState::lost;
    }

    /// 0 for a policy without fencing.
    [[nodiscard]] std::uint64_t fence() const { return fence_of(*view_); }

private:
    template <class Any>
    static std::uint64_t fence_of(const Any& view) {
        if constexpr (requires { view.fence(); }) {
            return view.fence();
        } else {
            return 0;
        }
    }

    View* view_;
    bool mistaken_;
    bool deaf_;
    std::stop_source silence_;
    Time believed_end_;
};

}  // namespace redlatch::test::fault
