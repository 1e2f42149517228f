#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/master_sets.hpp>
#include <redlatch/core/vote_count.hpp>

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

/// What a command to several masters is about.
enum class QuorumSubject : std::uint8_t {
    taking,   ///< a lock that is wanted
    keeping,  ///< a lock that is ours
    asking,   ///< each answers as it sees it
};

/// How several masters decide about one command.
struct QuorumRules {
    QuorumSubject subject;
    std::chrono::milliseconds node_timeout;  ///< how long one master may take for its answer
    /// Where a lock is wanted, a master that started less than so long ago has no vote; zero where
    /// each has one.
    std::chrono::milliseconds least_age;

    /// Whether one that started at `started_by` at the latest may have forgotten who holds what.
    bool may_have_forgotten(std::optional<TimePoint> started_by, TimePoint now) const {
        if (least_age == std::chrono::milliseconds::zero()) return false;
        const auto too_short = saturating_cast<Clock::duration>(least_age);
        return !started_by || saturating_sub(now, *started_by) < too_short;
    }
};

/// Whether there will be a connection to a master.
struct ConnectStatus {
    enum class Kind : std::uint8_t {
        coming,    ///< one is being made
        doubtful,  ///< likewise, but the last command or attempt failed
        none,      ///< an attempt has failed just now
    };
    Kind kind;
    Fault fault{};      ///< why, where doubtful or none
    TimePoint since{};  ///< where coming: when it was asked for
};

/// What one master has answered.
struct MasterAnswer {
    Vote vote = Vote::none;
    bool repeated = false;   ///< an earlier sending may have been executed too
    std::int64_t fence = 0;  ///< of a lock that was taken
    std::int64_t ttl = 0;    ///< of a lock that somebody else has
    /// Who has it, each by a text of its own; nothing where that was not asked.
    std::optional<std::vector<std::string>> owners{};
    std::shared_ptr<const std::string> server{};  ///< its run id; null if it keeps that to itself
};

/// Decides how one command goes to several masters at once, and what their answers amount to. It is over
/// as soon as the answers to come can change nothing. A master that is out of reach is waited for
/// only where nothing can be decided without it.
///
/// The driver seeks a connection to each master that is `unconnected`, sends there what `admit`
/// lets it, and tells what becomes of that.
class QuorumCall {
public:
    QuorumCall(std::size_t masters, const QuorumRules& rules, TimePoint deadline)
        : rules_(rules), deadline_(deadline), votes_(masters), legs_(masters) {}

    /// A connection is to be sought for it.
    bool unconnected(std::size_t master) const noexcept {
        const Stage stage = legs_[master].stage;
        return stage == Stage::connecting || stage == Stage::doubtful;
    }
    bool any_unconnected() const noexcept { return has(Stage::connecting) || has(Stage::doubtful); }

    /// Its answer is waited for.
    bool waits_for(std::size_t master) const noexcept {
        return legs_[master].stage == Stage::asked;
    }

    /// There is no connection to it just now.
    void not_connected(std::size_t master, ConnectStatus status) {
        Leg& leg = legs_[master];
        if (status.kind == ConnectStatus::Kind::none) {
            fail(leg, std::move(status.fault));
            return;
        }
        const bool doubtful = status.kind == ConnectStatus::Kind::doubtful;
        leg.stage = doubtful ? Stage::doubtful : Stage::connecting;
        if (!doubtful && leg.connected_by == TimePoint{}) {
            leg.connected_by = saturating_add(status.since, rules_.node_timeout);
        }
        if (doubtful) leg.fault = std::move(status.fault);
    }

    /// There is a connection to it, and it started at `started_by` at the latest. Whether it may be
    /// asked: a master that has restarted may have forgotten who holds what.
    bool admit(std::size_t master, std::optional<TimePoint> started_by, TimePoint now) {
        const bool old_enough =
            rules_.subject != QuorumSubject::taking || !rules_.may_have_forgotten(started_by, now);
        if (!old_enough) fail(legs_[master], started_by ? too_young() : age_unknown());
        return old_enough;
    }

