#pragma once

#include <redlatch/core/command.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/server_error.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// A connection's fault, as far as it decides what follows.
inline ConnectionFailure failure_of(const Fault& fault) noexcept {
    return {.disconnected = fault.disconnected, .maybe_executed = fault.maybe_executed};
}

/// What decides how a call is sent over a connection.
inline CommandTraits traits_of(const Call& call, const Connection& connection, bool reused,
                               KeyAccess keys) noexcept {
    return {.is_script = call.is_script(),
            .can_omit_keys = call.can_omit_keys(),
            .reused = reused,
            .script_known = connection.has_run(call.script()),
            .keys = keys};
}

/// `connection`: where the call is sent. `server_deadline`: 0 for a script that uses no time.
inline EncodeOptions encode_options(SendForm form, const Connection& connection,
                                    std::int64_t server_deadline = 0) {
    EncodeOptions options{.form = form, .server_deadline = server_deadline};
    if (connection.server() != nullptr) options.server = *connection.server();
    return options;
}

/// Whether it is about the type of the lock's own key. For another key the script's error names that key, and
/// for data of the same type it says so.
inline bool is_of_wrong_type(const Fault& fault, const Call& call) {
    const std::string& message = fault.error.message;
    return fault.error.code == Errc::wrong_type && !call.type().empty() &&
           !call.names_companion(message) && message.find("no lock") == std::string::npos;
}

/// Says what the server leaves out of an error: what its ACL has to allow, or of which type the key should be.
inline void explain(Fault& fault, const Call& call) {
    std::string& message = fault.error.message;
    const bool denied = fault.error.code == Errc::denied;
    if (denied && !call.can_omit_keys() && denies_key(message)) {
        const std::string others = call.key_patterns();
        message += " (the ACL has to allow the lock's own name" +
                   (others.empty() ? others : "," + others) + ")";
    }
    if (denied && denies_command(message)) {
        const bool names_command = message.find("to run the '") != std::string::npos;
        message += names_command ? " (" : " (ACL LOG says which; ";
        message += "docs/deployment.md lists all that are needed)";
    }
    if (is_of_wrong_type(fault, call)) {
        message = "WRONGTYPE the key, or one beside it, is of another type than this policy's (" +
                  std::string{call.type()} + "); redis-cli TYPE tells which";
    }
}

/// One command: sends and receives what its `Command` says, over one connection or two.
class Exchange {
public:
    explicit Exchange(ReplyUse use) noexcept : command_(use) {}

    /// It goes over this connection from now on, as `call`; both are borrowed. `reused`: the
    /// connection lay idle. False where it must not be sent there.
    bool use(Connection& connection, bool reused, const Call& call, KeyAccess keys,
             bool asking = false) {
        connection_ = &connection;
        call_ = &call;
        asking_ = asking;
        return command_.connected(traits_of(call, connection, reused, keys));
    }

    /// Blocks until there is an answer. `next` says whether the command has to be sent over another
    /// connection.
    Expected<Reply, Fault> run(const Limit& limit) {
        for (;;) {
            auto sent = send(limit);
            auto reply = sent ? connection_->receive(limit) : Unexpected{std::move(sent).error()};
            judge(reply);
            if (step_.next == CommandStep::Next::send) continue;
            if (!reply) ask_for_type(reply.error(), limit);
            return reply;
        }
    }

    /// Sends what is to be sent next. `limit`: how long its answer will be waited for.
    Expected<void, Fault> send(const Limit& limit) {
        if (asking_) {
            auto allowed = connection_->call(Call::plain({"ASKING"}).wire(), limit);
            if (!allowed) return Unexpected{std::move(allowed).error()};
        }
        connection_->begin_exchange();
        sent_ = Clock::now();
        const std::int64_t server_deadline =
            connection_->clock().server_deadline(sent_, saturating_sub(limit.at, sent_));
        const auto options = encode_options(command_.form(), *connection_, server_deadline);
        return connection_->send(call_->wire(options), limit);
    }

    /// What to do after this reply, or after a fault of the connection. Completes what it says.
    CommandStep judge(Expected<Reply, Fault>& reply) {
        connection_->end_exchange();
        note_time(reply);
        if (connection_->alive()) {
            const ReplyKind kind = kind_of(reply, call_->shape());
            step_ = command_.answered(kind);
            if (kind == ReplyKind::value) return take(*reply);
            if (kind == ReplyKind::misshapen) reply = Unexpected{unexpected_reply()};
        } else {
            step_ = command_.failed(failure_of(reply.error()));
        }
        if (step_.drop_connection) connection_->discard();
        if (step_.next != CommandStep::Next::send) complete(reply.error());
        return step_;
    }

    /// No connection could be made for it, or what followed on its answer failed.
    CommandStep failed(Fault& fault) {
        step_ = command_.failed(failure_of(fault));
        fault.maybe_executed = command_.unclear();
        return step_;
    }

    CommandStep step() const noexcept { return step_; }
    CommandStep::Next next() const noexcept { return step_.next; }
    const Command& command() const noexcept { return command_; }
    const Call& call() const noexcept { return *call_; }
    LeftCommand left() const { return {command_, call_->shape(), sent_, call_->script()}; }

private:
    void note_time(const Expected<Reply, Fault>& reply) {
        const auto time = time_in(reply, call_->shape());
        if (time) connection_->clock().answered(sent_, *time, Clock::now());
    }

    CommandStep take(Reply& reply) {
        if (call_->is_script()) connection_->note_run(call_->script());
        reply.repeated = command_.unclear();
        reply.server = connection_->server();
        return step_;
    }

    void complete(Fault& fault) {
        fault.maybe_executed = command_.unclear();
        if (fault.error.node.empty()) fault.error.node = connection_->node();
        explain(fault, *call_);
    }

    /// Asks what is there in place of a lock.
    void ask_for_type(Fault& fault, const Limit& limit) {
        if (!is_of_wrong_type(fault, *call_) || !connection_->alive()) return;
        const auto reply = connection_->call(Call::plain({"TYPE", call_->key()}).wire(), limit);
        if (!reply) return;
        const std::string_view there = reply->view().text();
        if (there.empty() || there == "none" || there == call_->type()) return;
        fault.error.message = "WRONGTYPE the key is a " + printable(there) +
                              ", and this policy keeps a " + std::string{call_->type()};
    }

    Command command_;
    CommandStep step_{CommandStep::Next::fail};
    Connection* connection_ = nullptr;
    const Call* call_ = nullptr;
    TimePoint sent_{};
    bool asking_ = false;  // an ASKING goes in front: the Cluster is moving the key's slot
};

}  // namespace redlatch::inline v0::detail
