#pragma once

#include <redlatch/core/quorum.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/topology/member.hpp>
#include <redlatch/topology/topology.hpp>

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// What an answer of the right shape says.
inline Vote vote_of(const ReplyView& reply, Answer answer) {
    switch (answer) {
        case Answer::integer: return reply.integer() != 0 ? Vote::yes : Vote::no;
        case Answer::ok_or_nil: return reply.is_nil() ? Vote::no : Vote::yes;
        case Answer::acquired:
        case Answer::moved: return reply[0].integer() == 1 ? Vote::yes : Vote::no;
        case Answer::any:
        case Answer::lock_info: break;
    }
    return Vote::yes;
}

/// How a round is held.
struct RoundRules {
    /// How long one master may take for its answer.
    std::chrono::milliseconds node_timeout;
    /// A master that started less than so long ago has no vote; zero where each has one.
    std::chrono::milliseconds least_age;
    /// What the votes so far amount to.
    Verdict (Ballot::*verdict)() const noexcept;
};

/// One command to several masters at once, over one `poll` with one deadline. It is over as soon as it
/// is decided: whoever has not answered by then does so to whoever uses that connection next. A master
/// that is out of reach is waited for only where nothing can be decided without it. One thread.
class Round {
public:
    using Members = std::vector<std::unique_ptr<Member>>;

    /// Borrows all. `again`: for where a connection had died while it lay idle.
    Round(const Members& members, const Call& call, const Call& again, const RoundRules& rules,
          Limit limit)
        : call_(&call),
          again_(&again),
          rules_(rules),
          limit_(std::move(limit)),
          ballot_(members.size()) {
        seats_.reserve(members.size());
        for (const auto& member : members) seats_.emplace_back(*member);
    }
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;
    ~Round() {
        for (Seat& seat : seats_) seat.member->forget(wake_.get());
    }

    /// Asks everybody and blocks until it is decided, for as long as `limit` allows.
    Verdict hold() {
        for (Seat& seat : seats_) begin(seat);
        while (!is_over()) {
            if (auto news = wait(); !news) {
                broken_off_ = std::move(news).error();
                break;
            }
            for (Seat& seat : seats_) look_at(seat);
        }
        const Verdict decided = verdict();
        for (Seat& seat : seats_) close(seat);
        return decided == Verdict::open ? verdict() : decided;
    }

    /// The caller has cancelled it, or the system is out of something.
    const std::optional<Fault>& broken_off() const noexcept { return broken_off_; }

    /// How far the command has got.
    void tell(Spread& spread) const {
        std::uint64_t bit = 1;
        for (const Seat& seat : seats_) {
            const bool answered = seat.answer && *seat.answer;
            if (seat.asked) spread.asked |= bit;
            if (answered) spread.answered |= bit;
            if (answered && vote_of((*seat.answer)->view(), call_->answer()) == Vote::yes) {
                spread.agreed |= bit;
            }
            if (seat.loan) spread.late |= bit;
            bit <<= 1U;
        }
    }

    /// Leaves the answers to come to whoever uses the connections next. `settled` may be empty.
    template <class OnLate>
    void leave_late(const Settled& settled, const OnLate& on_late) {
        for (Seat& seat : seats_) {
            if (!seat.loan) continue;
            (*seat.loan)
                ->owe(seat.exchange.command(), call_->answer(),
                      [member = seat.member, settled](const Expected<Reply, Fault>& reply) {
                          if (!reply && reply.error().maybe_executed) member->failed(reply.error());
                          if (settled) settled(reply.has_value());
                      });
            seat.loan.reset();
            on_late(seat.member->node());
        }
    }

    /// What each master has answered: nothing for one that has not.
    using Answers = std::vector<std::optional<Expected<Reply, Fault>>>;
    Answers answers() && {
        Answers all;
        for (Seat& seat : seats_) all.push_back(std::move(seat.answer));
        return all;
    }

private:
    enum class Stage : std::uint8_t {
        reaching,  ///< there will be a connection
        hoping,    ///< there may be one
        asked,
        done,
    };

    struct Seat {
        explicit Seat(Member& m) : member(&m) {}

