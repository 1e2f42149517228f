#pragma once

#include "../history/event.hpp"
#include "seeded_bugs.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stop_token>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// What a client relies on while it has a lock: the library's word, as `Held` or `Lock` gives it. Of
/// `CountsFromReply` it is what a client would believe that has not read the clock before it asked.
template <class Policy, class View>
class Reliance {
public:
    Reliance(View& view, Time answered, Lease lease)
        : view_{&view}, believed_end_{answered + lease.duration()} {}

    [[nodiscard]] bool held() const { return is_mistaken ? now() < believed_end_ : view_->held(); }

    [[nodiscard]] std::chrono::milliseconds remaining() const {
        if (!is_mistaken) return view_->remaining();
        return std::chrono::floor<std::chrono::milliseconds>(
            std::max(believed_end_ - now(), Time{0}));
    }

    /// 0 for a policy without fencing.
    [[nodiscard]] std::uint64_t fence() const { return fence_of(*view_); }

    /// Tells of the loss. Who counts in another way than the library is not told by it.
    [[nodiscard]] std::stop_token lost() const {
        return is_mistaken ? std::stop_token{} : view_->lost();
    }

private:
    static constexpr bool is_mistaken = std::is_same_v<Policy, CountsFromReply>;

    template <class Any>
    static std::uint64_t fence_of(const Any& view) {
        if constexpr (requires { view.fence(); }) {
            return view.fence();
        } else {
            return 0;
        }
    }

    View* view_;
    Time believed_end_;
};

}  // namespace redlatch::test::fault
