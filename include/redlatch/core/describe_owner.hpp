#pragma once

#include <redlatch/core/key_space.hpp>
#include <redlatch/error.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// The client's name in an owner's token of this library, `id:name:thread:number` and perhaps the mark of a
/// key space; empty in others.
inline std::string_view client_name_in(std::string_view token) {
    constexpr std::size_t id = 32;
    const auto is_hex = [](char c) {
        return std::string_view{"0123456789abcdefABCDEF"}.find(c) != std::string_view::npos;
    };
    if (token.size() <= id || token[id] != ':') return {};
    if (!std::ranges::all_of(token.substr(0, id), is_hex)) return {};
    std::string_view name = token.substr(id + 1);
    name.remove_suffix(mark_in(name).size());
    for (int i = 0; i < 2; ++i) {
        const std::size_t end = name.rfind(':');
        if (end == std::string_view::npos) return {};
        name = name.substr(0, end);
    }
    return name;
}

/// What stands behind the token of an owner that keeps a lock for nobody: after a release before
/// `min_hold` was over, and where it was detached and not adopted yet. No live token ends like that.
inline constexpr std::string_view tombstone_mark = ":min_hold";
inline constexpr std::string_view ticket_mark = ":ticket";

constexpr std::string_view without(std::string_view mark, std::string_view token) {
    return token.substr(0, token.size() - mark.size());
}

/// A token without the mark of those.
constexpr std::string_view without_marks(std::string_view token) {
    for (const std::string_view mark : {tombstone_mark, ticket_mark}) {
        if (token.ends_with(mark)) token = without(mark, token);
    }
    return token;
}

/// Whether the owner is a client of this library, of another key space than the one with that mark.
inline bool is_of_other_key_space(std::string_view token, std::string_view mark) {
    token = without_marks(token);
    return mark_in(token) != mark && !client_name_in(token).empty();
}

/// Whether a token is one that `Held::detach()` moves a lock to.
inline bool is_ticket(std::string_view token) {
    return token.ends_with(ticket_mark) && !client_name_in(without(ticket_mark, token)).empty();
}

/// Who has a lock, for an error message. Of a token of another kind only the beginning is shown, as anybody
/// who knows it whole can release the lock.
inline std::string describe_owner(std::string_view token) {
    constexpr std::size_t most_of_name = 64;
    constexpr std::size_t most_of_token = 8;
    if (token.ends_with(tombstone_mark)) {
        return "the min_hold of " + describe_owner(without(tombstone_mark, token));
    }
    if (token.ends_with(ticket_mark)) {
        return "a ticket of " + describe_owner(without(ticket_mark, token));
    }
    const std::string_view name = client_name_in(token);
    if (!name.empty()) return printable(name.substr(0, most_of_name));
    std::string text =
        "another kind of client (token '" + printable(token.substr(0, most_of_token));
    if (token.size() > most_of_token) text += "…";
    return text + "')";
}

}  // namespace redlatch::inline v0::detail
