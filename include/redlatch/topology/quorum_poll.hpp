#pragma once

#include <redlatch/core/command_order.hpp>
#include <redlatch/core/quorum_call.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/wake_descriptor.hpp>
#include <redlatch/topology/master.hpp>
#include <redlatch/topology/quorum_reply.hpp>
#include <redlatch/topology/topology.hpp>

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Runs one `QuorumCall` over one `poll` with one deadline. A master that has not answered in time does so to
/// the next user of that connection. One thread.
class QuorumPoll {
public:
    using Masters = std::list<Master>;

    /// Borrows all. `again`: for where a connection had died while it lay idle. `token`: whose command it
    /// is; null where that does not matter.
    QuorumPoll(Masters& masters, const Call& call, const Call& again, const QuorumRules& rules,
               const TokenAtMasters* token, Limit limit)
        : call_(&call),
          again_(&again),
          limit_(std::move(limit)),
          rules_(rules),
          machine_(masters.size(), rules, limit_.at),
          token_(token),
          order_(owed_answers()) {
        legs_.reserve(masters.size());
        for (Master& master : masters) legs_.emplace_back(master);
    }
    QuorumPoll(const QuorumPoll&) = delete;
    QuorumPoll& operator=(const QuorumPoll&) = delete;
    ~QuorumPoll() {
        for (Leg& leg : legs_) leg.master->forget(wake_);
    }

    /// Asks everybody and blocks until it is decided, for as long as the limit allows: what they have
    /// decided.
    Expected<Reply, Fault> run(QuorumProgress& progress) {
        for (std::size_t i = 0; i < legs_.size(); ++i) connect(i);
        progress.may_overtake = order_.may_overtake();
        std::optional<Fault> broken_off = exchange();
        const Verdict verdict = machine_.end();
        progress.masters = machine_.sets();
        report_faults();
        if (verdict == Verdict::yes || verdict == Verdict::no) {
            Reply decision = *std::move(legs_[machine_.deciding_master()].reply);
            decision.repeated = machine_.is_repeated();
            return decision;
        }
        Fault fault = broken_off ? *std::move(broken_off) : machine_.no_quorum();
        fault.maybe_executed = machine_.maybe_executed();
        return Unexpected{std::move(fault)};
    }

    /// Leaves the answers to come to the next users of the connections. `on_late_reply` may be empty.
    template <class OnLate>
    void leave_late(const OnLateReply& on_late_reply, const OnLate& on_late) {
        for (Leg& leg : legs_) {
            if (!leg.loan) continue;
            (*leg.loan)->expect(
                leg.exchange.left(),
                [master = leg.master, on_late_reply](const Expected<Reply, Fault>& reply) {
                    if (!reply && reply.error().maybe_executed) master->failed(reply.error());
                    if (on_late_reply) on_late_reply(reply.has_value());
                },
                rules_.subject == QuorumSubject::taking ? token_ : nullptr);
            leg.loan.reset();
            on_late(leg.master->node());
        }
    }

private:
    struct Leg {
        explicit Leg(Master& m) : master(&m) {}

        Master* master;
        std::optional<Pool::Loan> loan{};  ///< while an answer is to come
        Exchange exchange{ReplyUse::may_be_left};
        std::optional<Reply> reply{};
        bool reported = false;  ///< why there is none
    };

    /// Somebody else may give a connection back, which nobody tells.
    static constexpr std::chrono::milliseconds look_again{10};

    /// What broke it off: the caller has cancelled it, or the system is out of something.
    std::optional<Fault> exchange() {
        while (!machine_.is_over(Clock::now())) {
            if (auto news = wait(); !news) return std::move(news).error();
            for (std::size_t i = 0; i < legs_.size(); ++i) {
                if (machine_.waits_for(i)) read(i);
            }
            machine_.pass_time(Clock::now());
            for (std::size_t i = 0; i < legs_.size(); ++i) {
                if (machine_.unconnected(i)) connect(i);
            }
            report_faults();
        }
        return std::nullopt;
    }

