#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/clean_up_queue.hpp>
#include <redlatch/core/fault.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/one_of.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renewal_times.hpp>
#include <redlatch/core/renewal_try.hpp>
#include <redlatch/core/schedule.hpp>
#include <redlatch/core/validity.hpp>
#include <redlatch/core/vote_count.hpp>
#include <redlatch/types.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Keeps watched holds alive and cleans up tokens, for one client: decides when which command goes to
/// which master, and what its answer means. The driver takes the tries that are due, says which masters
/// decide about their keys, sends what it is told to send, and tells what becomes of it.
class Renewal {
public:
    using Try = detail::Try;

    struct Terms {
        bool several_masters = false;
        std::chrono::milliseconds command_timeout;
        Clock::duration late_window;  ///< how long after it was given up a command may still run
    };

    /// Send the command of `attempt` to `master`.
    struct Send {
        std::shared_ptr<Try> attempt;
        MasterIndex master;
    };
    struct Renewed {
        std::shared_ptr<Hold> hold;
    };
    struct Lost {
        std::shared_ptr<Hold> hold;
        ServerKeeps server;
    };
    /// `master` has not answered a command, sent at `since` or later, in time.
    struct Silent {
        MasterIndex master;
        TimePoint since;
        bool is_told = true;  ///< to the observer: not of what is sent once more
    };
    using Action = OneOf<Send, Renewed, Lost, Silent>;

    explicit Renewal(const Terms& terms)
        : terms_(terms), clean_ups_(terms.several_masters, terms.late_window) {}

    /// One more acquisition wants the hold to be renewed. Announced before it is asked for, so that
    /// it cannot be had and then not renewed.
    void enlist(Hold& hold) { ++hold.watchers; }

    /// From now on renews a hold that was confirmed by a command sent at `sent`. `end`: of the acquisition that wants
    /// it; one that has said none wants it for as long as it lasts.
    void arm(std::shared_ptr<Hold> hold, TimePoint sent, const RenewalEnd& end = {}) {
        if (hold->watchers == 0) return;
        if (end.time != TimePoint::max()) hold->renewal_ends.push_back(end);
        // That command may have asked for less than the lease, which runs since an earlier one.
        const TimePoint since = std::min(sent, hold->refreshed_at());
        const TimePoint due = renewal_due(since, hold->terms().lease, hold->terms().drift);
        const bool is_new = !std::exchange(hold->is_renewed, true);
        if (hold->terms().joins) return arm_sharer(std::move(hold), due, is_new);
        put(due, std::move(hold));
    }

    /// Renews it no more until it is armed anew, also where a renewal is under way.
    void disarm(Hold& hold) {
        hold.is_renewed = false;
        watched_.remove(&hold);
        if (hold.terms().joins) disarm_sharer(hold);
    }

    /// One of the acquisitions that `enlist` has announced is over.
    void dismiss_one(Hold& hold, std::uint64_t acquisition) {
        if (hold.watchers > 0) --hold.watchers;
        std::erase_if(hold.renewal_ends, [acquisition](const RenewalEnd& end) {
            return end.acquisition == acquisition;
        });
        if (hold.watchers == 0) disarm(hold);
    }

    /// Ends the renewal of a hold, before its release is sent. A renewal under way does no harm: the
    /// script finds the token gone, and the answer finds the hold no longer held.
    void dismiss(Hold& hold) {
        hold.watchers = 0;
        hold.renewal_ends.clear();
        disarm(hold);
    }

    /// Releases a token that nobody uses any more.
    void clean_up(std::shared_ptr<Hold> hold, CleanUp what, TimePoint now) {
        clean_ups_.add(std::move(hold), what, now);
    }

    /// The hold of that token if its clean-up is to come or under way; else null.
    std::shared_ptr<Hold> cleaned_up(std::string_view token) const {
        return clean_ups_.find(token);
    }

    /// Renews nothing any more, and sends every clean-up that is left, whether due or not, for as long as one command
    /// may take all together: one try each, one more where that gets no answer, and more where a master has refused it
    /// for now.
    void close(TimePoint now) {
        if (closes_at_) return;
        closes_at_ = saturating_add(now, terms_.command_timeout);
        clean_ups_.close(now);
    }

