#pragma once

#include <hiredis/hiredis.h>

#include <cstddef>

namespace redlatch::inline v0::detail {

/// Bounds how many elements the arrays of one reply may have, all together. hiredis makes room for as many
/// as a header promises before any of them has come: a few bytes that are no reply could take gigabytes.
/// (Since 1.0 it has a limit for each array of a reply, but not for all.) Must outlive the reader.
class ReplyBounds {
public:
    /// A Cluster of 16,384 single slots, with three nodes each, tells less than a third of that.
    static constexpr std::size_t most_elements = std::size_t{1} << 20U;

    explicit ReplyBounds(redisReader& reader) noexcept
        : hiredis_(*reader.fn), functions_(*reader.fn) {
        functions_.createArray = &create_array;
        reader.fn = &functions_;
        reader.privdata = this;
    }
    ReplyBounds(const ReplyBounds&) = delete;
    ReplyBounds& operator=(const ReplyBounds&) = delete;

private:
    /// Null makes the reader fail. The type of the count depends on hiredis's version.
    template <class Count>
    static void* create_array(const redisReadTask* task, Count count) noexcept {
        auto& bounds = *static_cast<ReplyBounds*>(task->privdata);
        if (task->parent == nullptr) bounds.left_ = most_elements;
        const auto elements = static_cast<std::size_t>(count);
        if (elements > bounds.left_) return nullptr;
        bounds.left_ -= elements;
        return bounds.hiredis_.createArray(task, count);
    }

    const redisReplyObjectFunctions& hiredis_;
    redisReplyObjectFunctions functions_;
    std::size_t left_ = 0;
};

}  // namespace redlatch::inline v0::detail