    /// Blocks until there may be something new, or the time for something is over.
    Expected<bool, Fault> wait() {
        std::vector<pollfd> entries;
        for (std::size_t i = 0; i < legs_.size(); ++i) {
            if (machine_.waits_for(i)) entries.push_back((*legs_[i].loan)->more_to_come());
        }
        Limit limit{machine_.next_due(Clock::now()), limit_.stop};
        if (machine_.any_unconnected()) {
            entries.push_back(wake_.entry());
            limit = limit.within(look_again);
        }
        auto news = wait_any(entries, limit);
        wake_.reset();
        return news;
    }

    void connect(std::size_t i) {
        Leg& leg = legs_[i];
        auto loan = leg.master->is_doubtful() ? std::nullopt : borrow(leg.master->node());
        if (!loan) {
            machine_.not_connected(i, leg.master->request(wake_.open() ? &wake_ : nullptr));
            return;
        }
        if (!machine_.admit(i, (*loan)->started_by(), Clock::now())) return;
        leg.loan.emplace(*std::move(loan));
        const Call& call = leg.exchange.command().reconnected() ? *again_ : *call_;
        leg.exchange.use(**leg.loan, leg.loan->reused(), call, leg.master->node().key_access());
        send(i);
    }

    /// How many answers the masters still owe the token.
    std::int64_t owed_answers() const noexcept {
        return token_ == nullptr ? 0 : token_->unsettled();
    }

    std::optional<Pool::Loan> borrow(Node& node) {
        for (const CommandOrder::Connection wanted : order_.choices(owed_answers())) {
            if (auto loan = borrow(node, wanted)) return loan;
        }
        return std::nullopt;
    }

    std::optional<Pool::Loan> borrow(Node& node, CommandOrder::Connection wanted) {
        if (wanted == CommandOrder::Connection::idle) return node.borrow_idle();
        const bool behind_own = wanted == CommandOrder::Connection::behind_own;
        auto loan =
            node.borrow_behind(Clock::now() - rules_.node_timeout, behind_own ? token_ : nullptr);
        if (loan && behind_own) order_.goes_behind((*loan)->pending_about(token_));
        return loan;
    }

    void send(std::size_t i) {
        const Limit limit{machine_.send(i, Clock::now()), limit_.stop};
        if (auto sent = legs_[i].exchange.send(limit); !sent) {
            take(i, Unexpected{std::move(sent).error()});
        }
    }

    void read(std::size_t i) {
        auto drained = (*legs_[i].loan)->drain_available();
        if (!drained) return take(i, Unexpected{std::move(drained).error()});
        if (!*drained) return;
        auto reply = (*legs_[i].loan)->receive_if_there();
        if (!reply) {
            take(i, Unexpected{std::move(reply).error()});
        } else if (*reply) {
            take(i, **std::move(reply));
        }
    }

    void take(std::size_t i, Expected<Reply, Fault> reply) {
        Leg& leg = legs_[i];
        Node& node = leg.master->node();
        node.note(reply);
        const CommandStep step = leg.exchange.judge(reply);
        if (step.next == CommandStep::Next::send) return send(i);
        if (reply) node.learn(leg.exchange);
        if (step.leave_server) node.leave(**leg.loan);
        leg.loan.reset();
        if (step.next == CommandStep::Next::reconnect) {
            node.drop_idle();
            machine_.disconnected(i, leg.exchange.command().unclear());
            connect(i);
        } else if (reply) {
            machine_.answered(i, master_answer(*reply, call_->shape()));
            leg.reply.emplace(*std::move(reply));
        } else {
            machine_.failed(i, std::move(reply).error());
        }
    }

    /// Names the masters that have failed, and has them reached anew before they are asked again.
    void report_faults() {
        for (std::size_t i = 0; i < legs_.size(); ++i) {
            Fault* const fault = machine_.fault(i);
            if (fault == nullptr || std::exchange(legs_[i].reported, true)) continue;
            Master& master = *legs_[i].master;
            if (fault->error.node.empty()) fault->error.node = master.node().name();
            if (machine_.has_to_be_reached_anew(i)) master.failed(*fault);
        }
    }

    const Call* call_;
    const Call* again_;
    const Limit limit_;
    const QuorumRules rules_;
    QuorumCall machine_;
    const TokenAtMasters* const token_;
    CommandOrder order_;
    std::vector<Leg> legs_;
    WakeDescriptor wake_;  // rung when there may be a connection
};

}  // namespace redlatch::inline v0::detail
