#pragma once

#include <redlatch/core/command.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/server_clock.hpp>

#include <array>
#include <string>
#include <string_view>

namespace redlatch::inline v0::detail {

/// What an error reply means. Error replies begin with a code word; before Redis 7.0 an error
/// inside a script arrives wrapped in a sentence with the word somewhere behind.
struct ServerError {
    Errc code;
    bool transient;
};

/// Whether it was a replica that answered: nothing was executed.
inline bool says_not_master(const Fault& fault) {
    const std::string& text = fault.error.message;
    return text.starts_with("READONLY") || text.starts_with("MASTERDOWN");
}

/// What an error in answer to a command decides.
inline ReplyKind kind_of(const Fault& error) {
    if (error.error.message.starts_with("NOSCRIPT")) return ReplyKind::unknown_script;
    if (late_reply_time(error)) return ReplyKind::late;
    if (says_not_master(error)) return ReplyKind::not_master;
    if (redirection_of(error)) return ReplyKind::redirected;
    if (error.error.code == Errc::denied) return ReplyKind::denied;
    return ReplyKind::error;
}

inline constexpr std::string_view place_in_script = "@user_script:";

/// Without the places in a script that stand in front, as servers older than Redis 7.0 have them: of what a script has
/// caught, or of one that has failed, once or twice. Nothing where no words are behind.
inline std::string_view behind_places(std::string_view text) {
    constexpr std::string_view end = ": ";
    while (text.starts_with(place_in_script)) {
        const std::size_t at = text.find_first_not_of(" 0123456789", place_in_script.size());
        if (at == std::string_view::npos) return {};
        text.remove_prefix(at);
        if (!text.starts_with(end)) return {};
        text.remove_prefix(end.size());
    }
    if (text.starts_with('-')) text.remove_prefix(1);
    return text;
}

/// A server's words without where in a script they were said, and without our arguments, of which one is the owner's
/// token. Since Redis 7.0 the place stands behind them, before in front.
inline std::string_view plain_words(std::string_view text) {
    text = text.substr(0, text.find(", with args beginning with"));
    std::string_view caught = text;
    if (text.starts_with("ERR Error running script (call to ")) {
        const std::size_t end = text.find("): ");
        caught.remove_prefix(end == std::string_view::npos ? 0 : end + 3);
    }
    if (caught.starts_with(place_in_script)) {
        const std::string_view words = behind_places(caught);
        return words.empty() ? text : words;
    }
    constexpr std::string_view script = " script: ";
    constexpr std::size_t sha = 40;
    const std::size_t at = text.rfind(script);
    if (at == std::string_view::npos || text.size() < at + script.size() + sha) return text;
    const bool is_place = text.substr(at + script.size() + sha).starts_with(", on @user_script:");
    return is_place ? text.substr(0, at) : text;
}

/// What an error in a handshake comes down to, in words of our own: the server may quote the password,
/// cut off or escaped. `command`: to which it answers.
inline std::string without_quotation(std::string_view text, std::string_view command) {
    struct Row {
        std::string_view word;
        std::string_view meaning;
    };
    static constexpr std::array codes{
        Row{"LOADING", "the server is loading its data"},
        Row{"BUSY", "the server is running a script"},
        Row{"READONLY", "the server is a replica"},
        Row{"MASTERDOWN", "the server is a replica without its master"},
        Row{"NOAUTH", "the server wants a password"},
        Row{"WRONGPASS", "wrong user or password, or a disabled user"},
        Row{"NOPERM", "the ACL forbids"},
        Row{"DENIED", "the server is in protected mode: it serves its own machine only"},
    };
    static constexpr std::array phrases{
        Row{"max number of clients", "max number of clients reached"},
        Row{"invalid password", "invalid password"},
        Row{"no password is set", "no password is set at the server"},
        Row{"without any password", "no password is set at the server"},
        Row{"DB index", "DB index is out of range"},
        Row{"number of arguments", "the server knows no users (Redis 6 and newer do)"},
    };
    const std::string_view first = text.substr(0, text.find(' '));
    for (const Row& row : codes) {
        if (first != row.word) continue;
        std::string words = std::string{first}.append(" ").append(row.meaning);
        return first == "NOPERM" ? words.append(" ").append(command) : words;
    }
    for (const Row& row : phrases) {
        if (text.find(row.word) != std::string_view::npos) return "ERR " + std::string{row.meaning};
    }
    if (text.find("unknown command") != std::string_view::npos) {
        return "ERR the server does not know " + std::string{command};
    }
    return "an error in answer to " + std::string{command} +
           "; the server's words are left out, as they may quote the password";
}

/// Whether a server is no node of a Cluster, by its answer to a CLUSTER command.
inline bool says_no_cluster(std::string_view words) {
    return words.find("cluster support disabled") != std::string_view::npos;
}

/// Whether an ACL forbids a command, by the server's plain words.
inline bool denies_command(std::string_view words) {
    return words.find("can't run this command") != std::string_view::npos ||
           words.find("to run the '") != std::string_view::npos;
}

/// The same of a key.
inline bool denies_key(std::string_view words) {
    return words.find("one of the keys") != std::string_view::npos ||
           words.find("access a key") != std::string_view::npos;
}

/// Only plain words count: the server may quote a lock's name, in which any of them may stand.
inline ServerError classify_server_error(std::string_view text) {
    std::string_view words = plain_words(text);
    words = words.substr(0, words.find(" ("));  // behind it a script of ours names the key
    struct Row {
        std::string_view word;
        ServerError meaning;
    };
    static constexpr ServerError wait_and_retry{Errc::unavailable, true};
    static constexpr ServerError forbidden{Errc::denied, false};
    static constexpr std::array rows{
        Row{"LOADING", wait_and_retry},
        Row{"BUSY", wait_and_retry},
        Row{"READONLY", wait_and_retry},
        Row{"MASTERDOWN", wait_and_retry},
        Row{"OOM", wait_and_retry},
        Row{"MISCONF", wait_and_retry},
        Row{"NOREPLICAS", wait_and_retry},
        Row{"TRYAGAIN", wait_and_retry},
        Row{"CLUSTERDOWN", wait_and_retry},
        Row{"UNBLOCKED", wait_and_retry},
        Row{"UNKILLABLE", wait_and_retry},
        Row{"NOAUTH", forbidden},
        Row{"WRONGPASS", forbidden},
        Row{"NOPERM", forbidden},
        Row{"DENIED", forbidden},
        Row{"LATE", wait_and_retry},
        Row{"WRONGTYPE", {Errc::wrong_type, false}},
    };
    const std::string_view first = words.substr(0, words.find(' '));
    for (const Row& row : rows) {
        if (first == row.word) return row.meaning;
    }
    if (says_between_servers(words)) return wait_and_retry;
    const bool has_no_code = text.starts_with("ERR ") || text.starts_with(place_in_script);
    if (!has_no_code) return {Errc::protocol, false};

    constexpr std::array phrases{
        Row{"max number of clients", wait_and_retry},
        Row{"WAIT cannot be used with", wait_and_retry},   // a replica by now
        Row{"invalid password", forbidden},                // Redis 5
        Row{"AUTH", forbidden},                            // a password where none is set
        Row{"ACL failure", forbidden},                     // inside a script, from 7.2 on
        Row{"DB index", {Errc::invalid_argument, false}},  // SELECT
    };
    for (const Row& row : phrases) {
        if (words.find(row.word) != std::string_view::npos) return row.meaning;
    }
    const bool by_acl = denies_command(words) || denies_key(words);  // inside a script, before 7.2
    return by_acl ? forbidden : ServerError{Errc::protocol, false};
}

}  // namespace redlatch::inline v0::detail
