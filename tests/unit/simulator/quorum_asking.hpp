#pragma once

#include "finding.hpp"
#include <redlatch/core/command_order.hpp>
#include <redlatch/core/quorum_call.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// One command of a client to several masters: carries out what `QuorumCall` says, as `QuorumPoll` does.
class QuorumAsking final : public Request, public std::enable_shared_from_this<QuorumAsking> {
public:
    QuorumAsking(Client& client, HoldPtr hold, const Call& call, const Call& again,
                 TimePoint answer_by, Done done, OnLate on_late)
        : client_(&client),
          hold_(std::move(hold)),
          call_(call),
          again_(again),
          answer_by_(answer_by),
          machine_(static_cast<std::size_t>(client.world().plan->masters),
                   client.quorum_rules(call.shape()), answer_by),
          token_(hold_->open_tries.at_masters),
          order_(owed_answers()),
          legs_(static_cast<std::size_t>(client.world().plan->masters)),
          done_(std::move(done)),
          on_late_(std::move(on_late)) {}

    void start() {
        for (std::size_t i = 0; i < legs_.size(); ++i) connect(i);
        may_overtake_ = order_.may_overtake();
        client_->host().soon(0ns, [self = shared_from_this()] { self->go_on(); });
    }

    void cancel() override {
        if (done_) finish(cancelled());
    }

    bool may_overtake() const override { return may_overtake_; }

private:
    using Order = detail::CommandOrder;
    using Verdict = detail::Verdict;

    struct Leg {
        std::shared_ptr<Connection> connection{};  // while an answer is to come
        detail::Command command{detail::ReplyUse::may_be_left};
        TimePoint sent{};
        std::uint64_t sendings = 0;
        std::optional<Reply> reply{};
        std::shared_ptr<LateAnswer> late{};
        bool reported = false;
    };