        Member* member;
        Stage stage = Stage::reaching;
        std::optional<Pool::Loan> loan{};  ///< while an answer is to come
        Exchange exchange{ReplyUse::may_be_left};
        TimePoint reached_by{};
        TimePoint answer_by{};
        bool asked = false;            ///< the command was sent, and may have been carried out
        std::optional<Fault> doubt{};  ///< why there may be no connection
        std::optional<Expected<Reply, Fault>> answer{};
    };

    /// Somebody else may give a connection back, which nobody tells.
    static constexpr std::chrono::milliseconds look_again{10};

    template <class Predicate>
    std::size_t count(Predicate fits) const {
        return static_cast<std::size_t>(std::count_if(seats_.begin(), seats_.end(), fits));
    }
    bool any(Stage stage) const {
        return count([stage](const Seat& seat) { return seat.stage == stage; }) > 0;
    }

    Verdict verdict() const { return (ballot_.*rules_.verdict)(); }

    bool is_over() const {
        const Verdict decided = verdict();
        if (decided == Verdict::yes) return !worth_a_moment();
        if (decided != Verdict::open) return true;
        if (any(Stage::asked) || any(Stage::reaching)) return false;
        return ballot_.has_quorum() || !any(Stage::hoping);
    }

    /// A lock stands the safer the more masters have it: those that are just being connected to for the
    /// first time get a moment to be asked too.
    bool worth_a_moment() const {
        const TimePoint now = Clock::now();
        return count([now](const Seat& seat) {
                   return seat.stage == Stage::reaching && now < seat.reached_by;
               }) > 0;
    }

    void begin(Seat& seat) {
        auto loan = seat.member->is_doubtful() ? std::nullopt : seat.member->node().borrow_idle();
        if (loan) {
            ask(seat, *std::move(loan));
        } else {
            reach(seat);
        }
    }

