#pragma once

#include <redlatch/compilation.hpp>

namespace redlatch::inline v0::detail {

/// A list of nodes that others own: a node joins and leaves it without an allocation, in constant
/// time. `T` derives from `IntrusiveList<T>::Hook`, and is in one list at a time.
template <class T>
class IntrusiveList {
public:
    class Hook {
    public:
        Hook() = default;
        Hook(const Hook&) = delete;
        Hook& operator=(const Hook&) = delete;

    private:
        friend IntrusiveList;
        T* previous_ = nullptr;
        T* next_ = nullptr;
    };

    bool empty() const noexcept { return first_ == nullptr; }
    /// Null for an empty list.
    T* front() const noexcept { return first_; }

    void push_back(T& node) noexcept {
        node.previous_ = last_;
        (last_ == nullptr ? first_ : last_->next_) = &node;
        last_ = &node;
    }

    /// Takes out a node that is in this list.
    void remove(T& node) noexcept {
        (node.previous_ == nullptr ? first_ : node.previous_->next_) = node.next_;
        (node.next_ == nullptr ? last_ : node.next_->previous_) = node.previous_;
        node.previous_ = node.next_ = nullptr;
    }

    /// `visit` may take out the node that it gets.
    template <class Visit>
    void for_each(Visit visit) const {
        for (T* node = first_; node != nullptr;) {
            T* const next = node->next_;
            visit(*node);
            node = next;
        }
    }

private:
    T* first_ = nullptr;
    T* last_ = nullptr;
};

}  // namespace redlatch::inline v0::detail