    /// Whether nothing is left to do after `close`, or the time for it is over.
    bool is_closed(TimePoint now) const {
        if (!closes_at_) return false;
        return now >= *closes_at_ || clean_ups_.is_empty();
    }

    /// When there is something to do without an event.
    TimePoint next_due() const {
        const TimePoint clean_up = clean_ups_.next_due();
        if (closes_at_) return std::min(*closes_at_, clean_up);
        const TimePoint overdue = under_way_.empty() ? TimePoint::max() : under_way_.begin()->first;
        const TimePoint repeat = repeats_.empty() ? TimePoint::max() : repeats_.begin()->first;
        return std::min({watched_.next_due(), clean_up, overdue, repeat});
    }

    /// The tries that have to begin now, a thousand at most: the driver gives each to `begin`. Tries that are
    /// due a little later go out with them.
    std::vector<std::shared_ptr<Try>> take_due(TimePoint now) {
        std::vector<std::shared_ptr<Try>> due;
        if (!closes_at_) {
            const auto early = [](const auto& hold) {
                return renewal_window(hold->terms().lease, hold->terms().drift);
            };
            for (auto& hold :
                 watched_.take_early(now, widest_renewal_window, largest_batch, early)) {
                due.push_back(std::make_shared<RenewalTry>(hold, begin_shared(*hold)));
            }
            while (due.size() < largest_batch && !repeats_.empty() &&
                   repeats_.begin()->first <= now) {
                due.push_back(std::make_shared<RepeatTry>(
                    std::move(repeats_.extract(repeats_.begin()).mapped())));
            }
        }
        clean_ups_.take_due(now, largest_batch, due);
        return due;
    }

    /// `masters`: those that decide about the hold's key.
    void begin(const std::shared_ptr<Try>& attempt, std::vector<MasterIndex> masters,
               TimePoint now) {
        if (!attempt->prepare(now)) return attempt->give_up();
        attempt->silent_ = attempt->choose(std::move(masters));
        attempt->votes_ = VoteCount{attempt->silent_.size()};
        const HoldTerms& terms = attempt->hold_->terms();
        const auto patience = renewal_patience(terms.lease, terms.drift, terms_.command_timeout);
        attempt->place_ = under_way_.emplace(saturating_add(now, patience), attempt);
        if (attempt->silent_.empty()) return end(*attempt, now);
        for (const MasterIndex master : attempt->silent_)
            actions_.emplace_back(Send{attempt, master});
    }

    /// The command is about to be written to `master`, perhaps some time after it was ordered. False
    /// where it is of no use any more: it is not to be sent.
    bool send(Try& attempt, MasterIndex master, TimePoint now) {
        if (!attempt.prepare(now)) {
            cast(attempt, master, Vote::none, Again::no, now);
            return false;
        }
        attempt.sent_ = std::min(attempt.sent_, now);
        return true;
    }

    /// The command was written, and its connection is given up: it will be written once more, on another one.
    /// The first writing may be carried out last.
    void connection_replaced(Try& attempt) { attempt.note_unanswered(); }

    /// Who has answered.
    struct Answering {
        /// Its run id; null if it keeps that to itself.
        std::shared_ptr<const std::string> server{};
        /// It is one of several masters, and has restarted. Then it lets nobody else in for now, and "not ours" ends no
        /// hold before its validity does.
        bool may_have_forgotten = false;
    };

    /// A master's answer: 1 yes, 0 not ours. One server under two addresses has one vote.
    void answered(Try& attempt, MasterIndex master, std::int64_t answer, const Answering& by,
                  TimePoint now) {
        if (attempt.goes_on(answer)) return cast(attempt, master, Vote::yes, Again::yes, now);
        if (terms_.several_masters && by.server != nullptr) {
            if (has_voted(attempt, *by.server)) {
                return cast(attempt, master, Vote::none, Again::no, now);
            }
            attempt.servers_.push_back(by.server);
        }
        const bool says_no = answer == 0 && !by.may_have_forgotten;
        const Vote vote = answer == 1 ? Vote::yes : says_no ? Vote::no : Vote::none;
        cast(attempt, master, vote, Again::no, now);
    }