    /// There is no connection.
    void reach(Seat& seat) {
        if (!wake_.valid()) wake_ = Descriptor{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
        Member::Prospect prospect = seat.member->request(wake_.get());
        using Kind = Member::Prospect::Kind;
        if (prospect.kind == Kind::none) {
            fail(seat, std::move(prospect.fault));
            return;
        }
        seat.stage = prospect.kind == Kind::coming ? Stage::reaching : Stage::hoping;
        seat.reached_by = saturating_add(prospect.since, rules_.node_timeout);
        if (prospect.kind == Kind::doubtful) seat.doubt = std::move(prospect.fault);
    }

    void ask(Seat& seat, Pool::Loan loan) {
        if (auto fault = too_young(*std::as_const(loan))) {
            fail(seat, *std::move(fault));
            return;
        }
        seat.loan.emplace(std::move(loan));
        const Call& call = seat.exchange.command().reconnected() ? *again_ : *call_;
        seat.exchange.use(**seat.loan, seat.loan->reused(), call, seat.member->node().key_access());
        send(seat);
    }

    void send(Seat& seat) {
        seat.stage = Stage::asked;
        seat.asked = true;
        const Limit limit = limit_.within(rules_.node_timeout);
        seat.answer_by = limit.at;
        if (auto sent = seat.exchange.send(limit); !sent) {
            heard(seat, Unexpected{std::move(sent).error()});
        }
    }

    /// A server that has restarted may have forgotten who holds what.
    std::optional<Fault> too_young(const Connection& connection) const {
        if (rules_.least_age == rules_.least_age.zero()) return std::nullopt;
        const auto started_by = connection.started_by();
        if (started_by && saturating_sub(Clock::now(), *started_by) >= rules_.least_age) {
            return std::nullopt;
        }
        Fault fault = started_by
                          ? io_fault("restarted a moment ago: has no vote for longest_lease, " +
                                     std::to_string(rules_.least_age.count()) + " ms")
                          : Fault{.error = {Errc::denied,
                                            {},
                                            {},
                                            "INFO is denied, so nobody knows whether it has just "
                                            "restarted: allow it, or set longest_lease to 0",
                                            {}},
                                  .transient = false};
        fault.error.node = connection.node();
        return fault;
    }

    /// Blocks until there may be something new, or the time for something is over.
    Expected<bool, Fault> wait() {
        std::vector<pollfd> entries;
        Limit limit = limit_;
        for (const Seat& seat : seats_) {
            if (seat.stage != Stage::asked) continue;
            entries.push_back((**seat.loan).more_to_come());
            limit.at = std::min(limit.at, seat.answer_by);
        }
        if (any(Stage::reaching) || any(Stage::hoping)) {
            entries.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
            limit = limit.within(look_again);
        }
        auto news = wait_any(entries, limit);
        std::uint64_t rings = 0;
        [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &rings, sizeof rings);
        return news;
    }

    void look_at(Seat& seat) {
        if (seat.stage == Stage::asked) look_for_answer(seat);
        if (seat.stage == Stage::reaching || seat.stage == Stage::hoping) look_for_connection(seat);
    }

    void look_for_connection(Seat& seat) {
        if (limit_.over()) {
            fail(seat, seat.doubt.value_or(io_fault("no connection in time")));
        } else {
            begin(seat);
        }
    }

    void look_for_answer(Seat& seat) {
        auto reply = (*seat.loan)->receive_if_there();
        if (!reply) {
            heard(seat, Unexpected{std::move(reply).error()});
        } else if (*reply) {
            heard(seat, **std::move(reply));
        } else if (Clock::now() >= seat.answer_by) {
            Fault fault = io_fault("no answer in time");
            fault.maybe_executed = true;
            fail(seat, std::move(fault));
        }
    }

    void heard(Seat& seat, Expected<Reply, Fault> reply) {
        seat.member->node().note(reply);
        const CommandStep step = seat.exchange.judge(reply);
        if (step.next == CommandStep::Next::send) {
            send(seat);
            return;
        }
        Node& node = seat.member->node();
        if (reply) node.learn(seat.exchange);
        if (step.leave_server) node.leave(**seat.loan);
        seat.loan.reset();
        if (step.next == CommandStep::Next::reconnect) {
            node.drop_idle();
            reach(seat);
        } else if (reply) {
            count_in(seat, *std::move(reply));
        } else {
            fail(seat, std::move(reply).error());
        }
    }

    void count_in(Seat& seat, Reply reply) {
        if (const Reply* const other = answer_of(reply.server)) {
            fail(seat,
                 {.error = {Errc::invalid_argument,
                            {},
                            {},
                            "the same server as another one of the list, run id " + *other->server,
                            {}},
                  .transient = false});
            return;
        }
        ballot_.cast(vote_of(reply.view(), call_->answer()));
        seat.stage = Stage::done;
        seat.answer.emplace(std::move(reply));
    }

    /// The answer that the server with this run id has given already.
    const Reply* answer_of(const std::shared_ptr<const std::string>& server) const {
        if (server == nullptr) return nullptr;
        for (const Seat& seat : seats_) {
            if (!seat.answer || !*seat.answer) continue;
            const auto& known = (*seat.answer)->server;
            if (known != nullptr && *known == *server) return &**seat.answer;
        }
        return nullptr;
    }

    void fail(Seat& seat, Fault fault) {
        fault.maybe_executed = fault.maybe_executed || seat.exchange.command().unclear();
        if (fault.error.node.empty()) fault.error.node = seat.member->node().name();
        ballot_.cast(Vote::none);
        seat.stage = Stage::done;
        seat.asked = fault.maybe_executed;
        if (fault.maybe_executed) seat.member->failed(fault);
        seat.answer.emplace(Unexpected{std::move(fault)});
    }

    /// It is decided without this one.
    void close(Seat& seat) {
        if (seat.stage == Stage::hoping) {
            fail(seat, *seat.doubt);
        } else if (seat.stage == Stage::reaching) {
            seat.stage = Stage::done;
            ballot_.cast(Vote::none);
        }
    }

    const Call* call_;
    const Call* again_;
    const RoundRules rules_;
    const Limit limit_;
    Ballot ballot_;
    std::vector<Seat> seats_;
    Descriptor wake_;  // rung when there may be a connection
    std::optional<Fault> broken_off_;
};

}  // namespace redlatch::inline v0::detail
