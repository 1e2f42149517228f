#pragma once

#include <redlatch/compilation.hpp>
#include <redlatch/net/usual_replies.hpp>

#include <hiredis/hiredis.h>

#include <cstddef>

namespace redlatch::inline v0::detail {

/// What a connection's reader makes replies with. Bounds how many elements the arrays of one reply may have,
/// all together, and how deep they may lie in each other. hiredis makes room for as many as a header promises
/// before any of them has come: a few bytes that are no reply could take gigabytes. (Since 1.0 it has a limit
/// for each array, but none for all; and some versions have none for the depth, and free a reply by recursion.)
/// Must outlive the reader.
class ReplyBounds {
public:
    /// A Cluster of 16,384 single slots, with three nodes each, tells less than half of that.
    static constexpr std::size_t most_elements = std::size_t{1} << 20U;

    /// Nothing that is asked for lies deeper than five.
    static constexpr int most_levels = 7;

    explicit ReplyBounds(redisReader& reader) noexcept
        : hiredis_(*reader.fn), functions_(*reader.fn) {
        functions_.createArray = &create_array;
        functions_.createString = &create_string;
        functions_.createInteger = &create_integer;
        functions_.createNil = &create_nil;
        functions_.freeObject = &UsualReplies::free;
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
        if (elements > bounds.left_ || level(*task) > most_levels) return nullptr;
        bounds.left_ -= elements;
        return bounds.hiredis_.createArray(task, count);
    }

    // The elements of an array are freed with it.

    static void* create_string(const redisReadTask* task, char* text, std::size_t size) noexcept {
        redisReply* usual = nullptr;
        if (task->parent == nullptr && task->type == REDIS_REPLY_STATUS) {
            usual = UsualReplies::status({text, size});
        }
        return usual != nullptr ? usual : of(*task).createString(task, text, size);
    }
    static void* create_integer(const redisReadTask* task, long long number) noexcept {
        redisReply* usual = nullptr;
        if (task->parent == nullptr && task->type == REDIS_REPLY_INTEGER) {
            usual = UsualReplies::integer(number);
        }
        return usual != nullptr ? usual : of(*task).createInteger(task, number);
    }
    static void* create_nil(const redisReadTask* task) noexcept {
        return task->parent == nullptr ? UsualReplies::nil() : of(*task).createNil(task);
    }

    static const redisReplyObjectFunctions& of(const redisReadTask& task) noexcept {
        return static_cast<const ReplyBounds*>(task.privdata)->hiredis_;
    }

    static int level(const redisReadTask& task) noexcept {
        int level = 1;
        for (auto above = task.parent; above != nullptr; above = above->parent) ++level;
        return level;
    }

    const redisReplyObjectFunctions& hiredis_;
    redisReplyObjectFunctions functions_;
    std::size_t left_ = 0;
};

}  // namespace redlatch::inline v0::detail
