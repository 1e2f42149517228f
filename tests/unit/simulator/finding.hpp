#pragma once

#include "client.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

// ---- The map of a Cluster

inline std::optional<detail::SlotMap> ClusterMap::told(int master, int by) {
    const auto range = [](unsigned first, unsigned last, const detail::ServerAddress& address) {
        return detail::ToldSlots{first, last, address.host, address.port};
    };
    const auto its = address_of(master);
    const auto others = address_of(1);
    return detail::SlotMap::from({range(0, slot() - 1, others), range(slot(), slot(), its),
                                  range(slot() + 1, detail::slot_count - 1, others)},
                                 address_of(by).host);
}

inline void ClusterMap::refresh(TimePoint until, std::function<void()> settled) {
    take("wanted", refreshes_.wanted(client_->now()), {until, std::move(settled)});
}

inline void ClusterMap::take(const char* event, Turn turn, Waiter waiter) {
    turns().took(event, static_cast<std::size_t>(turn));
    switch (turn) {
        case Turn::skip: return waiter.settled();
        case Turn::ask: {
            std::vector<detail::ServerAddress> seeds;
            for (int i = 0; i < client_->world().plan->nodes.count; ++i) {
                seeds.push_back(address_of(i));
            }
            auto informants = detail::map_informants(std::move(seeds), map_.serving(), informant_,
                                                     refreshes_.was_misled());
            asked_first_ = informants.front();
            return ask_next(
                std::make_shared<detail::SlotMapInquiry>(std::move(informants), waiter.until),
                waiter.settled);
        }
        case Turn::wait: break;
    }
    const TimePoint until = waiter.until;
    auto waiting = std::make_shared<Waiter>(std::move(waiter));
    waiting_.push_back(waiting);
    client_->host().later(client_->host().moment_of(until), [this, waiting] {
        if (std::erase(waiting_, waiting) != 0) waiting->settled();
    });
}

inline void ClusterMap::ask_next(const std::shared_ptr<detail::SlotMapInquiry>& inquiry,
                                 const std::function<void()>& settled) {
    const auto ask = inquiry->next(client_->now());
    if (!ask) return end(inquiry->failed(client_->now()), settled);
    const int node = node_at(ask->node);
    const auto open = std::make_shared<bool>(true);
    client_->world().network->ask_node(
        client_->host(), client_->noise(), node,
        [this, inquiry, settled, open, node](std::optional<int> master) {
            if (!std::exchange(*open, false)) return;
            if (!master) return ask_next(inquiry, settled);
            map_ = *told(*master, node);
            informant_ = address_of(node);
            anybody_ = node;
            end(Outcome::learned, settled);
        });
    client_->host().later(client_->host().moment_of(ask->until), [this, inquiry, settled, open] {
        if (std::exchange(*open, false)) ask_next(inquiry, settled);
    });
}

inline void ClusterMap::end(Outcome outcome, const std::function<void()>& settled) {
    inquiries().took("ended", static_cast<std::size_t>(outcome));
    refreshes_.ended(outcome, client_->now());
    if (outcome == Outcome::cut_short) informant_ = asked_first_;
    const auto waiting = std::exchange(waiting_, {});
    settled();
    for (const auto& waiter : waiting) {
        take("waited", refreshes_.waited(client_->now()), std::move(*waiter));
    }
}

// ---- Sentinels

inline Dialling::Dialling(Client& client, TimePoint deadline, Wanted wanted, Done done)
    : client_(&client),
      lookup_(client.service().look_up(deadline)),
      deadline_(deadline),
      known_(client.service().master()),
      wanted_(std::move(wanted)),
      done_(std::move(done)) {}

inline void Dialling::start() {
    act("begin", lookup_.begin(client_->now()));
}

inline void Dialling::act(const char* event, Lookup::Action action) {
    coverage().took(event, action.index());
    visit([this](const auto& what) { carry_out(what); }, action);
}

inline void Dialling::carry_out(const Lookup::Ask& ask) {
    const auto open = std::make_shared<bool>(true);
    const int sentinel = static_cast<int>(ask.sentinel);
    client_->world().checker->sent_on(++asked_);
    client_->world().network->ask_sentinel(
        client_->host(), client_->noise(), sentinel,
        [self = shared_from_this(), open, sentinel](int master) {
            using Kind = detail::SentinelAnswer::Kind;
            if (!std::exchange(*open, false)) return;
            const auto [host, port] = address_of(master);
            self->act("answered",
                      self->lookup_.answered({Kind::address, host, std::to_string(port)},
                                             std::to_string(sentinel), self->client_->now()));
        });
    client_->host().later(
        client_->host().moment_of(ask.until), [self = shared_from_this(), open, sentinel] {
            if (!std::exchange(*open, false)) return;
            self->act("silent", self->lookup_.failed(
                                    {.error = {Errc::unavailable, {}, {}, "no answer in time", {}}},
                                    std::to_string(sentinel), self->client_->now()));
        });
}

inline void Dialling::carry_out(const Lookup::TryMaster& attempt) {
    client_->service().helped(lookup_.asked_last());
    const Moment way = 2 * client_->world().network->latency(client_->noise());
    client_->host().soon(
        way, [self = shared_from_this(), master = attempt.master] { self->connect(master); });
}

