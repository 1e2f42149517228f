#pragma once

#include "../history/event.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>

namespace redlatch::test::fault {

/// What a client relies on while it has a lock: the library's word, as `Held` or `Lock` gives it. Of
/// `CountsFromReply` it is what a client would believe that has not read the clock before it asked.
template <class View>
class Reliance {
public:
    /// `mistaken`: counts from `answered`, when the call was back.
    Reliance(View& view, bool mistaken, Time answered, Lease lease)
        : view_{&view}, mistaken_{mistaken}, believed_end_{answered + lease.duration()} {}

    [[nodiscard]] bool held() const { return mistaken_ ? now() < believed_end_ : view_->held(); }

    [[nodiscard]] std::chrono::milliseconds remaining() const {
        if (!mistaken_) return view_->remaining();
        return std::chrono::floor<std::chrono::milliseconds>(
            std::max(believed_end_ - now(), Time{0}));
    }

    /// Tells of the loss. Who counts in another way than the library is not told by it.
    [[nodiscard]] std::stop_token lost() const {
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
    Time believed_end_;
};

}  // namespace redlatch::test::fault