    /// A master's error. Somebody's data where our key was means that the lock is gone. Any other error may
    /// yet pass.
    void refused(Try& attempt, MasterIndex master, const Fault& fault, TimePoint now) {
        if (is_between_servers(fault)) attempt.keys_are_apart();
        if (fault.transient) attempt.refused_for_now_ = true;
        const Vote vote = fault.error.code == Errc::wrong_type ? Vote::no : Vote::none;
        cast(attempt, master, vote, fault.transient ? Again::yes : Again::no, now);
    }

    /// The command was not sent, or its connection has ended without an answer.
    void unanswered(Try& attempt, MasterIndex master, TimePoint now) {
        cast(attempt, master, Vote::none, Again::yes, now);
    }

    /// Another server has what `from` was asked for. False where the command was sent on too often:
    /// the servers do not agree.
    bool redirect(Try& attempt, MasterIndex from, MasterIndex to) {
        if (terms_.several_masters || attempt.over_) return false;
        if (attempt.redirections_++ == most_redirections) return false;
        std::replace(attempt.silent_.begin(), attempt.silent_.end(), from, to);
        return true;
    }

    /// Gives up the tries whose patience is over, each on its own.
    void pass_time(TimePoint now) {
        if (closes_at_) return;
        std::vector<MasterIndex> told;
        while (!under_way_.empty() && under_way_.begin()->first <= now) {
            const std::shared_ptr<Try> attempt = under_way_.begin()->second;
            attempt->go_unanswered(*this);
            for (const MasterIndex master : attempt->silent_) {
                if (std::find(told.begin(), told.end(), master) != told.end()) continue;
                told.push_back(master);
                actions_.emplace_back(Silent{master, attempt->sent_, !attempt->is_repeat()});
            }
            end(*attempt, now);
        }
    }

    /// What the driver has to do, in this order.
    std::vector<Action> take_actions() { return std::exchange(actions_, {}); }

private:
    enum class Again : bool { no, yes };

    /// Readers of one claim that want it to be renewed: one renewal is for all of them.
    struct Sharers {
        std::vector<std::shared_ptr<Hold>> holds{};  // the first one is in the schedule
        TimePoint due = TimePoint::max();            // of that; none while a try is under way
        bool under_way = false;
    };

    class RenewalTry final : public Try {
    public:
        /// `sharers`: null for a hold whose token is its own.
        RenewalTry(std::shared_ptr<Hold> hold, std::shared_ptr<Sharers> sharers)
            : Try(std::move(hold)), sharers_(std::move(sharers)), lease_(hold_->terms().lease) {
            if (sharers_ == nullptr) add(hold_);
            lock_alone_ = hold_->keys_are_apart;
        }

        std::optional<Lease> lease() const noexcept override { return lease_; }

    private:
        /// One that it is for, and how much longer that one may last.
        struct Member {
            std::shared_ptr<Hold> hold;
            Lease lease;
        };

        void add(const std::shared_ptr<Hold>& hold) {
            members_.push_back({hold, hold->terms().lease});
        }

        /// Adds those that have joined the claim meanwhile: what the server says of it holds for them too.
        void add_sharers() {
            if (sharers_ == nullptr) return;
            for (const auto& hold : sharers_->holds) {
                if (known_.insert(hold.get()).second) add(hold);
            }
        }

        bool prepare(TimePoint now) override {
            add_sharers();
            Lease longest{Clock::duration::zero()};
            for (Member& member : members_) {
                limit(member, now);
                if (member.hold->valid(now)) longest = std::max(longest, member.lease);
            }
            if (longest == Lease{Clock::duration::zero()}) return false;
            lease_ = longest;
            return true;
        }
        static void limit(Member& member, TimePoint now) {
            const Hold& hold = *member.hold;
            const TimePoint last_end = std::min(hold.last_end(), hold.renewed_until());
            member.lease = renewal_lease(member.lease, now, last_end);
        }

        void give_up() override {
            if (sharers_ != nullptr) sharers_->under_way = false;
        }

        std::vector<MasterIndex> choose(std::vector<MasterIndex> masters) override {
            return masters;
        }
        bool is_decided() const override { return votes_.on_keeping() != Verdict::open; }

        void decide(Renewal& renewal, TimePoint now) override {
            const std::size_t asked_for = members_.size();
            add_sharers();
            for (std::size_t i = asked_for; i < members_.size(); ++i) limit(members_[i], sent_);
            for (const Member& member : members_) decide(member, renewal, now);
        }

