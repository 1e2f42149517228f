#pragma once

#include <redlatch/core/intrusive_list.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A hash table of nodes that their owners embed. It grows with their number, so that few stand in one list; where
/// memory runs out, the lists become longer. `T`: an `IntrusiveList<T>::Hook` with a member `hash` of 64 bits, of which
/// the highest ones count; it stays as it is while the node is here.
template <class T>
class IntrusiveIndex {
public:
    IntrusiveIndex() = default;
    IntrusiveIndex(const IntrusiveIndex&) = delete;
    IntrusiveIndex& operator=(const IntrusiveIndex&) = delete;

    void add(T& node) noexcept {
        if (++size_ > lists_.size()) grow();
        list_of(node.hash).push_back(node);
    }

    /// Takes out a node that is here.
    void remove(T& node) noexcept {
        list_of(node.hash).remove(node);
        --size_;
    }

    /// Visits all nodes with that hash, and some others. `visit` may take out the node that it gets.
    template <class Visit>
    void for_each_of(std::uint64_t hash, Visit visit) noexcept {
        list_of(hash).for_each(std::move(visit));
    }

private:
    using Lists = std::vector<IntrusiveList<T>>;

    void grow() noexcept {
        try {
            Lists fewer(2 * lists_.size());
            fewer.swap(lists_);
            ++bits_;
            for (IntrusiveList<T>& list : fewer) {
                list.for_each([&](T& node) {
                    list.remove(node);
                    list_of(node.hash).push_back(node);
                });
            }
        } catch (const std::bad_alloc&) {
        }
    }

    IntrusiveList<T>& list_of(std::uint64_t hash) noexcept { return lists_[hash >> (64U - bits_)]; }

    unsigned bits_ = 6;
    Lists lists_ = Lists(std::size_t{1} << bits_);
    std::size_t size_ = 0;
};

}  // namespace redlatch::inline v0::detail
