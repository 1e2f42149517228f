#pragma once

#include <redlatch/core/server_address.hpp>
#include <redlatch/net/call.hpp>
#include <redlatch/net/dialer.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Dials the master of a service that Sentinel watches over, as the guidelines for clients have it
/// (redis.io, "Guidelines for Redis clients with support for Redis Sentinel"): for each connection
/// asks the Sentinels in turn, the one that answered last first. A server that says it is a replica
/// is none to connect to, whoever names it. Where the master is another one than before, earlier
/// connections are given up.
class SentinelDialer final : public Dialer {
public:
    /// `master`: what there is to know about the master but its address.
    SentinelDialer(std::vector<Endpoint> sentinels, std::string service, Endpoint master,
                   DialOptions options)
        : service_(std::move(service)),
          master_(std::move(master)),
          options_(std::move(options)),
          sentinels_(std::move(sentinels)) {}

    std::string name() const override {
        const std::lock_guard lock{mutex_};
        return address_.empty() ? "service " + printable(service_) : address_;
    }

    /// `act` is called once the master was found for the first time. To be set before the first use.
    void on_found(std::function<void()> act) { on_found_ = std::move(act); }

    Expected<Connection, Fault> open(const Limit& limit) override {
        auto master = find_master(limit);
        if (!master) return Unexpected{std::move(master).error()};
        auto connection = options_.connect(*master, limit);
        if (!connection) return connection;
        return of_epoch(arrive(master->name()), std::move(connection));
    }

    /// A connection to a Sentinel that answers. From then on that one is asked first.
    Expected<Connection, Fault> open_sentinel(const Limit& limit) {
        std::optional<Connection> answering;
        auto master = find_master(limit, &answering);
        if (!master) return Unexpected{std::move(master).error()};
        return *std::move(answering);
    }

    /// Asks the Sentinels once more who the master is.
    void look_again(const Limit& limit) {
        if (const auto master = find_master(limit)) arrive(master->name());
    }

    /// A Sentinel told `service old-host old-port new-host new-port`.
    void hear(std::string_view message) {
        std::array<std::string_view, 5> words;
        for (std::string_view& word : words) {
            word = message.substr(0, message.find(' '));
            message.remove_prefix(std::min(word.size() + 1, message.size()));
        }
        if (words[0] != service_) return;
        if (const auto master = address(words[3], words[4])) arrive(master->name());
    }

private:
    /// Enough for a Sentinel that is there, and no long wait for one that is not.
    static constexpr std::chrono::milliseconds patience{500};

    /// `answering`: where to put the connection to the Sentinel that knows.
    Expected<Endpoint, Fault> find_master(const Limit& limit,
                                          std::optional<Connection>* answering = nullptr) {
        const Limit sooner = limit.within(options_.connect_timeout);
        const std::vector<Endpoint> sentinels = in_order();
        std::vector<Fault> faults;
        auto remaining = static_cast<int>(sentinels.size());
        for (const Endpoint& sentinel : sentinels) {
            // The master has to be connected to as well.
            const Clock::duration share = sooner.left() / (remaining + 1);
            auto master =
                ask(sentinel, sooner.within(std::min<Clock::duration>(share, patience)), answering);
            if (master) {
                put_first(sentinel);
                return master;
            }
            if (limit.cancelled()) return Unexpected{cancelled_fault()};
            faults.push_back(std::move(master).error());
            --remaining;
        }
        return Unexpected{nobody_knows(std::move(faults))};
    }

    /// What one Sentinel says.
    Expected<Endpoint, Fault> ask(const Endpoint& sentinel, const Limit& limit,
                                  std::optional<Connection>* answering) const {
        auto connection = options_.connect(sentinel, limit);
        if (!connection) return Unexpected{std::move(connection).error()};
        const Call question = Call::plain({"SENTINEL", "get-master-addr-by-name", service_});
        auto reply = connection->call(question.wire(), limit);
        if (!reply) return Unexpected{std::move(reply).error()};
        if (reply->view().is_nil()) return Unexpected{unknown_to(sentinel)};
        const ReplyView answer = reply->view();
        if (answer.size() != 2) return Unexpected{of(sentinel, unexpected_reply())};
        auto master = address(answer[0].text(), answer[1].text());
        if (!master) return Unexpected{of(sentinel, unexpected_reply())};
        if (answering != nullptr) answering->emplace(*std::move(connection));
        return *std::move(master);
    }

    std::optional<Endpoint> address(std::string_view host, std::string_view port) const {
        Endpoint master = master_;
        const char* const end = port.data() + port.size();
        const auto [stop, error] = std::from_chars(port.data(), end, master.port);
        if (!may_be_host(host) || error != std::errc{} || stop != end) return std::nullopt;
        master.host = host;
        return master;
    }

    static Fault of(const Endpoint& sentinel, Fault fault) {
        fault.error.node = sentinel.name();
        return fault;
    }

    Fault unknown_to(const Endpoint& sentinel) const {
        return of(sentinel,
                  {.error = {Errc::invalid_argument,
                             {},
                             {},
                             "this Sentinel knows no service '" + printable(service_) + "'",
                             {}},
                   .transient = false});
    }

    /// No Sentinel could help. That is for good only if all of them said so, for the same reason.
    Fault nobody_knows(std::vector<Fault> faults) const {
        const Errc code = faults.front().error.code;
        const bool for_good = std::all_of(faults.begin(), faults.end(), [code](const Fault& fault) {
            return !fault.transient && fault.error.code == code;
        });
        Fault fault = io_fault("no Sentinel names the master");
        if (for_good) fault.error.code = code;
        fault.transient = !for_good;
        fault.error.node = "service " + printable(service_);
        for (Fault& cause : faults) fault.error.causes.push_back(std::move(cause.error));
        return fault;
    }

    std::vector<Endpoint> in_order() const {
        const std::lock_guard lock{mutex_};
        return sentinels_;
    }

    void put_first(const Endpoint& sentinel) {
        const std::lock_guard lock{mutex_};
        const auto found =
            std::find_if(sentinels_.begin(), sentinels_.end(), [&sentinel](const Endpoint& other) {
                return other.host == sentinel.host && other.port == sentinel.port;
            });
        std::rotate(sentinels_.begin(), found, found + 1);
    }

    /// The epoch of connections to the master at `address`.
    unsigned arrive(const std::string& address) {
        std::unique_lock lock{mutex_};
        const std::string before = std::exchange(address_, address);
        const unsigned epoch = before.empty() || before == address ? this->epoch() : next_epoch();
        lock.unlock();
        if (before.empty()) {
            if (on_found_) on_found_();
        } else if (before != address) {
            tell_moved();
        }
        return epoch;
    }

    const std::string service_;
    const Endpoint master_;  // without its address
    const DialOptions options_;
    std::function<void()> on_found_;
    mutable std::mutex mutex_;
    std::vector<Endpoint> sentinels_;  // in the order in which to ask
    std::string address_;              // of the master; empty before it was found
};

}  // namespace redlatch::inline v0::detail