        /// Where the hold was released meanwhile, its release says what has become of it. Late answers may
        /// say "not ours" of a lock that a later renewal has confirmed: the next one tells.
        void decide(const Member& member, Renewal& renewal, TimePoint now) {
            Hold& hold = *member.hold;
            if (!hold.in(Phase::held) && !hold.in(Phase::lost)) return;
            switch (votes_.on_keeping()) {
                case Verdict::yes: return confirm(member, renewal, now);
                case Verdict::no:
                    if (hold.refreshed_at() > sent_) return;
                    return lose(member, renewal, ServerKeeps::removed);
                case Verdict::open:
                case Verdict::unknown: break;
            }
            if (!over_) doubt(member, renewal);
        }

        void confirm(const Member& member, Renewal& renewal, TimePoint now) {
            const bool wants_it = member.lease > Lease{Clock::duration::zero()};
            if (!wants_it && member.hold->in(Phase::held)) return;
            if (!member.hold->confirm_in_time(now, sent_, std::min(lease_, member.lease))) {
                return lose(member, renewal, ServerKeeps::longer);
            }
            renewed_ = true;
            member.hold->keys_are_apart = false;
            renewal.actions_.emplace_back(Renewed{member.hold});
        }

        void lose(const Member& member, Renewal& renewal, ServerKeeps server) {
            lost_ = true;
            renewal.actions_.emplace_back(Lost{member.hold, server});
        }

        void go_unanswered(Renewal& renewal) override {
            for (const Member& member : members_) doubt(member, renewal);
        }

        void note_unanswered() override {
            for (const Member& member : members_) member.hold->may_be_prolonged = true;
        }

        /// Notes that the server may keep the lock for longer than the hold is valid. Where the hold was lost before
        /// this note, its loss is told once more, so that the token is released.
        void doubt(const Member& member, Renewal& renewal) {
            Hold& hold = *member.hold;
            hold.doubt();
            if (sent_ == TimePoint::max()) return;
            hold.may_be_prolonged = true;
            if (!hold.in(Phase::lost)) return;
            renewal.actions_.emplace_back(Lost{member.hold, ServerKeeps::longer});
        }

        void keys_are_apart() override {
            for (const Member& member : members_) member.hold->keys_are_apart = true;
        }

        void follow(Renewal& renewal, TimePoint now) override {
            if (sharers_ != nullptr) sharers_->under_way = false;
            if (lost_ && !renewed_) return;
            const HoldTerms& terms = hold_->terms();
            const TimePoint due = renewed_ ? renewal_due(sent_, terms.lease, terms.drift)
                                           : renewal_retry_due(now, terms.lease, terms.drift);
            if (sharers_ != nullptr) return renewal.put(due, *sharers_);
            if (hold_->is_renewed) renewal.put(due, hold_);
        }
        bool wants_repeat() const override { return renewed_ && !silent_.empty(); }

        const std::shared_ptr<Sharers> sharers_;
        std::vector<Member> members_{};
        std::unordered_set<const Hold*> known_{};  // where there are sharers
        Lease lease_;
        bool renewed_ = false;
        bool lost_ = false;
    };

    /// Once more, to the masters that have not answered a renewal which a majority has confirmed. It asks for
    /// no more than those have, and changes nothing about the hold.
    class RepeatTry final : public Try {
    public:
        explicit RepeatTry(std::shared_ptr<Try> of)
            : Try(of->hold_), of_(std::move(of)), lease_(Clock::duration::zero()) {}

        std::optional<Lease> lease() const noexcept override { return lease_; }

    private:
        /// Of no use where a later one was confirmed.
        bool prepare(TimePoint now) override {
            const bool is_latest = hold_->valid(now) && hold_->refreshed_at() == of_->sent_;
            if (!is_latest || !hold_->is_renewed || of_->silent_.empty()) return false;
            const Lease asked_for = *of_->lease();
            const auto end =
                saturating_add(of_->sent_, saturating_cast<Clock::duration>(asked_for.duration()));
            lease_ = renewal_lease(asked_for, now, end);
            return lease_ >= Lease::min();
        }
        std::vector<MasterIndex> choose(std::vector<MasterIndex>) override { return of_->silent_; }
        bool is_decided() const override { return votes_.open() == 0; }
        bool is_repeat() const override { return true; }
        void follow(Renewal& renewal, TimePoint now) override {
            of_->silent_ = silent_;
            if (!silent_.empty()) renewal.repeat_later(of_, now);
        }

