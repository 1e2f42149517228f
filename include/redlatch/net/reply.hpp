#pragma once

#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/usual_replies.hpp>

#include <hiredis/hiredis.h>

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// The number at the beginning of a text; 0 where there is none.
inline std::int64_t leading_number(std::string_view text) noexcept {
    std::int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
}

/// The shape of the answer that a command has when it succeeds.
enum class ReplyShape {
    any,
    integer,
    ok_or_nil,  ///< a status, or nothing
    acquired,   ///< two integers, or three or five from a script that knows of a queue; the
                ///< fourth of five is the server's time in microseconds; a sixth is a string
    moved,      ///< three integers
    lock_info,  ///< a string and two integers, or three
    claims,     ///< a string and four integers, then a string and an integer for each claim
};

/// A view of one reply, or of one element of an array reply.
class ReplyView {
public:
    explicit ReplyView(const redisReply* reply) noexcept : reply_(reply) {}

    bool is_error() const noexcept { return is(REDIS_REPLY_ERROR); }
    bool is_nil() const noexcept { return is(REDIS_REPLY_NIL); }
    bool is_status(std::string_view word) const noexcept {
        return is(REDIS_REPLY_STATUS) && bytes() == word;
    }

    /// The bytes of a string, status or error; empty for anything else.
    std::string_view text() const noexcept {
        const bool has_text = is(REDIS_REPLY_STRING) || is(REDIS_REPLY_STATUS) || is_error();
        return has_text ? bytes() : std::string_view{};
    }

    /// The value of the line `field:value` in an answer to INFO; empty where there is none. `field` with
    /// its colon.
    std::string_view line(std::string_view field) const noexcept {
        const std::string_view info = text();
        for (std::size_t at = info.find(field); at != std::string_view::npos;
             at = info.find(field, at + 1)) {
            if (at != 0 && info[at - 1] != '\n') continue;
            const std::string_view rest = info.substr(at + field.size());
            return rest.substr(0, rest.find_first_of("\r\n"));
        }
        return {};
    }

    std::optional<std::int64_t> integer() const noexcept {
        if (!is(REDIS_REPLY_INTEGER)) return std::nullopt;
        return reply_->integer;
    }

    std::optional<std::string_view> string() const noexcept {
        if (!is(REDIS_REPLY_STRING)) return std::nullopt;
        return bytes();
    }

    /// How many elements an array has; nothing for another kind of reply.
    std::optional<std::size_t> size() const noexcept {
        if (!is(REDIS_REPLY_ARRAY)) return std::nullopt;
        return reply_->elements;
    }
    ReplyView operator[](std::size_t i) const noexcept { return ReplyView{reply_->element[i]}; }

    bool fits(ReplyShape shape) const noexcept {
        const auto& self = *this;
        switch (shape) {
            case ReplyShape::any: return true;
            case ReplyShape::integer: return integer().has_value();
            case ReplyShape::ok_or_nil: return is_nil() || is_status("OK");
            case ReplyShape::acquired:
                if (size() == 6) return are_integers(0, 5) && self[5].string();
                return (size() == 2 || size() == 3 || size() == 5) && are_integers(0);
            case ReplyShape::moved: return size() == 3 && are_integers(0);
            case ReplyShape::lock_info:
                return (size() == 3 || size() == 4) && self[0].string() && are_integers(1);
            case ReplyShape::claims: return are_claims();
        }
        return false;
    }

    /// Whether an acquisition was answered with "yours".
    bool is_taken(ReplyShape shape) const noexcept {
        if (shape == ReplyShape::ok_or_nil) return is_status("OK");
        const bool gives = shape == ReplyShape::acquired || shape == ReplyShape::moved;
        return gives && fits(shape) && (*this)[0].integer() == 1;
    }

    /// The server's time in an answer that has it.
    std::optional<std::chrono::microseconds> time(ReplyShape shape) const noexcept {
        if (shape != ReplyShape::acquired || (size() != 5 && size() != 6)) return std::nullopt;
        return server_time((*this)[3].integer().value_or(0));
    }

private:
    bool are_integers(std::size_t from) const noexcept { return are_integers(from, *size()); }
    bool are_integers(std::size_t from, std::size_t end) const noexcept {
        for (std::size_t i = from; i < end; ++i) {
            if (!(*this)[i].integer()) return false;
        }
        return true;
    }

    bool are_claims() const noexcept {
        const std::size_t elements = size().value_or(0);
        if (elements < 5 || elements % 2 == 0 || !are_integers(1, 5)) return false;
        for (std::size_t i = 5; i < elements; i += 2) {
            if (!(*this)[i].string() || !(*this)[i + 1].integer()) return false;
        }
        return true;
    }

    bool is(int type) const noexcept { return reply_ != nullptr && reply_->type == type; }
    std::string_view bytes() const noexcept { return {reply_->str, reply_->len}; }

    const redisReply* reply_;
};

/// How many replicas a server has, by its answer to `INFO replication`.
inline std::int64_t replicas_in(const ReplyView& info) noexcept {
    return leading_number(info.line("connected_slaves:"));
}

/// One whole reply, owned.
class Reply {
public:
    explicit Reply(void* reply) noexcept : reply_(static_cast<redisReply*>(reply)) {}

    ReplyView view() const noexcept { return ReplyView{reply_.get()}; }

    /// The command was sent a second time, and the first sending may have been carried out too.
    bool repeated = false;

    /// How many replicas have acknowledged what was done, and how many were asked to.
    std::int64_t replicas = 0;
    std::int64_t replicas_wanted = 0;

    /// The run id of the server that answered; null if it keeps that to itself.
    std::shared_ptr<const std::string> server{};

private:
    struct Free {
        void operator()(redisReply* reply) const noexcept { UsualReplies::free(reply); }
    };
    std::unique_ptr<redisReply, Free> reply_;
};

}  // namespace redlatch::inline v0::detail
