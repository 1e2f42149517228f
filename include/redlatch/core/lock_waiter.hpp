#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/acquire_request.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/intrusive_list.hpp>

#include <memory>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

struct LockEntry;

/// One who waits in the lock table: a node that its owner embeds, and that stays where it is until the
/// answer.
class LockWaiter : public IntrusiveList<LockWaiter>::Hook {
public:
    /// Whether the holder before has handed the lock to this one. Then the table has forgotten
    /// about it, and `LockTable::take_handed` needs no protection.
    bool is_handed() const noexcept { return handed_ != nullptr; }

private:
    friend LockEntry;
    friend class LockTable;
    friend class WakeList;

    const AcquireRequest* request_ = nullptr;  // where it waits in the queue
    std::pair<const std::string, LockEntry>* name_ =
        nullptr;  // where it is in one of this entry's lists
    TimePoint wake_at_ = TimePoint::max();
    std::shared_ptr<Hold> handed_{};
    LockWaiter* next_woken_ = nullptr;
    bool woken_ = false;
    bool waits_for_answer_ = false;  // to another one's try, as a single try does
    bool has_answer_ = false;        // there was one
};

/// Those who have to be woken, first come first served, each of them once.
class WakeList {
public:
    /// `waiter`: may be null, for nobody.
    void push(LockWaiter* waiter) noexcept {
        if (waiter == nullptr || std::exchange(waiter->woken_, true)) return;
        (last_ == nullptr ? first_ : last_->next_woken_) = waiter;
        last_ = waiter;
    }

    /// Takes out the first one; null when there are no more.
    LockWaiter* take() noexcept {
        LockWaiter* const first = first_;
        if (first == nullptr) return nullptr;
        first_ = std::exchange(first->next_woken_, nullptr);
        if (first_ == nullptr) last_ = nullptr;
        first->woken_ = false;
        return first;
    }

private:
    LockWaiter* first_ = nullptr;
    LockWaiter* last_ = nullptr;
};

}  // namespace redlatch::inline v0::detail