        const std::shared_ptr<Try> of_;
        Lease lease_;
    };

    static constexpr std::size_t largest_batch = 1000;
    static constexpr int most_redirections = 8;

    void put(TimePoint due, std::shared_ptr<Hold> hold) {
        const Hold* const key = hold.get();
        watched_.put(key, due, std::move(hold));
    }

    /// Moves nothing to a later time.
    void put(TimePoint due, Sharers& sharers) {
        if (sharers.under_way || sharers.holds.empty() || due >= sharers.due) return;
        sharers.due = due;
        put(due, sharers.holds.front());
    }

    void arm_sharer(std::shared_ptr<Hold> hold, TimePoint due, bool is_new) {
        auto& sharers = sharers_[hold->token().bytes];
        if (sharers == nullptr) sharers = std::make_shared<Sharers>();
        if (is_new) sharers->holds.push_back(std::move(hold));
        put(due, *sharers);
    }

    void disarm_sharer(const Hold& hold) {
        const auto found = sharers_.find(hold.token().bytes);
        if (found == sharers_.end()) return;
        Sharers& sharers = *found->second;
        const auto is_it = [&hold](const auto& other) { return other.get() == &hold; };
        const bool was_scheduled = !sharers.holds.empty() && is_it(sharers.holds.front());
        std::erase_if(sharers.holds, is_it);
        if (sharers.holds.empty()) {
            sharers_.erase(found);
        } else if (was_scheduled) {
            put(std::exchange(sharers.due, TimePoint::max()), sharers);
        }
    }

    /// The hold in the schedule was taken out of it. Returns those that share its token; null where none can.
    std::shared_ptr<Sharers> begin_shared(const Hold& hold) {
        if (!hold.terms().joins) return nullptr;
        const auto found = sharers_.find(hold.token().bytes);
        if (found == sharers_.end()) return nullptr;
        found->second->due = TimePoint::max();
        found->second->under_way = true;
        return found->second;
    }

    /// `again`: it makes sense to ask that master once more.
    void cast(Try& attempt, MasterIndex master, Vote vote, Again again, TimePoint now) {
        attempt.votes_.cast(vote);
        if (again == Again::no) std::erase(attempt.silent_, master);
        if (!attempt.is_decided() || std::exchange(attempt.decided_, true)) return;
        attempt.decide(*this, now);
        if (!attempt.over_) end(attempt, now);
    }

    void end(Try& attempt, TimePoint now) {
        const std::shared_ptr<Try> self = std::move(under_way_.extract(attempt.place_).mapped());
        attempt.over_ = true;
        attempt.follow(*this, now);
        if (terms_.several_masters && attempt.wants_repeat()) repeat_later(self, now);
    }

    /// Three times before the next renewal at most. A master that misses two renewals, and this as well, has
    /// the lock no more.
    void repeat_later(const std::shared_ptr<Try>& attempt, TimePoint now) {
        if (closes_at_) return;
        const HoldTerms& terms = attempt->hold_->terms();
        const Clock::duration pause = renewal_interval(terms.lease, terms.drift) / 4;
        const TimePoint due = saturating_add(now, pause);
        const TimePoint next = renewal_due(attempt->sent_, terms.lease, terms.drift);
        if (saturating_add(due, pause / 2) < next) repeats_.emplace(due, attempt);
    }

    static bool has_voted(const Try& attempt, const std::string& server) {
        return std::any_of(attempt.servers_.begin(), attempt.servers_.end(),
                           [&server](const auto& other) { return *other == server; });
    }

    const Terms terms_;
    Schedule<std::shared_ptr<Hold>> watched_;
    std::unordered_map<std::string, std::shared_ptr<Sharers>> sharers_;  // by their token
    CleanUpQueue clean_ups_;
    std::multimap<TimePoint, std::shared_ptr<Try>> under_way_;  // by when their patience is over
    std::multimap<TimePoint, std::shared_ptr<Try>> repeats_;    // by when they are due
    std::optional<TimePoint> closes_at_;
    std::vector<Action> actions_;
};

}  // namespace redlatch::inline v0::detail