inline void Dialling::connect(const detail::ServerAddress& master) {
    if (!wanted_()) return;
    Network& network = *client_->world().network;
    auto made = network.connect(client_->host(), client_->noise(), node_at(master));
    if (made == nullptr) {
        Fault fault = Client::refused();
        client_->service().misled(lookup_.asked_last());
        return done_(Unexpected{std::move(fault)});
    }
    if (network.is_replica(*made)) {
        Fault fault{.error = {Errc::unavailable, {}, {}, "READONLY the server is a replica", {}}};
        client_->service().misled(lookup_.asked_last());
        return act("is a replica", lookup_.is_replica(std::move(fault), client_->now()));
    }
    const auto known = client_->service().master();
    if (!client_->found(master, lookup_)) {
        lookup_ = client_->service().look_up(deadline_);
        known_ = known;
        asked_ = 0;
        return act("outdated", lookup_.begin(client_->now()));
    }
    client_->world().checker->finds(known_, known, master);
    made->epoch = client_->epoch();
    done_(std::move(made));
}

inline void Dialling::carry_out(const Lookup::GiveUp& end) {
    client_->service().found_none(lookup_.asked_first());
    if (wanted_()) done_(Unexpected{end.fault});
}

// ---- One command in a Cluster

/// One command of a client to the nodes of a Cluster: carries out what `ClusterRedirection` says, as `Cluster`
/// does.
class ClusterAsking final : public Request, public std::enable_shared_from_this<ClusterAsking> {
public:
    ClusterAsking(Client& client, HoldPtr hold, const Call& call, const Call& again,
                  TimePoint answer_by, Done done)
        : client_(&client),
          hold_(std::move(hold)),
          call_(call),
          again_(again),
          answer_by_(answer_by),
          machine_(answer_by),
          done_(std::move(done)) {}

    void start() {
        const bool certain = client_->map().master_for_new_command().is_certain;
        act(certain ? "begin" : "begin in doubt",
            certain ? machine_.begin() : machine_.begin_in_doubt(client_->now()));
    }

    void cancel() override {
        if (!done_) return;
        if (const auto asking = std::exchange(asking_, {}).lock()) return asking->cancel();
        Fault fault = cancelled();
        fault.maybe_executed = machine_.unclear();
        settle(Unexpected{std::move(fault)});
    }

private:
    using Machine = detail::ClusterRedirection;

    void act(const char* event, Machine::Action action) {
        coverage().took(event, action.index());
        visit([this](const auto& what) { carry_out(what); }, action);
    }

    void carry_out(const Machine::SendToMaster&) { send_to(client_->map().master().node, false); }
    void carry_out(const Machine::SendTo& send) {
        send_to(node_at({send.to.host, send.to.port}), send.to.once);
    }
    void send_to(int node, bool once) {
        const Checker& checker = *client_->world().checker;
        checker.sent_on(++sendings_);
        if (std::exchange(to_ask_, false)) checker.follows_ask(once);
        const Call& first = at_ ? again_ : call_;
        at_ = node;
        const auto asking = std::make_shared<Asking>(
            *client_, hold_, first, again_, answer_by_, detail::ReplyUse::awaited,
            [self = shared_from_this()](Expected<Reply, Fault> reply, const auto&) {
                self->answered(std::move(reply));
            });
        asking_ = asking;
        asking->start(node, client_->take_idle(node), once);
    }

    void answered(Expected<Reply, Fault> reply) {
        asking_.reset();
        if (!done_) return;
        if (reply) {
            reply->repeated = reply->repeated || machine_.unclear();
            return settle(std::move(reply));
        }
        client_->map().note_move(reply.error());
        to_ask_ = reply.error().error.message.starts_with("ASK ");
        act("failed", machine_.failed(std::move(reply).error(), client_->now()));
    }

    void carry_out(const Machine::RefreshMap& refresh) {
        client_->map().refresh(refresh.until, [self = shared_from_this()] {
            if (!self->done_) return;
            const bool elsewhere = self->at_ != self->client_->map().master().node;
            self->act(elsewhere ? "map settled" : "map settled: the same",
                      self->machine_.map_settled(elsewhere, self->client_->now()));
        });
    }
    void carry_out(const Machine::Pause& pause) {
        client_->host().later(client_->host().moment_of(pause.until), [self = shared_from_this()] {
            if (!self->done_) return;
            self->act("pause over", self->machine_.pause_over(self->client_->now()));
        });
    }
    void carry_out(const Machine::GiveUp& end) {
        if (end.map_in_doubt) client_->map().suspect();
        settle(Unexpected{end.fault});
    }

    void settle(Expected<Reply, Fault> reply) {
        std::exchange(done_, nullptr)(std::move(reply), {});
    }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{
            "ClusterRedirection", {"SendToMaster", "SendTo", "RefreshMap", "Pause", "GiveUp"}};
        static_assert(Machine::Action::size == 5);
        return machine;
    }

    Client* client_;
    HoldPtr hold_;  // the call borrows from it
    Call call_;
    Call again_;
    TimePoint answer_by_;
    Machine machine_;
    Done done_;
    std::weak_ptr<Asking> asking_{};  // it keeps this one alive: a process that stops ends neither
    std::optional<int> at_{};         // where it was sent last
    int sendings_ = 0;
    bool to_ask_ = false;
};

}  // namespace redlatch::test::simulator
