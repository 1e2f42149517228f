#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/server_error.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// One call on one connection: what has to be sent, and what an answer to it calls for. A script that
/// the server does not know is sent whole; one that it finds late although its answer is still waited
/// for, again with the time it told; one for which the ACL allows no keys but the first, without them.
class Exchange {
public:
    /// Borrows both.
    Exchange(Connection& connection, const Call& call, const Wiring& wiring)
        : connection_(&connection), call_(&call), wiring_(wiring) {}

    /// Blocks until there is an answer.
    Expected<Reply, Fault> run(const Limit& limit) {
        for (;;) {
            auto sent = send(limit);
            auto reply = sent ? connection_->receive(limit) : Unexpected{std::move(sent).error()};
            if (auto answer = take(std::move(reply))) {
                if (!*answer) ask_for_type(answer->error(), limit);
                return *std::move(answer);
            }
        }
    }

    /// Sends what is to be sent next. `limit`: how long its answer will be waited for.
    Expected<void, Fault> send(const Limit& limit) {
        if (wiring_.asking) {
            auto allowed = connection_->call(Call::plain({"ASKING"}).wire(), limit);
            if (!allowed) return Unexpected{std::move(allowed).error()};
        }
        sent_ = Clock::now();
        wiring_.not_after = connection_->clock().not_after(sent_, saturating_sub(limit.at, sent_));
        return connection_->send(call_->wire(wiring_), limit);
    }

    /// The call's answer; nothing where it has to be sent once more.
    std::optional<Expected<Reply, Fault>> take(Expected<Reply, Fault> reply) {
        const auto time = reply ? reply->view().time(call_->answer()) : told_late(reply.error());
        if (time) connection_->clock().answered(sent_, *time, Clock::now());
        if (!reply) {
            if (connection_->alive() && worth_another(reply.error())) return std::nullopt;
            name_keys(reply.error());
            name_type(reply.error());
            return reply;
        }
        if (call_->is_script()) connection_->note_run(call_->script());
        if (!reply->view().fits(call_->answer())) {
            connection_->discard();
            Fault fault = unexpected_reply();
            fault.error.node = connection_->node();
            return Unexpected{std::move(fault)};
        }
        reply->server = connection_->server();
        return reply;
    }

    const Call& call() const noexcept { return *call_; }

    /// How the call was sent last.
    const Wiring& wiring() const noexcept { return wiring_; }

private:
    bool worth_another(const Fault& fault) {
        if (call_->is_script() && is_noscript(fault) && wiring_.form == Wiring::Form::by_sha) {
            wiring_.form = Wiring::Form::whole;
            return true;
        }
        if (told_late(fault)) return !std::exchange(was_late_, true);
        const bool may_omit = call_->can_omit_keys() && !wiring_.first_key_only;
        if (fault.error.code != Errc::denied || !may_omit) return false;
        wiring_.first_key_only = true;
        return true;
    }

    /// The server does not say which key its ACL forbids.
    void name_keys(Fault& fault) const {
        std::string& message = fault.error.message;
        if (fault.error.code != Errc::denied || !call_->needs_all_keys() ||
            message.find("key") == std::string::npos) {
            return;
        }
        message += " (the ACL has to allow" + call_->key_patterns() + " too)";
    }

    /// Whether it is about the lock's own key. Of another one, the script names it.
    bool is_of_wrong_type(const Fault& fault) const noexcept {
        return fault.error.code == Errc::wrong_type && !call_->type().empty() &&
               fault.error.message.find(" (redlatch:") == std::string::npos;
    }

    void name_type(Fault& fault) const {
        if (!is_of_wrong_type(fault)) return;
        fault.error.message =
            "WRONGTYPE the key, or one beside it, is of another type than this "
            "policy's (" +
            std::string{call_->type()} + "); redis-cli TYPE tells which";
    }

    /// Asks what is there in place of a lock.
    void ask_for_type(Fault& fault, const Limit& limit) {
        if (!is_of_wrong_type(fault) || !connection_->alive()) return;
        const auto reply = connection_->call(Call::plain({"TYPE", call_->key()}).wire(), limit);
        if (!reply) return;
        const std::string_view there = reply->view().text();
        if (there.empty() || there == "none" || there == call_->type()) return;
        fault.error.message = "WRONGTYPE the key is a " + printable(there) +
                              ", and this policy keeps a " + std::string{call_->type()};
    }

    Connection* connection_;
    const Call* call_;
    Wiring wiring_;
    TimePoint sent_{};
    bool was_late_ = false;
};

}  // namespace redlatch::inline v0::detail
