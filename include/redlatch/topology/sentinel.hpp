#pragma once

#include <redlatch/core/sentinel_lookup.hpp>
#include <redlatch/core/sentinel_service.hpp>
#include <redlatch/core/server_address.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/dialer.hpp>
#include <redlatch/net/server_error.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Dials the master of a service that Sentinel watches over: asks for it before each connection. Where the
/// master is another one than before, earlier connections are given up.
class SentinelDialer final : public Dialer {
public:
    /// `master`: what there is to know about the master but its address.
    SentinelDialer(std::vector<Endpoint> sentinels, std::string service, Endpoint master,
                   DialOptions options)
        : sentinels_(std::move(sentinels)),
          master_(std::move(master)),
          options_(std::move(options)),
          service_(std::move(service), sentinels_.size()) {}

    std::string name() const override {
        const std::lock_guard lock{mutex_};
        const auto& master = service_.master();
        return master ? master_.at(*master).name() : "service " + printable(service_.name());
    }

    /// `act` is called once the master was found for the first time. To be set before the first use.
    void on_found(std::function<void()> act) { on_found_ = std::move(act); }

    Expected<Connection, Fault> open(const Limit& limit) override {
        SentinelLookup lookup = look_up(limit);
        auto action = lookup.begin(Clock::now());
        for (;;) {
            auto master = find(lookup, std::move(action), limit);
            if (!master) return Unexpected{std::move(master).error()};
            auto connection = options_.connect(master_.at(*master), limit);
            if (connection) {
                const auto epoch = arrive(*master, lookup);
                if (epoch) return of_epoch(*epoch, std::move(connection));
                lookup = look_up(limit);
                action = lookup.begin(Clock::now());
                continue;
            }
            misled(lookup.asked_last());
            if (!says_not_master(connection.error())) return connection;
            action = lookup.is_replica(std::move(connection).error(), Clock::now());
        }
    }

    /// A connection to a Sentinel that answers. From then on that one is asked first.
    Expected<Connection, Fault> open_sentinel(const Limit& limit) {
        std::optional<Connection> answering;
        SentinelLookup lookup = look_up(limit);
        auto master = find(lookup, lookup.begin(Clock::now()), limit, &answering);
        if (!master) return Unexpected{std::move(master).error()};
        return *std::move(answering);
    }

    /// Asks the Sentinels once more who the master is.
    void look_again(const Limit& limit) {
        SentinelLookup lookup = look_up(limit);
        const auto master = find(lookup, lookup.begin(Clock::now()), limit);
        if (master) arrive(*master, lookup);
    }

    /// A Sentinel told `service old-host old-port new-host new-port`.
    void hear(std::string_view message) {
        std::unique_lock lock{mutex_};
        const auto master = service_.switched(message);
        lock.unlock();
        if (master) arrive(*master);
    }

    /// Asks a Sentinel who the master is; `hear_answer` wants to know what it says.
    Call question() const {
        return Call::plain({"SENTINEL", "get-master-addr-by-name", service_.name()});
    }
    void hear_answer(const ReplyView& reply) {
        const SentinelAnswer answer = read(reply);
        if (answer.kind != SentinelAnswer::Kind::address) return;
        if (const auto master = parse_address(answer.host, answer.port)) arrive(*master);
    }

private:
    SentinelLookup look_up(const Limit& limit) const {
        const std::lock_guard lock{mutex_};
        return service_.look_up(limit.within(options_.connect_timeout).at);
    }

    /// Asks until a Sentinel names the master. `answering`: where to put the connection to that one.
    Expected<ServerAddress, Fault> find(SentinelLookup& lookup, SentinelLookup::Action action,
                                        const Limit& limit,
                                        std::optional<Connection>* answering = nullptr) {
        while (const auto* const question = get_if<SentinelLookup::Ask>(&action)) {
            const Endpoint& sentinel = sentinels_[question->sentinel];
            const Limit own{question->until, limit.stop};
            auto answer = ask(sentinel, own, answering);
            if (!answer && limit.cancelled()) return Unexpected{cancelled_fault()};
            action = answer
                         ? lookup.answered(*answer, sentinel.name(), Clock::now())
                         : lookup.failed(std::move(answer).error(), sentinel.name(), Clock::now());
        }
        if (auto* const end = get_if<SentinelLookup::GiveUp>(&action)) {
            const std::lock_guard lock{mutex_};
            service_.found_none(lookup.asked_first());
            return Unexpected{std::move(end->fault)};
        }
        helped(lookup.asked_last());
        return get<SentinelLookup::TryMaster>(std::move(action)).master;
    }

    /// What one Sentinel says.
    Expected<SentinelAnswer, Fault> ask(const Endpoint& sentinel, const Limit& limit,
                                        std::optional<Connection>* answering) const {
        auto connection = options_.connect_as_given(sentinel, limit);
        if (!connection) return Unexpected{std::move(connection).error()};
        auto reply = connection->call(question().wire(), limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        if (answering != nullptr) answering->emplace(*std::move(connection));
        return read(reply->view());
    }

    static SentinelAnswer read(const ReplyView& answer) {
        using Kind = SentinelAnswer::Kind;
        if (answer.is_nil()) return {Kind::unknown_service};
        if (answer.size() != 2) return {Kind::unreadable};
        return {Kind::address, std::string{answer[0].text()}, std::string{answer[1].text()}};
    }

    void helped(std::size_t sentinel) {
        const std::lock_guard lock{mutex_};
        service_.helped(sentinel);
    }

    void misled(std::size_t sentinel) {
        const std::lock_guard lock{mutex_};
        service_.misled(sentinel);
    }

    /// The epoch of connections to the master that a search has found; nothing where it is outdated.
    std::optional<unsigned> arrive(const ServerAddress& master, const SentinelLookup& search) {
        std::unique_lock lock{mutex_};
        const auto arrival = service_.arrive(master, search);
        if (arrival == SentinelService::Arrival::outdated) return std::nullopt;
        return begin_epoch(arrival, lock);
    }

    /// The master is at that address.
    void arrive(const ServerAddress& master) {
        std::unique_lock lock{mutex_};
        begin_epoch(service_.arrive(master), lock);
    }

    unsigned begin_epoch(SentinelService::Arrival arrival, std::unique_lock<std::mutex>& lock) {
        using Arrival = SentinelService::Arrival;
        const unsigned epoch = arrival == Arrival::moved ? next_epoch() : this->epoch();
        lock.unlock();
        if (arrival == Arrival::first && on_found_) on_found_();
        if (arrival == Arrival::moved) tell_moved();
        return epoch;
    }

    const std::vector<Endpoint> sentinels_;
    const Endpoint master_;  // without its address
    const DialOptions options_;
    std::function<void()> on_found_;
    mutable std::mutex mutex_;
    SentinelService service_;
};

}  // namespace redlatch::inline v0::detail
