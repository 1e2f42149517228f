#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/connection.hpp>
#include <redlatch/net/endpoint.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/reply.hpp>
#include <redlatch/net/socket.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::inline v0::detail {

/// The first words on a connection: who we are, and what the server is. All in one round trip.
class Handshake {
public:
    Handshake(Connection& connection, const Limit& limit)
        : connection_(&connection), limit_(&limit) {}

    /// Authenticates, selects the database, sets the client's name, and learns what the server is.
    Expected<void, Fault> shake_hands(const Endpoint& endpoint, const std::string& client_name) {
        std::string commands;
        if (endpoint.password) {
            const Call auth = endpoint.user
                                  ? Call::plain({"AUTH", *endpoint.user, *endpoint.password})
                                  : Call::plain({"AUTH", *endpoint.password});
            commands += auth.wire();
        }
        commands += Call::plain({"CLIENT", "SETNAME", client_name}).wire();
        if (endpoint.db != 0) {
            commands += Call::plain({"SELECT", std::int64_t{endpoint.db}}).wire();
        }
        commands += questions();
        const TimePoint sent = Clock::now();
        const auto expect = [&](std::string_view command) {
            if (endpoint.password) connection_->expect_answer_to(command);
        };
        expect("AUTH");
        auto done = connection_->send(commands, *limit_);
        if (done && endpoint.password) done = expect_ok();
        constexpr std::string_view others = "a command of the handshake";
        expect(others);
        if (done) done = expect_name_taken();
        expect("SELECT");
        if (done && endpoint.db != 0) done = expect_ok();
        expect(others);
        if (done) done = read_answers(sent, endpoint.mode, endpoint.any_role);
        connection_->expect_answer_to({});
        return done;
    }

    /// Learns what the server is, on a connection that is ready for commands.
    Expected<void, Fault> learn_server() {
        const TimePoint sent = Clock::now();
        auto done = connection_->send(questions(), *limit_);
        return done ? read_answers(sent, Endpoint::Mode::server, false) : done;
    }

private:
    static std::string questions() {
        return Call::plain({"INFO", "server"}).wire() +
               Call::plain({"INFO", "replication"}).wire() + Call::plain({"TIME"}).wire();
    }

    Expected<void, Fault> read_answers(TimePoint sent, Endpoint::Mode mode, bool any_role) {
        auto done = read_server();
        if (done) done = any_role || mode == Endpoint::Mode::sentinel ? skip() : expect_master();
        if (done) done = read_time(sent);
        return done ? check_mode(mode) : done;
    }

    /// A Sentinel knows no lock's commands, though it answers PING. A server that is no node of a Cluster would
    /// carry out commands for any slot. Some that serve a Cluster's clients say that they are none: those are asked
    /// once more.
    Expected<void, Fault> check_mode(Endpoint::Mode mode) {
        using Mode = Endpoint::Mode;
        if (mode != Mode::sentinel && mode_ == "sentinel")
            return refuse("the server is a Sentinel: its URI begins with redis+sentinel://");
        if (mode != Mode::cluster_node || mode_.empty() || mode_ == "cluster") return {};
        connection_->expect_answer_to({});  // the server's own words are read below
        const auto answer = connection_->call(Call::plain({"CLUSTER", "SLOTS"}).wire(), *limit_);
        if (!connection_->alive()) return Unexpected{answer.error()};
        if (answer || !says_no_cluster(answer.error().error.message)) return {};
        return refuse("the server is no node of a Cluster: its URI begins with redis://");
    }

    Expected<void, Fault> refuse(std::string words) const {
        Fault fault{.error = make_error(Errc::protocol, std::move(words), connection_->node()),
                    .transient = false,
                    .from_server = true};
        return Unexpected{std::move(fault)};
    }

    Expected<void, Fault> expect_ok() {
        auto reply = connection_->receive(*limit_);
        if (!reply) return Unexpected{std::move(reply).error()};
        return {};
    }

    /// A name is a nicety: an ACL may forbid to set it.
    Expected<void, Fault> expect_name_taken() {
        auto done = expect_ok();
        return !done && can_do_without(done.error()) ? Expected<void, Fault>{} : done;
    }

    /// A reply that is a help where the server gives it; null where it forbids that.
    Expected<std::optional<Reply>, Fault> receive_if_allowed() {
        auto reply = connection_->receive(*limit_);
        if (reply) return std::optional<Reply>{*std::move(reply)};
        if (can_do_without(reply.error())) return std::optional<Reply>{};
        return Unexpected{std::move(reply).error()};
    }

    /// Where an ACL forbids INFO, a lock that a message gives us is confirmed by one more command.
    Expected<void, Fault> read_server() {
        auto reply = receive_if_allowed();
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply) return {};
        const ReplyView info = (*reply)->view();
        mode_ = info.line("redis_mode:");
        if (mode_.empty()) mode_ = info.line("server_mode:");  // of Valkey
        const std::string_view id = info.line("run_id:");
        if (id.empty()) return {};
        // In whole seconds of a clock in whole seconds: a server that is less than a second old may say 1.
        constexpr std::int64_t century = 100LL * 366 * 24 * 3600;
        const std::chrono::seconds uptime{
            std::clamp<std::int64_t>(leading_number(info.line("uptime_in_seconds:")), 0, century)};
        connection_->set_server(std::make_shared<const std::string>(id),
                                saturating_add(Clock::now(), std::chrono::seconds{1} - uptime));
        return {};
    }

    Expected<void, Fault> skip() {
        auto reply = receive_if_allowed();
        if (!reply) return Unexpected{std::move(reply).error()};
        return {};
    }

    /// A replica's answer about a lock may be long out of date.
    Expected<void, Fault> expect_master() {
        auto reply = receive_if_allowed();
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply || (*reply)->view().line("role:") != "slave") return {};
        Fault fault = io_fault("READONLY the server is a replica");
        fault.from_server = true;
        fault.error.node = connection_->node();
        return Unexpected{std::move(fault)};
    }

    /// Where an ACL forbids TIME, only the release of its token undoes a command that arrives late.
    Expected<void, Fault> read_time(TimePoint sent) {
        auto reply = receive_if_allowed();
        if (!reply) return Unexpected{std::move(reply).error()};
        if (!*reply || (*reply)->view().size() != 2) return {};
        const ReplyView now = (*reply)->view();
        constexpr std::int64_t second = 1'000'000;
        // So that the product does not overflow.
        constexpr std::int64_t most_seconds = std::int64_t{1} << 40U;
        const std::int64_t seconds =
            std::clamp<std::int64_t>(leading_number(now[0].text()), 0, most_seconds);
        const std::int64_t rest =
            std::clamp<std::int64_t>(leading_number(now[1].text()), 0, second - 1);
        const auto time = server_time(seconds * second + rest);
        if (time) connection_->clock().answered(sent, *time, Clock::now());
        return {};
    }

    /// Whether the server only forbids it. One that wants a password first (NOAUTH), or nobody from
    /// another machine (DENIED), forbids everything.
    bool can_do_without(const Fault& fault) const {
        const std::string& text = fault.error.message;
        return connection_->alive() && !fault.transient && !text.starts_with("NOAUTH") &&
               !text.starts_with("DENIED");
    }

    Connection* connection_;
    const Limit* limit_;
    std::string mode_{};  // as it says: standalone, cluster or sentinel; empty where it does not
};

}  // namespace redlatch::inline v0::detail