    /// The command goes out to it. Until when its answer is waited for.
    TimePoint send(std::size_t master, TimePoint now) {
        Leg& leg = legs_[master];
        leg.stage = Stage::asked;
        leg.fault.reset();
        leg.asked = true;
        leg.answer_due = true;
        const TimePoint whole_time = saturating_add(now, rules_.node_timeout);
        leg.answer_by = std::min(deadline_, whole_time);
        leg.cut_short = leg.answer_by < whole_time;
        return leg.answer_by;
    }

    void answered(std::size_t master, MasterAnswer answer) {
        Leg& leg = legs_[master];
        leg.answer_due = false;
        if (answer.server != nullptr && has_answered(*answer.server)) {
            fail(leg, same_server(*answer.server));
            return;
        }
        cast(leg, answer.vote);
        leg.stage = Stage::done;
        leg.fault.reset();
        leg.answer = std::move(answer);
    }

    /// It gave no usable answer, and will give none.
    void failed(std::size_t master, Fault fault) {
        legs_[master].answer_due = false;
        fail(legs_[master], std::move(fault));
    }

    /// Its connection had died. `unclear`: the command that was sent there may have been executed.
    void disconnected(std::size_t master, bool unclear) {
        Leg& leg = legs_[master];
        leg.stage = Stage::connecting;
        leg.answer_due = false;
        leg.asked = unclear;
        leg.unclear = unclear;
    }

    void pass_time(TimePoint now) {
        for (Leg& leg : legs_) {
            if (leg.stage == Stage::asked && now >= leg.answer_by) {
                Fault fault = unanswered_fault();
                fault.maybe_executed = true;
                fail(leg, std::move(fault));
            }
            const bool connects = leg.stage == Stage::connecting || leg.stage == Stage::doubtful;
            if (connects && now >= deadline_) fail(leg, leg.fault.value_or(not_sent(leg)));
        }
    }

    /// When time alone may change something after `now`.
    TimePoint next_due(TimePoint now) const noexcept {
        TimePoint due = deadline_;
        for (const Leg& leg : legs_) {
            if (leg.stage == Stage::asked) due = std::min(due, leg.answer_by);
            if (gets_a_moment(leg, now)) due = std::min(due, leg.connected_by);
        }
        return due;
    }

    /// It may last until then, instead of until its deadline.
    void has_until(TimePoint by) noexcept { deadline_ = by; }

    bool is_over(TimePoint now) const noexcept {
        const Verdict decided = votes_so_far();
        if (decided == Verdict::yes) return !worth_a_moment(now);
        if (decided != Verdict::open) return true;
        if (has(Stage::asked) || has(Stage::connecting)) return false;
        return votes_.has_quorum();
    }

    /// Nothing more is waited for: what the answers amount to.
    Verdict end() {
        verdict_ = votes_so_far();
        for (Leg& leg : legs_) give_up_connecting(leg);
        if (verdict_ == Verdict::open) verdict_ = votes_so_far();
        return verdict_;
    }

    MasterSets sets() const noexcept {
        MasterSets sets;
        std::uint64_t bit = 1;
        for (const Leg& leg : legs_) {
            if (leg.asked) sets.asked |= bit;
            if (leg.answer) sets.answered |= bit;
            if (leg.answer && leg.answer->vote == Vote::yes) sets.agreed |= bit;
            if (leg.answer_due) sets.late |= bit;
            bit <<= 1U;
        }
        return sets;
    }

    /// The master whose answer stands for the decision, which is yes or no.
    std::size_t deciding_master() const {
        const Vote wanted = verdict_ == Verdict::yes ? Vote::yes : Vote::no;
        std::size_t best = legs_.size();
        for (std::size_t i = 0; i < legs_.size(); ++i) {
            if (!legs_[i].answer || legs_[i].answer->vote != wanted) continue;
            if (best == legs_.size() || says_more(*legs_[i].answer, *legs_[best].answer)) best = i;
        }
        return best;
    }

    /// Whether the decision may come from a command that was executed more than once, or that some
    /// master has executed without answering.
    bool is_repeated() const {
        const MasterSets masters = sets();
        const bool silent = (masters.unanswered() & ~masters.late) != 0;
        return (rules_.subject == QuorumSubject::taking && silent) ||
               std::any_of(legs_.begin(), legs_.end(),
                           [](const Leg& leg) { return leg.answer && leg.answer->repeated; });
    }

