#pragma once

#include <redlatch/core/quorum.hpp>
#include <redlatch/topology/member.hpp>
#include <redlatch/topology/round.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What several masters have answered to one command, as one.
class Answers {
public:
    Answers(Round::Answers all, Answer shape) : all_(std::move(all)), shape_(shape) {}

    bool any_repeated() const {
        return std::any_of(all_.begin(), all_.end(), [](const auto& answer) {
            return answer && *answer && (*answer)->repeated;
        });
    }

    /// The answer that stands for the masters' decision.
    Reply take_decision(Verdict verdict) && {
        const Vote wanted = verdict == Verdict::yes ? Vote::yes : Vote::no;
        std::optional<Expected<Reply, Fault>>* best = nullptr;
        for (auto& answer : all_) {
            if (!answer || !*answer || vote(**answer) != wanted) continue;
            if (best == nullptr || says_more((*answer)->view(), (**best)->view())) best = &answer;
        }
        return **std::move(*best);
    }

    /// Why there is no decision.
    Fault no_quorum() const {
        Fault fault{.error = {Errc::no_quorum, {}, {}, {}, {}}};
        std::vector<Errc> for_good;
        for (const auto& answer : all_) {
            if (!answer || *answer) continue;
            fault.error.causes.push_back(answer->error().error);
            if (!answer->error().transient) for_good.push_back(answer->error().error.code);
        }
        fault.error.message = std::to_string(fault.error.causes.size()) + " of " +
                              std::to_string(all_.size()) + " masters gave no usable answer";
        const std::size_t quorum = all_.size() / 2 + 1;
        fault.transient = for_good.size() <= all_.size() - quorum;
        const bool all_alike = std::all_of(for_good.begin(), for_good.end(),
                                           [&](Errc code) { return code == for_good.front(); });
        if (!fault.transient && all_alike) fault.error.code = for_good.front();
        return fault;
    }

private:
    Vote vote(const Reply& reply) const { return vote_of(reply.view(), shape_); }

    /// Of two answers that say the same: the later fencing token of an acquisition counts, the earlier
    /// end of somebody else's lease, and of a lock's owners the one that most know.
    bool says_more(const ReplyView& left, const ReplyView& right) const {
        if (shape_ == Answer::lock_info) {
            const std::size_t more = how_many_know(left);
            const std::size_t less = how_many_know(right);
            return more > less || (more == less && right[0].string()->empty());
        }
        if (shape_ != Answer::acquired) return false;
        if (left[0].integer() == 0) return left[1].integer() < right[1].integer();
        return fence(left) > fence(right);
    }

    static std::int64_t fence(const ReplyView& acquired) {
        return acquired.size() == 5U ? acquired[4].integer().value_or(0) : 0;
    }

    std::size_t how_many_know(const ReplyView& info) const {
        return static_cast<std::size_t>(
            std::count_if(all_.begin(), all_.end(), [&info](const auto& answer) {
                return answer && *answer && (*answer)->view()[0].string() == info[0].string();
            }));
    }

    Round::Answers all_;
    Answer shape_;
};

/// Several independent masters, a majority of which decides: Redlock. Thread-safe.
class Quorum final : public Topology {
public:
    /// What the several have in common.
    struct Terms {
        std::chrono::milliseconds node_timeout;
        std::chrono::milliseconds longest_lease;
    };

    /// `on_late` is told of a master that owes an answer which nobody waits for.
    Quorum(std::vector<std::unique_ptr<Dialer>> dialers, const NodeUse& use, Terms terms,
           const std::function<void(const std::string&)>& on_reconnect,
           std::function<void(Node&)> on_late)
        : terms_(terms), on_late_(std::move(on_late)) {
        for (auto& dialer : dialers) {
            members_.push_back(std::make_unique<Member>(std::move(dialer), use, on_reconnect));
        }
    }

    std::size_t voters() const noexcept override { return members_.size(); }

    Node& master_of(std::string_view) override { return members_.front()->node(); }

    std::vector<Node*> masters_of(std::string_view) override {
        std::vector<Node*> nodes;
        for (const auto& member : members_) nodes.push_back(&member->node());
        return nodes;
    }

    Expected<Reply, Fault> run_on_masters(const Call& call, const Call& again, const Limit& limit,
                                          Spread& spread) override {
        Round round{members_, call, again, rules_for(call.answer()), limit};
        const Verdict verdict = round.hold();
        round.tell(spread);
        if (spread.late != 0) round.leave_late(spread.settled, on_late_);
        const std::optional<Fault> broken_off = round.broken_off();
        Answers answers{std::move(round).answers(), call.answer()};

        const std::uint64_t unanswered = spread.asked & ~spread.answered;
        if (verdict != Verdict::yes && verdict != Verdict::no) {
            Fault fault = broken_off ? *broken_off : answers.no_quorum();
            fault.maybe_executed = (unanswered | spread.agreed) != 0;
            return Unexpected{std::move(fault)};
        }
        const bool unclear = is_taking(call.answer()) && (unanswered & ~spread.late) != 0;
        const bool repeated = unclear || answers.any_repeated();
        Reply decision = std::move(answers).take_decision(verdict);
        decision.repeated = repeated;
        return decision;
    }

    /// One that is known to be out of reach is not waited for.
    Expected<Connection, Fault> connect(Node& node, const Limit& limit) override {
        Member& member = member_of(node);
        if (member.is_doubtful()) {
            Member::Prospect prospect = member.request(-1);
            if (prospect.kind != Member::Prospect::Kind::coming) {
                return Unexpected{std::move(prospect.fault)};
            }
        }
        auto connection = node.connect(limit);
        if (!connection) member.failed(connection.error());
        return connection;
    }

    void failed(Node& node, const Fault& fault, const Limit&) override {
        member_of(node).failed(fault);
    }

    void close() override {
        for (const auto& member : members_) member->begin_to_close();
        for (const auto& member : members_) member->close();
    }

private:
    static bool is_taking(Answer answer) noexcept {
        return answer == Answer::ok_or_nil || answer == Answer::acquired;
    }

    RoundRules rules_for(Answer answer) const noexcept {
        if (is_taking(answer)) {
            return {terms_.node_timeout, terms_.longest_lease, &Ballot::on_taking};
        }
        const bool asks = answer == Answer::any || answer == Answer::lock_info;
        return {terms_.node_timeout, {}, asks ? &Ballot::on_asking : &Ballot::on_keeping};
    }

    Member& member_of(const Node& node) {
        return **std::find_if(members_.begin(), members_.end(),
                              [&node](const auto& member) { return &member->node() == &node; });
    }

    const Terms terms_;
    const std::function<void(Node&)> on_late_;
    Round::Members members_;
};

}  // namespace redlatch::inline v0::detail
