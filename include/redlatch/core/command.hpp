#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>

namespace redlatch::inline v0::detail {

/// What came back to a command, as far as it decides what follows.
enum class ReplyKind : std::uint8_t {
    value,           ///< of the shape that the command gives
    misshapen,       ///< of another shape: it may be the answer to another command
    unknown_script,  ///< NOSCRIPT
    late,            ///< LATE and the server's time: the script found the command's time over
    denied,          ///< the ACL forbids the command, or one of its keys
    not_master,      ///< READONLY and the like
    redirected,      ///< MOVED or ASK
    error,           ///< any other error
};

/// A connection ended, or could not be made, before the answer was there.
struct ConnectionFailure {
    bool disconnected = false;    ///< by the other end; else a time-out, a cancellation or garbage
    bool maybe_executed = false;  ///< some of the command was sent
    bool of_others = false;       ///< for the silence to an older command: this one had time left
};

/// What becomes of an answer.
enum class ReplyUse : std::uint8_t {
    awaited,      ///< its sender waits for it
    may_be_left,  ///< its sender may stop waiting: then the connection's next user reads it
    left,         ///< its sender does not wait for it
    pipelined,    ///< others' commands go out behind it before it is there
};

/// Which keys of a script the server's ACL allows, as far as is known.
enum class KeyAccess : std::uint8_t {
    all,
    doubtful,    ///< all but the first were denied a while ago
    first_only,  ///< all but the first are denied
};

/// How a command is written.
struct SendForm {
    bool whole = false;           ///< EVAL with the script's text; else EVALSHA
    bool first_key_only = false;  ///< without the keys that the ACL denies
};

/// What is sent, and over what.
struct CommandTraits {
    bool is_script = false;
    bool can_omit_keys = false;  ///< the script can do without all keys but the first
    bool reused = false;         ///< the connection lay idle before, and may have died unnoticed
    bool script_known = false;   ///< the script ran on that connection before
    KeyAccess keys = KeyAccess::all;
};

/// What to do after an answer, or after a failure.
struct CommandStep {
    enum class Next : std::uint8_t {
        deliver,    ///< give the answer to the caller
        send,       ///< send it once more on the same connection
        reconnect,  ///< send it once more, on another connection
        redirect,   ///< another server of the Cluster has the key; nothing was executed here
        fail,       ///< give the fault to the caller
    };
    Next next;
    bool drop_connection = false;  ///< answers and commands no longer match
    bool leave_server = false;     ///< it is a replica: new connections are due
};

/// Judges what comes back to one command: what is repeated, how often, and whether it may have been
/// executed without an answer. Each reason to repeat counts once for each connection, and there
/// are at most two connections.
class Command {
public:
    explicit Command(ReplyUse use) noexcept : use_(use) {}

    /// There is a connection. False where the command must not be sent there: an answer that nobody
    /// waits for must not be that the script is not known.
    bool connected(const CommandTraits& traits) noexcept {
        traits_ = traits;
        has_connected_ = true;
        was_late_ = false;
        const bool unknown = traits.is_script && !traits.script_known;
        const bool by_others = use_ == ReplyUse::may_be_left || use_ == ReplyUse::left;
        form_.whole = unknown && use_ != ReplyUse::awaited;
        form_.first_key_only =
            traits.can_omit_keys && (traits.keys == KeyAccess::first_only ||
                                     (traits.keys == KeyAccess::doubtful && by_others));
        return use_ != ReplyUse::left || !unknown;
    }

    /// How it has to be written now.
    SendForm form() const noexcept { return form_; }

    CommandStep answered(ReplyKind kind) noexcept {
        switch (kind) {
            case ReplyKind::value: return {CommandStep::Next::deliver};
            case ReplyKind::misshapen:
                unclear_ = true;
                return {.next = CommandStep::Next::fail, .drop_connection = true};
            case ReplyKind::unknown_script: return repeat_once(form_.whole, traits_.is_script);
            case ReplyKind::late: return repeat_once(was_late_);
            case ReplyKind::denied: return repeat_once(form_.first_key_only, traits_.can_omit_keys);
            case ReplyKind::not_master:
                return {.next = CommandStep::Next::fail, .leave_server = true};
            case ReplyKind::redirected:
                return {use_ == ReplyUse::left ? CommandStep::Next::fail
                                               : CommandStep::Next::redirect};
            case ReplyKind::error: break;
        }
        return {CommandStep::Next::fail};
    }

    /// A connection that lay idle may have died long ago: that says nothing about the server now. Nor does one that
    /// was given up before the command had waited for as long as it may.
    CommandStep failed(ConnectionFailure failure) noexcept {
        unclear_ = unclear_ || failure.maybe_executed;
        const bool had_died = failure.disconnected && (traits_.reused || !has_connected_);
        const bool says_nothing = had_died || failure.of_others;
        if (!says_nothing || use_ == ReplyUse::left || reconnected_) {
            return {CommandStep::Next::fail};
        }
        reconnected_ = true;
        return {CommandStep::Next::reconnect};
    }

    /// Its sender has stopped waiting: from now on nothing is repeated.
    void leave() noexcept { use_ = ReplyUse::left; }

    /// It is to go out a second time, or has: the command that is sent has to be right after the first one
    /// too.
    bool reconnected() const noexcept { return reconnected_; }

    /// A sending that got no answer may have been executed, or may still be.
    bool unclear() const noexcept { return unclear_; }

private:
    /// Repeats where that `helps`, unless it has done so for this reason before: `done` keeps that.
    CommandStep repeat_once(bool& done, bool helps = true) noexcept {
        if (done || !helps || use_ == ReplyUse::left) return {CommandStep::Next::fail};
        done = true;
        return {CommandStep::Next::send};
    }

    ReplyUse use_;
    CommandTraits traits_{};
    SendForm form_{};
    bool has_connected_ = false;
    bool was_late_ = false;
    bool reconnected_ = false;
    bool unclear_ = false;
};

}  // namespace redlatch::inline v0::detail