    /// Somebody else may give a connection back, which nobody tells.
    static constexpr milliseconds look_again{10};

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"QuorumCall", {"open", "yes", "no", "unknown"}};
        return machine;
    }

    TimePoint now() const { return client_->now(); }

    void go_on() {
        if (!done_) return;
        machine_.pass_time(now());
        for (std::size_t i = 0; i < legs_.size(); ++i) {
            if (machine_.unconnected(i)) connect(i);
        }
        report_faults();
        if (machine_.is_over(now())) return finish(std::nullopt);
        TimePoint due = machine_.next_due(now());
        if (machine_.any_unconnected()) due = std::min(due, now() + look_again);
        if (due == wakes_at_) return;
        wakes_at_ = due;
        client_->host().later(client_->host().moment_of(due), [self = shared_from_this(), due] {
            if (self->wakes_at_ != due) return;
            self->wakes_at_ = TimePoint::max();
            self->go_on();
        });
    }

    void connect(std::size_t i) {
        const int master = static_cast<int>(i);
        auto idle = client_->link(master).reach.is_doubtful() ? nullptr : borrow(master);
        if (idle == nullptr) {
            auto wake = [self = shared_from_this()] { self->go_on(); };
            return machine_.not_connected(i, client_->request(master, std::move(wake)));
        }
        if (!machine_.admit(i, idle->started_by, now())) {
            idle->fresh = !idle->reused;
            return client_->give_back(std::move(idle));
        }
        Leg& leg = legs_[i];
        leg.connection = std::move(idle);
        leg.command.connected(traits_of(*client_, call_of(leg), *leg.connection));
        send(i);
    }

    /// How many answers the masters still owe the token.
    std::int64_t owed_answers() const { return token_ == nullptr ? 0 : token_->unsettled(); }

    std::shared_ptr<Connection> borrow(int master) {
        for (const Order::Connection wanted : order_.choices(owed_answers())) {
            if (auto connection = borrow(master, wanted)) return connection;
        }
        return nullptr;
    }

    std::shared_ptr<Connection> borrow(int master, Order::Connection wanted) {
        if (wanted == Order::Connection::idle) {
            return client_->take_idle(master,
                                      [](const Connection& one) { return one.left() == 0; });
        }
        const bool behind_own = wanted == Order::Connection::behind_own;
        const void* const about = behind_own ? token_.get() : nullptr;
        const TimePoint since = now() - client_->world().plan->node_timeout;
        auto connection = client_->take_idle(master, [about, since](const Connection& one) {
            return one.left(about) > 0 && one.left_since() > since;
        });
        if (connection != nullptr && behind_own) order_.goes_behind(connection->left(about));
        return connection;
    }

    const Call& call_of(const Leg& leg) const { return leg.command.reconnected() ? again_ : call_; }

    void send(std::size_t i) {
        Leg& leg = legs_[i];
        leg.sent = now();
        const TimePoint answer_by = machine_.send(i, leg.sent);
        client_->world().network->send(
            client_->host(), client_->noise(), leg.connection, call_of(leg),
            encode(leg.command, *leg.connection, leg.sent, answer_by), client_->number(),
            client_->too_late(answer_by),
            [self = shared_from_this(), i, number = ++leg.sendings](Arrived what) {
                self->arrived(i, number, std::move(what));
            });
    }

    void arrived(std::size_t i, std::uint64_t number, Arrived arrived) {
        Leg& leg = legs_[i];
        if (number != leg.sendings) return;
        if (!done_ || !machine_.waits_for(i)) return arrived_late(leg, arrived);
        if (!arrived.value) {
            failed(i, arrived.maybe_executed);
        } else {
            take(i, *arrived.value);
        }
        go_on();
    }

    void take(std::size_t i, const ModelRedis::Value& value) {
        Leg& leg = legs_[i];
        auto reply = decode(*client_, call_of(leg), *leg.connection, leg.sent, value);
        const detail::CommandStep step = judge(leg.command, reply);
        if (step.next == detail::CommandStep::Next::send) return send(i);
        client_->give_back(std::exchange(leg.connection, nullptr));
        if (!reply) return machine_.failed(i, std::move(reply).error());
        machine_.answered(i, detail::master_answer(*reply, call_.shape()));
        leg.reply.emplace(*std::move(reply));
    }

    void failed(std::size_t i, bool maybe_executed) {
        Leg& leg = legs_[i];
        leg.connection = nullptr;
        const detail::CommandStep step =
            leg.command.failed({.disconnected = true, .maybe_executed = maybe_executed});
        command_coverage().took("failed", static_cast<std::size_t>(step.next));
        if (step.next == detail::CommandStep::Next::reconnect) {
            machine_.disconnected(i, leg.command.unclear());
            return connect(i);
        }
        machine_.failed(i, {.error = {Errc::unavailable, {}, {}, "the connection has ended", {}},
                            .maybe_executed = leg.command.unclear()});
    }

    void report_faults() {
        for (std::size_t i = 0; i < legs_.size(); ++i) {
            const Fault* const fault = machine_.fault(i);
            if (fault == nullptr || std::exchange(legs_[i].reported, true)) continue;
            if (fault->maybe_executed) client_->master_failed(static_cast<int>(i), *fault);
        }
    }

    // ---- The end

    void finish(std::optional<Fault> broken_off) {
        const Verdict verdict = machine_.end();
        coverage().took(broken_off ? "cancelled" : "over", static_cast<std::size_t>(verdict));
        report_faults();
        const auto done = std::exchange(done_, nullptr);
        const detail::MasterSets sets = machine_.sets();
        for (Leg& leg : legs_) {
            if (leg.connection != nullptr) leave(leg);
        }
        if (verdict == Verdict::yes || verdict == Verdict::no) {
            Reply decision = *std::move(legs_[machine_.deciding_master()].reply);
            decision.repeated = machine_.is_repeated();
            return done(std::move(decision), sets);
        }
        Fault fault = broken_off ? *std::move(broken_off) : machine_.no_quorum();
        fault.maybe_executed = machine_.maybe_executed();
        done(Unexpected{std::move(fault)}, sets);
    }

    /// Whoever uses the connection next reads the answer, or another thread does.
    void leave(Leg& leg) {
        const int master = leg.connection->master;
        leg.late = std::make_shared<LateAnswer>(
            [this_client = client_, master, told = on_late_, hold = hold_](bool answered) {
                if (!answered) {
                    this_client->master_failed(
                        master, {.error = {Errc::unavailable, {}, {}, "no answer in time", {}}});
                }
                if (told) told(answered);
            },
            detail::subject_of(call_.shape()) == detail::QuorumSubject::taking ? token_.get()
                                                                               : nullptr,
            now());
        auto connection = std::exchange(leg.connection, nullptr);
        if (!connection->alive) return leg.late->settle(false);
        connection->late.push_back(leg.late);
        client_->host().soon(client_->command_timeout(), [late = leg.late, connection] {
            if (!late->settled()) connection->close();
        });
        client_->give_back(std::move(connection));
    }

    /// Nobody waits for it any more, or nobody reads it yet.
    void arrived_late(Leg& leg, const Arrived& arrived) {
        if (leg.late == nullptr) {
            client_->host().soon(1ms, [self = shared_from_this(), &leg, arrived] {
                self->arrived_late(leg, arrived);
            });
            return;
        }
        leg.late->settle(arrived.value && !arrived.value->is_error());
    }

    Client* client_;
    HoldPtr hold_;  // the call borrows from it
    Call call_;
    Call again_;
    TimePoint answer_by_;
    detail::QuorumCall machine_;
    std::shared_ptr<detail::TokenAtMasters> token_;  // whose command it is
    Order order_;
    bool may_overtake_ = false;
    std::vector<Leg> legs_;
    Done done_;
    OnLate on_late_;
    TimePoint wakes_at_ = TimePoint::max();
};

inline std::shared_ptr<Request> Client::ask(HoldPtr hold, const Call& call, const Call& again,
                                            TimePoint answer_by, Request::Done done,
                                            Request::OnLate on_late) {
    if (world_->plan->has_several_masters()) {
        auto asking = std::make_shared<QuorumAsking>(*this, std::move(hold), call, again, answer_by,
                                                     std::move(done), std::move(on_late));
        asking->start();
        return asking;
    }
    if (world_->plan->is_cluster()) {
        auto asking = std::make_shared<ClusterAsking>(*this, std::move(hold), call, again,
                                                      answer_by, std::move(done));
        asking->start();
        return asking;
    }
    const int place = place_of_master();
    auto asking = std::make_shared<Asking>(*this, std::move(hold), call, again, answer_by,
                                           detail::ReplyUse::awaited, std::move(done));
    asking->start(place, take_idle(place));
    return asking;
}

}  // namespace redlatch::test::simulator