    /// Some master has done what the command says, or may have.
    bool maybe_executed() const noexcept {
        const MasterSets masters = sets();
        return (masters.unanswered() | masters.agreed) != 0;
    }

    /// Why this master gave no usable answer; null where it gave one, or may yet. For the driver to
    /// put the master's name into.
    Fault* fault(std::size_t master) noexcept {
        Leg& leg = legs_[master];
        return leg.stage == Stage::done && leg.fault ? &*leg.fault : nullptr;
    }

    /// Whether its fault says that it has to be reached anew: the command that was sent there met one, or the
    /// master had all its time for an answer. One that had less, as the call ended before, may answer yet.
    bool has_to_be_reached_anew(std::size_t master) const noexcept {
        const Leg& leg = legs_[master];
        return leg.fault && leg.fault->maybe_executed && !(leg.answer_due && leg.cut_short);
    }

    /// Why there is no decision.
    Fault no_quorum() const {
        Fault fault{.error = make_error(Errc::no_quorum)};
        std::vector<Errc> for_good;
        for (const Leg& leg : legs_) {
            if (!leg.fault) continue;
            fault.error.causes.push_back(leg.fault->error);
            if (!leg.fault->transient) for_good.push_back(leg.fault->error.code);
        }
        fault.error.message = std::to_string(fault.error.causes.size()) + " of " +
                              std::to_string(legs_.size()) + " masters gave no usable answer";
        fault.transient = for_good.size() <= legs_.size() - votes_.quorum();
        const bool all_alike = std::all_of(for_good.begin(), for_good.end(),
                                           [&](Errc code) { return code == for_good.front(); });
        if (!fault.transient && all_alike) fault.error.code = for_good.front();
        return fault;
    }

private:
    enum class Stage : std::uint8_t {
        connecting,  ///< there will be a connection
        doubtful,    ///< there may be one
        asked,
        done,
    };

    /// The command at one master.
    struct Leg {
        Stage stage = Stage::connecting;
        bool asked = false;       ///< the command was sent, and may have been executed
        bool unclear = false;     ///< it was sent over a connection that died
        bool answer_due = false;  ///< on a connection that lives
        bool cut_short = false;   ///< the call ends before its time for the answer is over
        std::optional<Vote> vote{};
        TimePoint connected_by{};
        TimePoint answer_by{};
        std::optional<Fault> fault{};  ///< why there is no answer, or may be no connection
        std::optional<MasterAnswer> answer{};
    };

    bool has(Stage stage) const noexcept {
        return std::any_of(legs_.begin(), legs_.end(),
                           [stage](const Leg& leg) { return leg.stage == stage; });
    }

    Verdict votes_so_far() const noexcept {
        switch (rules_.subject) {
            case QuorumSubject::taking: return votes_.on_taking();
            case QuorumSubject::keeping: return votes_.on_keeping();
            case QuorumSubject::asking: break;
        }
        return votes_.on_asking();
    }

    /// A lock is the safer the more masters have it: a master that is just being connected to gets a moment
    /// to be asked too. A lock that is ours already need not wait for that.
    bool worth_a_moment(TimePoint now) const noexcept {
        return std::any_of(legs_.begin(), legs_.end(),
                           [&](const Leg& leg) { return gets_a_moment(leg, now); });
    }
    bool gets_a_moment(const Leg& leg, TimePoint now) const noexcept {
        return rules_.subject == QuorumSubject::taking && leg.stage == Stage::connecting &&
               now < leg.connected_by;
    }

    /// A master that was given up may answer all the same while the others are waited for.
    void cast(Leg& leg, Vote vote) noexcept {
        if (leg.vote) votes_.take_back(*leg.vote);
        votes_.cast(vote);
        leg.vote = vote;
    }

    void fail(Leg& leg, Fault fault) {
        fault.maybe_executed = fault.maybe_executed || leg.unclear;
        cast(leg, Vote::none);
        leg.stage = Stage::done;
        leg.asked = fault.maybe_executed;
        leg.fault = std::move(fault);
    }

    /// It is decided without this one.
    void give_up_connecting(Leg& leg) {
        if (leg.stage == Stage::doubtful) {
            fail(leg, Fault{*leg.fault});
        } else if (leg.stage == Stage::connecting) {
            leg.stage = Stage::done;
            leg.fault.reset();
            cast(leg, Vote::none);
        }
    }

    bool has_answered(const std::string& server) const noexcept {
        return std::any_of(legs_.begin(), legs_.end(), [&server](const Leg& leg) {
            return leg.answer && leg.answer->server != nullptr && *leg.answer->server == server;
        });
    }

    /// Of two answers that say the same: the later fencing token of an acquisition counts, the earlier
    /// end of somebody else's lease, and of a lock's owners what `knows_more` says.
    bool says_more(const MasterAnswer& left, const MasterAnswer& right) const {
        if (left.owners && right.owners) return knows_more(*left.owners, *right.owners);
        return left.vote == Vote::yes ? left.fence > right.fence : left.ttl < right.ttl;
    }

    using Owners = std::vector<std::string>;

    /// Prefers the answer with more owners that may have a majority, if the silent masters know them too.
    /// Else prefers the one with an owner that more masters know, and somebody rather than nobody.
    bool knows_more(const Owners& left, const Owners& right) const {
        const std::ptrdiff_t lefts = how_many_may_hold(left);
        const std::ptrdiff_t rights = how_many_may_hold(right);
        if (lefts != rights) return lefts > rights;
        const std::ptrdiff_t more = how_many_know(left);
        const std::ptrdiff_t less = how_many_know(right);
        return more > less || (more == less && right.empty() && !left.empty());
    }

    std::ptrdiff_t how_many_may_hold(const Owners& owners) const {
        const std::ptrdiff_t silent = std::count_if(
            legs_.begin(), legs_.end(), [](const Leg& leg) { return !leg.answer.has_value(); });
        return std::count_if(owners.begin(), owners.end(), [&](const std::string& owner) {
            return static_cast<std::size_t>(how_many_know(owner) + silent) >= votes_.quorum();
        });
    }

    /// Of several owners, the one that most masters know.
    std::ptrdiff_t how_many_know(const Owners& owners) const {
        if (owners.empty()) {
            return std::count_if(legs_.begin(), legs_.end(), [](const Leg& leg) {
                return leg.answer && leg.answer->owners && leg.answer->owners->empty();
            });
        }
        std::ptrdiff_t most = 0;
        for (const std::string& owner : owners) most = std::max(most, how_many_know(owner));
        return most;
    }

    std::ptrdiff_t how_many_know(const std::string& owner) const {
        return std::count_if(legs_.begin(), legs_.end(), [&owner](const Leg& leg) {
            if (!leg.answer || !leg.answer->owners) return false;
            const Owners& owners = *leg.answer->owners;
            return std::find(owners.begin(), owners.end(), owner) != owners.end();
        });
    }

    static Fault unavailable(std::string message) {
        return {.error = make_error(Errc::unavailable, std::move(message))};
    }

    static Fault not_sent(const Leg& leg) {
        const bool was_connected = leg.connected_by == TimePoint{};
        return unavailable(was_connected ? "too much was to be sent before it"
                                         : "no connection in time");
    }

    Fault too_young() const {
        return unavailable("restarted a moment ago: has no vote for longest_lease, " +
                           std::to_string(rules_.least_age.count()) + " ms");
    }

    static Fault age_unknown() {
        return {.error = make_error(
                    Errc::denied,
                    "INFO is denied, so nobody knows whether it has just restarted: allow it, or "
                    "set longest_lease to 0"),
                .transient = false};
    }

    static Fault same_server(const std::string& run_id) {
        return {.error = invalid("the same server as another one of the list, run id " + run_id),
                .transient = false};
    }

    const QuorumRules rules_;
    TimePoint deadline_;
    VoteCount votes_;
    std::vector<Leg> legs_;
    Verdict verdict_ = Verdict::open;
};

}  // namespace redlatch::inline v0::detail
