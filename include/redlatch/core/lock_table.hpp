#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/acquire_request.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_answers.hpp>
#include <redlatch/core/lock_entry.hpp>
#include <redlatch/core/lock_owner.hpp>
#include <redlatch/core/lock_waiter.hpp>
#include <redlatch/core/random.hpp>
#include <redlatch/core/reader_claim.hpp>
#include <redlatch/core/readers.hpp>
#include <redlatch/core/removed_tokens.hpp>
#include <redlatch/error.hpp>
#include <redlatch/recycled_memory.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The state of every lock inside this process: who holds it, which one owner contends for it at the
/// server, and who waits behind that one, first come first served. All handles of a client on one
/// name meet here. Does no I/O, reads no clock, blocks nobody: it says until when a waiter sleeps,
/// and after each call `take_woken` says whom to wake.
///
/// A name's entry is there only while somebody holds it, contends for it or waits for it, or has
/// yet to return an acquisition that was lost.
class LockTable {
    using Entry = LockEntry;
    // Stays where it is, whatever is added or erased.
    using Named = std::pair<const std::string, Entry>;

public:
    using Waiter = LockWaiter;

    /// The right to contend for a lock at the server. The contender that has it ends it by `finish`,
    /// `pass_place_on` or `end_turn`.
    class Turn {
    public:
        Turn() = default;
        explicit operator bool() const noexcept { return name_ != nullptr; }

    private:
        friend LockTable;
        explicit Turn(Named& name) noexcept : name_(&name) {}
        Named* name_ = nullptr;
    };

    using Outcome = LockOutcome;
    using Woken = detail::Woken;
    using Ending = AcquisitionEnding;
    using Pause = LockPause;
    using Joining = detail::Joining;
    using ClaimNews = detail::ClaimNews;
    using Finished = FinishedTurn;
    using Adopted = AdoptedHold;
    using Remains = LockTableRemains;

    struct Admission {
        Outcome outcome;
        TimePoint wake_at{};  ///< where queued: `resume` then, or when woken
        Turn turn{};
        std::shared_ptr<Hold> hold{};     ///< where handed: the one we have now; where nested
        std::uint64_t count = 0;          ///< where nested: the hold count wanted now
        std::shared_ptr<Hold> expired{};  ///< found past its validity: to be declared lost
        WhyBusy busy{};                   ///< where busy
    };

    /// `seed`: for the times of re-checks.
    explicit LockTable(std::uint64_t seed) : random_(seed) {}
    LockTable(const LockTable&) = delete;
    LockTable& operator=(const LockTable&) = delete;

    /// Takes out one of those whom the last call wakes; null when there are no more.
    Waiter* take_woken() noexcept { return woken_.take(); }

    /// Begins the turn where nobody has the lock or waits for it, as most requests find it: that takes
    /// no look at the clock. Nothing for others, which `enter`.
    Turn enter_if_free(const AcquireRequest& request) {
        if (closed_ || request.terms.joins) return {};
        Named& name = *entries_.try_emplace(request.entry()).first;
        if (!name.second.free() || !name.second.queue.empty()) return {};
        return begin_turn(name, request, request.asked_at);
    }

    /// Asks for a lock. Queued, the waiter stays here as long as somebody else of this process is
    /// before it; `resume` gives the answer.
    Admission enter(const AcquireRequest& request, Waiter& waiter, TimePoint now,
                    bool stop_requested) {
        if (closed_) return {Outcome::closed};
        Named& name = entry_for(request, now);
        Entry& here = name.second;
        Admission admission{Outcome::busy};
        // Where others wait, the one in front takes it out, and has its turn at once.
        if (here.queue.empty()) admission.expired = here.take_expired(now);
        admission.outcome = here.outcome_of(request, now);
        if (admission.outcome == Outcome::nested) {
            here.current->nest.push_back(request.acquisition);
            admission.hold = here.current;
            admission.count = here.current->nest.size();
        } else if (admission.outcome == Outcome::turn) {
            admission.turn = begin_turn(name, request, now);
        } else if (admission.outcome == Outcome::queued) {
            if (!request.wait.is_none()) close_crowds(request);
            waiter.request_ = &request;
            waiter.name_ = &name;
            waiter.has_answer_ = false;
            here.queue.push_back(waiter);
            return resume(waiter, now, stop_requested);
        } else if (admission.outcome == Outcome::busy) {
            admission.busy = why_busy(here, request, false, now);
        }
        return admission;
    }

    /// Looks again whether a queued waiter is the next, when it was woken or has slept enough.
    Admission resume(Waiter& waiter, TimePoint now, bool stop_requested) noexcept {
        if (waiter.is_handed()) return take_handed(waiter);
        Named& name = *waiter.name_;
        Entry& here = name.second;
        Admission admission{Outcome::queued};
        const bool front = here.queue.front() == &waiter;
        if (front) admission.expired = here.take_expired(now);
        // A place that was passed on needs somebody who goes on with it.
        const bool is_answered = waiter.has_answer_ && !here.queue_place;
        if (front && here.free() && !closed_ && !is_answered) {
            here.leave_queue(waiter);
            admission.outcome = Outcome::turn;
            admission.turn = begin_turn(name, *waiter.request_, now);
        } else if (const auto end = why_wait_ends(here, waiter, now, stop_requested)) {
            admission.outcome = *end;
            if (*end == Outcome::busy) {
                admission.busy = why_busy(here, *waiter.request_, waiter.waits_for_answer_, now);
                if (waiter.has_answer_) admission.busy.is_unanswered = false;
            }
            here.leave_queue(waiter);
            if (front) wake_front(here);
            erase_if_unused(name);
        } else {
            here.note_if_single_try(waiter, now);
            waiter.wake_at_ =
                std::min(here.end_of_wait(*waiter.request_, now), here.end_to_watch(now));
            admission.wake_at = waiter.wake_at_;
        }
        return admission;
    }

    /// What `resume` answers a waiter that the lock was handed to.
    static Admission take_handed(Waiter& waiter) {
        Admission admission{Outcome::handed};
        admission.hold = std::move(waiter.handed_);
        return admission;
    }

    /// A pause of the one whose turn it is, which lasts until `until` or until there is something to
    /// do. Begins it, and is asked again when the waiter was woken or has slept enough.
    Pause pause(Turn turn, Waiter& waiter, TimePoint until, TimePoint now, bool stop_requested) {
        Entry& here = turn.name_->second;
        if (!here.told_of_tries) set_fault(here, nullptr);  // the server has answered
        const auto ended = end_of_pause(here, until, now, stop_requested);
        here.contender = ended ? nullptr : &waiter;
        return {ended, std::min(until, here.recheck_at)};
    }

    /// The same for one who is about to nest in `hold`, which it has.
    Pause pause(const Hold& hold, Waiter& waiter, TimePoint until, TimePoint now,
                bool stop_requested) {
        const auto name = entries_.find(hold.entry());
        if (name == entries_.end()) return {Woken::lost};
        const auto ended = end_of_nesting(hold, until, now, stop_requested);
        if (ended && waiter.name_ != nullptr) {
            name->second.nesting.remove(waiter);
            waiter.name_ = nullptr;
            erase_if_unused(name);
        } else if (!ended && waiter.name_ == nullptr) {
            name->second.nesting.push_back(waiter);
            waiter.name_ = &*name;
        }
        return {ended, std::min(until, hold.valid_until())};
    }

    /// The place in the server's queue that the one before has left behind, or that was announced.
    const std::optional<QueuePlace>& place(Turn turn) const noexcept {
        return turn.name_->second.queue_place;
    }

    /// Announces the token of a hold that will ask for a place in the server's queue: from now on a
    /// grant for it is known to be ours.
    void announce(Turn turn, const Hold& hold) {
        Named& name = *turn.name_;
        name.second.queue_place = {.token = hold.token(), .terms = hold.terms()};
        if (hold.terms().claim.weight == 0) return;
        claimants_.erase(std::exchange(name.second.claimant, hold.token().bytes));
        claimants_.emplace(hold.token().bytes, &name);
    }

    /// Nobody asks any more with the token that was announced, or whose place was passed on: from now on a
    /// grant for it is nobody's here.
    void withdraw(Turn turn) noexcept {
        turn.name_->second.queue_place.reset();
        turn.name_->second.grant.reset();
    }

    /// The message that ended the pause.
    std::optional<Grant> take_grant(Turn turn) {
        return std::exchange(turn.name_->second.grant, std::nullopt);
    }

    /// Whether somebody waits who could go on with the place.
    bool has_waiters(Turn turn) const noexcept { return !turn.name_->second.queue.empty(); }

    /// The last try met `fault`; null: it was answered. A waiter behind it whose wait ends fails with that.
    void set_fault(Turn turn, std::shared_ptr<const Error> fault) noexcept {
        set_fault(turn.name_->second, std::move(fault));
    }

    /// Readers join without a command shortly after the server has said that nobody waits. Empty where the reader
    /// contends for a claim of its own.
    Joining join(Turn turn, const AcquireRequest& request, TimePoint now) {
        if (turn.name_->second.queue_place) return {};  // which would be left behind
        auto claim = claim_for(request, now);
        if (claim == nullptr) return {};
        if (!claim->has_news(now)) {
            auto first = claim->only_reader();
            return {.first = std::move(first), .to_ask = std::move(claim)};
        }
        if (claim->others_wait()) return {};
        return join(turn, request, claim, now);
    }

    /// The server has been asked, by a command that was sent then: it has extended the claim, or others wait.
    Joining join_asked(Turn turn, const AcquireRequest& request,
                       const std::shared_ptr<ReaderClaim>& claim, const ClaimNews& news,
                       TimePoint sent, TimePoint now) {
        if (!news.is_there) return {.lost = claim->close()};
        if (claim->is_over()) return {.clean_up = claim->after_vain_join(false, now)};
        claim->answered(sent, news.others_wait);
        if (news.others_wait || claim != claim_for(request, now)) return {};
        return join(turn, request, claim, now);
    }

    /// The question got no answer. Over a link, the release of the claim's token withdraws a question that is not
    /// written yet: then the claim is over, and the reader contends.
    static Joining join_unanswered(ReaderClaim& claim, bool maybe_executed, TimePoint now) {
        if (!maybe_executed) return {.failed = !claim.is_over()};
        claim.may_be_prolonged();
        return {.clean_up = claim.after_vain_join(true, now), .failed = true};
    }

    /// The hold has ended, for whatever reason. To be called before anything is done about its token.
    void leave_claim(Hold& hold) noexcept { readers_.leave_claim(hold); }

    /// Ends the turn without a hold; the next one has it.
    void end_turn(Turn turn) { hand_turn_on(*turn.name_, false); }

    /// The same. True where the next one goes on with the place in the server's queue; else the
    /// caller has to see to what it has left at the server.
    bool pass_place_on(Turn turn, bool unclear_try, const TriesOfToken& tries = {}) {
        Entry& here = turn.name_->second;
        // Behind an adopted hold the next one waits here, and may give up.
        const bool has_next = !here.queue.empty() && here.current == nullptr;
        const bool passes = here.queue_place && has_next && !closed_;
        if (passes) here.queue_place->unclear_try = unclear_try;
        if (passes) here.queue_place->tries = tries;
        hand_turn_on(*turn.name_, passes);
        return passes;
    }

    /// Ends the turn: the server gave the lock to `hold`, and says whether other processes wait. Readers who stand
    /// behind it get in with it.
    Finished finish(Turn turn, std::shared_ptr<Hold> hold, bool others_wait, TimePoint now) {
        Named& name = *turn.name_;
        Named* const own = entry_of(name, *hold);
        Finished finished{.kept = !closed_ && own != nullptr,
                          .is_removed = removed_.take(hold->token().bytes)};
        if (finished.kept) {
            name.second.fault = nullptr;
            name.second.told_of_tries = true;
            own->second.handoffs.begin(others_wait, hold->refreshed_at());
            if (hold->terms().joins && hold->in(Phase::held)) {
                readers_.open_claim(hold, others_wait);
                finished.is_shared = admit_crowd(name.second, hold->claim, now);
            }
            own->second.keep(std::move(hold), now);
        }
        const bool is_apart = own != nullptr && own != &name;
        hand_turn_on(name, false);
        if (is_apart) erase_if_unused(*own);
        return finished;
    }

    /// Another process has given the lock to `hold`, whoever contends for it here.
    Adopted adopt(std::shared_ptr<Hold> hold, bool others_wait, TimePoint now) {
        if (closed_) return {};
        Entry& here = entries_.try_emplace(hold->key()).first->second;
        here.key_type = hold->terms().traits.key_type;
        here.handoffs.begin(others_wait, hold->refreshed_at());
        Adopted adopted{.kept = true, .is_removed = removed_.take(hold->token().bytes)};
        here.keep(std::move(hold), now);
        wake_front(here);
        if (here.contended) return adopted;
        here.grant.reset();
        adopted.place = std::exchange(here.queue_place, std::nullopt);
        return adopted;
    }

    /// One more acquisition of a hold that is not over, whoever owns it: the hold count wanted now.
    /// Nothing for a hold that is. `acquisition`: alone in a nest of its own, so that nothing is allocated here.
    std::optional<std::uint64_t> nest(Hold& hold, Nest&& acquisition, TimePoint now) noexcept {
        const auto name = entries_.find(hold.entry());
        if (closed_ || name == entries_.end()) return std::nullopt;
        if (!name->second.has(hold) || !hold.valid(now)) return std::nullopt;
        hold.nest.splice(hold.nest.end(), acquisition);
        return hold.nest.size();
    }

    /// All acquisitions of a writer's hold that is not over are for reading from now on. False for another hold.
    bool downgrade(Hold& hold, TimePoint now) {
        const auto name = entries_.find(hold.entry());
        if (closed_ || name == entries_.end() || !name->second.has(hold)) return false;
        if (!hold.valid(now) || hold.reads()) return false;
        hold.downgrade();
        for (Acquisition& acquisition : hold.nest) acquisition.reads = true;
        return true;
    }

    /// Ends the innermost acquisition that `owner` made with `lock()` or `try_lock()`.
    /// `reads`: one for reading, of a shared lock, or one that was lost: a downgrade after the loss made no reader
    /// of it.
    Ending end_innermost(const std::string& key, LockOwner owner, bool reads = false) {
        return end_where(key, [owner, reads](const Hold& hold, const Acquisition& acquisition) {
            const bool fits = acquisition.reads == reads || hold.in(Phase::lost);
            return hold.owner() == owner && acquisition.through != nullptr && fits;
        });
    }

    /// Ends one acquisition of a hold.
    Ending end_acquisition(const Hold& hold, std::uint64_t id) {
        return end_where(hold.entry(),
                         [&hold, id](const Hold& other, const Acquisition& acquisition) {
                             return &other == &hold && acquisition.id == id;
                         });
    }

    /// Ends the only acquisition of a hold, whose lock goes to another process. Nothing where it has others.
    std::optional<Ending> end_only(const Hold& hold, std::uint64_t id) {
        if (hold.in(Phase::held) && hold.nest.size() > 1) return std::nullopt;
        Ending ending = end_acquisition(hold, id);
        ending.can_hand_off = false;
        return ending;
    }

    /// Ends one of the acquisitions made through one `LockImpl`, whoever owns it.
    Ending end_one_through(const std::string& key, const void* through) {
        return end_where(key, [through](const Hold&, const Acquisition& acquisition) {
            return acquisition.through == through;
        });
    }

    /// What the end of an acquisition needs the time for.
    void conclude(Ending& ending, TimePoint now) {
        using Kind = Ending::Kind;
        if (ending.kind == Kind::past && ending.count == 0) {
            ending.clean_up = end_lost(*ending.hold, now);
        } else if (ending.kind == Kind::last && is_kept_for_others(*ending.hold, now)) {
            leave_to_others(ending);
        } else if (ending.can_hand_off) {
            hand_off(ending, now);
        }
        if (ending.kind == Kind::last) begin_release(*ending.hold, now);
    }

    /// Hands the lock of a hold that has to be released to the waiter that would be next on equal
    /// terms, if that takes no command.
    void hand_off(Ending& ending, TimePoint now) {
        Hold& hold = *ending.hold;
        Entry& here = entries_.find(hold.entry())->second;
        if (!here.passes_silently(hold, now)) return;
        ending.kind = Ending::Kind::handed;
        hold.advance(Phase::releasing, Phase::released);
        hand_to_front(here, {hold.token(), hold.refreshed_at(), hold.open_tries}, now);
    }

    /// The server has to be told that the hold is over.
    void begin_release(const Hold& hold, TimePoint now) {
        const auto name = entries_.find(hold.entry());
        const bool is_there = name != entries_.end() && name->second.current.get() == &hold;
        if (is_there && !name->second.contended) name->second.unanswered_since = now;
    }

    /// The release of a hold has been answered, or given up: the next one's turn.
    void released(const Hold& hold) {
        const auto name = entries_.find(hold.entry());
        if (name == entries_.end() || name->second.current.get() != &hold) return;
        vacate(name);
    }

    /// Instead of a release, the server gave the lock to the token in `handed`. False where nobody
    /// here wants it any more on the terms of `hold`: then the caller has to release that token.
    bool moved(const Hold& hold, HandOff handed, bool others_wait, TimePoint now) {
        const auto name = entries_.find(hold.entry());
        if (name == entries_.end() || name->second.current.get() != &hold) return false;
        Entry& here = name->second;
        here.handoffs.others_wait(others_wait, handed.refreshed);
        if (closed_ || removed_.take(handed.token.bytes) || !here.can_hand_off(hold)) return false;
        hand_to_front(here, std::move(handed), now);
        return true;
    }

    /// A hold is over without a release.
    void lost(const std::shared_ptr<Hold>& hold) {
        const auto name = entries_.find(hold->entry());
        if (name == entries_.end()) return;
        Entry& here = name->second;
        here.nesting.for_each([this](Waiter& waiter) { wake(&waiter); });
        if (here.current != hold) return;
        if (!hold->nest.empty()) here.past.push_back(hold);
        vacate(name);
    }

    /// What `owner` holds under `key`, or held until it was lost; null for nothing.
    std::shared_ptr<Hold> find(const std::string& key, LockOwner owner) const {
        const auto name = entries_.find(key);
        if (name == entries_.end()) return nullptr;
        return name->second.hold_of(owner);
    }

    /// The hold that this process has of `key`, whichever owner's; null for none.
    std::shared_ptr<Hold> current(const std::string& key) const {
        const auto name = entries_.find(key);
        return name == entries_.end() ? nullptr : name->second.current;
    }

    /// The hold that this process has of that lock under that token; null for none. Looks at all entries: each claim
    /// has one of its own.
    std::shared_ptr<Hold> with_token(std::string_view key, std::string_view token) const {
        for (const auto& [name, here] : entries_) {
            auto hold = here.held_by(token);
            if (hold != nullptr && hold->key() == key) return hold;
        }
        return nullptr;
    }

    /// The server has removed that token at this process's wish. The hold that goes by it; null where none does, or
    /// none yet: then `finish` and its like tell.
    std::shared_ptr<Hold> removed(std::string_view key, std::string_view token) {
        auto hold = with_token(key, token);
        if (hold == nullptr) removed_.add(token);
        return hold;
    }

    /// Hands a grant, or the late answer to a try, to the one that it is for. False where nobody here goes by
    /// that token (any more): the caller has to give the lock back. `is_hint`: it may not be true, and the
    /// waiter should ask.
    bool deliver(const Grant& grant, bool is_hint = false) {
        const bool is_notice = is_hint || grant.is_notice();
        Named* const name = find(grant);
        if (name == nullptr) return is_notice || is_claimed(grant);
        Entry& here = name->second;
        if (here.queue_place && here.queue_place->token.bytes == grant.token) {
            if (is_notice) {
                here.recheck_at = TimePoint::min();
            } else {
                here.grant = grant;
            }
            wake(here.contender);
            return true;
        }
        return is_notice || here.is_used(grant.token) || is_claimed(grant);
    }

    /// Messages may have been missed: all that wait at the server ask again, spread over some time.
    void recheck_all(TimePoint now) {
        const auto waiting = static_cast<Clock::rep>(entries_.size());
        const auto span = std::min<Clock::duration>(waiting * std::chrono::milliseconds{1},
                                                    std::chrono::seconds{1});
        for (auto& [key, entry] : entries_) {
            if (!entry.queue_place) continue;
            entry.recheck_at = now + Clock::duration{random_.between(0, span.count())};
            wake(entry.contender);
        }
    }

    /// Ends all waiting and lets nobody in any more.
    Remains close() {
        closed_ = true;
        Remains remains;
        for (auto& [key, entry] : entries_) {
            if (entry.current != nullptr) remains.holds.push_back(entry.current);
            for (const auto& hold : entry.past) {
                if (hold->in(Phase::held)) remains.holds.push_back(hold);
            }
            if (entry.queue_place && !entry.contended) {
                remains.places.push_back(*std::exchange(entry.queue_place, std::nullopt));
            }
            wake(entry.contender);
            for (const auto* waiters : {&entry.nesting, &entry.queue}) {
                waiters->for_each([this](Waiter& waiter) { wake(&waiter); });
            }
        }
        return remains;
    }

    /// How many names have an entry.
    std::size_t size() const noexcept { return entries_.size(); }

    /// Whether nothing is left: no entry, and nothing that was kept beside one.
    bool is_empty() const noexcept {
        return entries_.empty() && claimants_.empty() && readers_.is_empty();
    }

private:
    using Entries = std::unordered_map<std::string, Entry, std::hash<std::string>, std::equal_to<>,
                                       RecyclingAllocator<Named>>;
    using Position = Entries::iterator;

    /// Where a request waits. Readers wait together, but for one that goes on with a claim at once, or does not wait.
    Named& entry_for(const AcquireRequest& request, TimePoint now) {
        const auto own = entries_.find(request.entry());
        if (own != entries_.end() && !own->second.is_idle()) return *own;
        const bool waits = request.terms.joins && !request.wait.is_none();
        if (waits && !joins_silently(request, now)) return crowd_for(request);
        return *entries_.try_emplace(request.entry()).first;
    }

    bool joins_silently(const AcquireRequest& request, TimePoint now) const {
        const auto claim = claim_for(request, now);
        return claim != nullptr && claim->has_news(now) && !claim->others_wait();
    }

    Named& crowd_for(const AcquireRequest& request) {
        Named& name = *entries_.try_emplace(readers_.crowd_for(request.terms)).first;
        name.second.crowd_of = request.terms.keys;
        return name;
    }

    void close_crowds(const AcquireRequest& request) noexcept {
        if (!request.terms.traits.shared || request.acquisition.reads) return;
        readers_.close_crowds(request.terms.keys->lock);
    }

    /// Where a hold is kept that was contended for in `name`; null without memory for that. A message that comes
    /// late for its token finds it there.
    Named* entry_of(Named& name, const Hold& hold) noexcept {
        if (name.second.crowd_of == nullptr) return &name;
        try {
            Named& own = *entries_.try_emplace(hold.entry()).first;
            own.second.key_type = name.second.key_type;
            if (name.second.claimant == hold.token().bytes) {
                if (!own.second.claimant.empty()) claimants_.erase(own.second.claimant);
                own.second.claimant = std::exchange(name.second.claimant, {});
                claimants_.find(own.second.claimant)->second = &own;
            }
            return &own;
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }

    /// Those who wait behind the reader that has the claim now go on with it, as no writer stands between. Returns
    /// whether there are any. Without memory, the others contend.
    bool admit_crowd(Entry& crowd, const std::shared_ptr<ReaderClaim>& claim,
                     TimePoint now) noexcept {
        if (crowd.crowd_of == nullptr || claim == nullptr) return false;
        bool any = false;
        try {
            crowd.queue.for_each([&](Waiter& waiter) {
                const AcquireRequest& request = *waiter.request_;
                if (now >= request.deadline || !claim->serves(request.terms, now)) return;
                Entry& own = entries_.try_emplace(request.entry()).first->second;
                own.key_type = crowd.key_type;
                waiter.handed_ = share(claim, request, now).first;
                own.current = waiter.handed_;
                crowd.leave_queue(waiter);
                wake(&waiter);
                any = true;
            });
        } catch (const std::bad_alloc&) {
        }
        return any;
    }

    /// A hold of one more reader with the claim, and that of the one that was alone until now, if one was.
    static std::pair<std::shared_ptr<Hold>, std::shared_ptr<Hold>> share(
        const std::shared_ptr<ReaderClaim>& claim, const AcquireRequest& request, TimePoint now) {
        auto hold = std::make_shared<Hold>(request.terms, claim->token(), request.owner);
        hold->nest.push_back(request.acquisition);
        auto first = claim->join(hold, now);
        hold->claim = claim;
        if (request.delivered_later) hold->deliver_later();
        return {std::move(hold), std::move(first)};
    }

    /// The name that a grant may be for. A lock with claims may have several entries here.
    Named* find(const Grant& grant) {
        if (grant.weight != 0 || grant.is_notice()) {
            const auto claimant = claimants_.find(grant.token);
            if (claimant != claimants_.end()) return claimant->second;
        }
        if (grant.weight != 0) return nullptr;
        const auto name = entries_.find(grant.key);
        return name == entries_.end() ? nullptr : &*name;
    }

    /// Whether somebody else uses the token than who contends with it: readers that share the claim of one
    /// that has left, or a writer, as `is_used` says.
    bool is_claimed(const Grant& grant) const {
        if (readers_.go_by(grant.key, grant.token)) return true;
        const auto writer = entries_.find(grant.key);
        return writer != entries_.end() && writer->second.is_used(grant.token);
    }

    /// The claim that the reader may go on with if nobody waits at the server; null where it contends for one of
    /// its own. The last one that the server gave is the one that has passed nobody.
    std::shared_ptr<ReaderClaim> claim_for(const AcquireRequest& request, TimePoint now) const {
        const std::string& key = request.terms.keys->lock;
        if (closed_ || !request.terms.joins) return nullptr;
        auto last = readers_.last_claim(key);
        if (last == nullptr || !last->serves(request.terms, now)) return nullptr;
        return has_writer(key) ? nullptr : last;
    }

    /// Whether somebody of this process wants to write, or does: then the claim of its readers is gone.
    bool has_writer(const std::string& key) const {
        const auto name = entries_.find(key);
        if (name == entries_.end()) return false;
        return name->second.has_writer();
    }

    Joining join(Turn turn, const AcquireRequest& request,
                 const std::shared_ptr<ReaderClaim>& claim, TimePoint now) {
        Named& name = *turn.name_;
        Named& own =
            name.second.crowd_of == nullptr ? name : *entries_.try_emplace(request.entry()).first;
        own.second.key_type = name.second.key_type;
        auto [hold, first] = share(claim, request, now);
        own.second.current = hold;
        name.second.told_of_tries = true;
        admit_crowd(name.second, claim, now);
        hand_turn_on(name, false);
        return {.hold = std::move(hold), .first = std::move(first)};
    }

    /// `for_answer`: it has waited for the answer to another one's try.
    static WhyBusy why_busy(const Entry& here, const AcquireRequest& request, bool for_answer,
                            TimePoint now) {
        WhyBusy why{.is_unanswered = here.meets_silence(request, now),
                    .by_caller = here.is_held_by(request.caller, now)};
        if (here.contended || here.current == nullptr || for_answer) why.fault = here.fault;
        return why;
    }

    void set_fault(Entry& here, std::shared_ptr<const Error> fault) noexcept {
        here.fault = std::move(fault);
        here.told_of_tries = true;
        wake_single_tries(here);
    }

    Turn begin_turn(Named& name, const AcquireRequest& request, TimePoint now) noexcept {
        if (!request.wait.is_none()) close_crowds(request);
        name.second.contended = true;
        if (name.second.told_of_tries) name.second.begin_to_ask();
        if (name.second.unanswered_since == TimePoint{}) name.second.unanswered_since = now;
        name.second.key_type = request.terms.traits.key_type;
        return Turn{name};
    }

    std::optional<Outcome> why_wait_ends(const Entry& here, const Waiter& waiter, TimePoint now,
                                         bool stop_requested) const {
        if (closed_) return Outcome::closed;
        if (stop_requested) return Outcome::cancelled;
        if (waiter.has_answer_ || now >= here.end_of_wait(*waiter.request_, now))
            return Outcome::busy;
        return std::nullopt;
    }

    std::optional<Woken> end_of_pause(Entry& here, TimePoint until, TimePoint now,
                                      bool stop_requested) const {
        if (closed_) return Woken::closed;
        if (stop_requested) return Woken::cancelled;
        if (here.grant) return Woken::granted;
        if (now >= here.recheck_at) {
            here.recheck_at = TimePoint::max();
            return Woken::recheck;
        }
        if (now >= until) return Woken::in_time;
        return std::nullopt;
    }

    std::optional<Woken> end_of_nesting(const Hold& hold, TimePoint until, TimePoint now,
                                        bool stop_requested) const {
        if (closed_) return Woken::closed;
        if (stop_requested) return Woken::cancelled;
        if (!hold.valid(now)) return Woken::lost;
        if (now >= until) return Woken::in_time;
        return std::nullopt;
    }

    /// The waiter in front holds the lock.
    void hand_to_front(Entry& here, HandOff handed, TimePoint now) {
        wake(&here.pass_to_front(std::move(handed), now));
        wake_front(here);
        if (here.has_single_tries) set_fault(here, nullptr);
    }

    void hand_turn_on(Named& name, bool with_place) {
        Entry& here = name.second;
        here.contended = false;
        here.recheck_at = TimePoint::max();
        here.grant.reset();
        if (!with_place) here.queue_place.reset();
        wake_front(here);
        wake_single_tries(here);
        erase_if_unused(name);
    }

    template <class Predicate>
    Ending end_where(const std::string& key, Predicate matches) {
        const auto name = entries_.find(key);
        if (name == entries_.end()) return {};
        Entry& here = name->second;
        const auto from_current =
            here.current == nullptr ? std::nullopt : here.current->take_acquisition(matches);
        if (from_current) {
            Ending ending = end_held(here.current, *from_current);
            ending.can_hand_off =
                ending.kind == Ending::Kind::last && !closed_ && here.can_hand_off(*ending.hold);
            if (ending.kind == Ending::Kind::left) vacate(name);
            return ending;
        }
        for (auto hold = here.past.rbegin(); hold != here.past.rend(); ++hold) {
            const auto ended = (*hold)->take_acquisition(matches);
            if (!ended) continue;
            Ending ending = end_past(*hold, *ended);
            if (ending.hold->nest.empty()) here.past.erase(std::next(hold).base());
            erase_if_unused(name);
            return ending;
        }
        return {};
    }

    Ending end_past(const std::shared_ptr<Hold>& hold, const Acquisition& ended) {
        if (hold->in(Phase::held)) return end_held(hold, ended);
        return {.kind = Ending::Kind::past, .hold = hold, .count = hold->nest.size()};
    }

    Ending end_held(const std::shared_ptr<Hold>& hold, const Acquisition& ended) {
        Ending ending{.kind = Ending::Kind::past, .hold = hold, .count = hold->nest.size()};
        if (!hold->nest.empty()) {
            ending.kind = Ending::Kind::nested;
            ending.id = ended.id;
            ending.watched = ended.watched;
            const auto reads = [](const Acquisition& acquisition) { return acquisition.reads; };
            ending.downgrades = !ended.reads && !hold->reads() &&
                                std::all_of(hold->nest.begin(), hold->nest.end(), reads);
            if (ending.downgrades) hold->downgrade();
            return ending;
        }
        if (!hold->advance(Phase::held, Phase::releasing)) return ending;
        leave_claim(*hold);
        if (is_used_by_others(*hold)) {
            hold->advance(Phase::releasing, Phase::released);
            ending.kind = Ending::Kind::left;
            return ending;
        }
        ending.kind = Ending::Kind::last;
        return ending;
    }

    /// The holder of a hold that was lost is done. That frees what the server keeps for its `lock_delay`, at
    /// once or when that of others is over, who have lost the same claim. It also frees a lock that the
    /// server still has, as somebody has made it last longer, or has set the server's clock back. Claims end
    /// with their own leases.
    CleanUp end_lost(Hold& hold, TimePoint now) noexcept {
        if (!hold.has_lock_delay()) return hold.claim == nullptr ? after_ended_loss() : CleanUp{};
        if (hold.claim == nullptr || readers_.end_lost(hold, now)) {
            return after_delayed_loss(hold.unanswered());
        }
        if (!hold.claim->is_over() || !hold.claim->is_kept(now)) return {};
        hold.left_until = hold.claim->kept_until();
        return after_delayed_claim();
    }

    void leave_to_others(Ending& ending) {
        ending.kind = Ending::Kind::left;
        ending.can_hand_off = false;
        ending.clean_up = after_delayed_claim();
        ending.hold->left_until = ending.hold->claim->kept_until();
        ending.hold->advance(Phase::releasing, Phase::released);
        released(*ending.hold);
    }

    /// The current hold is over: the next one's turn.
    void vacate(Position name) {
        name->second.vacate();
        wake_front(name->second);
        erase_if_unused(name);
    }

    void wake_front(Entry& here) {
        if (here.has_to_wake_front()) wake(here.queue.front());
    }

    /// Those who wait for the answer to another one's try: there is one, or its turn is over without one.
    void wake_single_tries(Entry& here) noexcept {
        if (!std::exchange(here.has_single_tries, false)) return;
        here.queue.for_each([&](Waiter& waiter) {
            if (!waiter.waits_for_answer_) return;
            waiter.has_answer_ = here.told_of_tries;
            wake(&waiter);
        });
    }

    void wake(Waiter* waiter) noexcept { woken_.push(waiter); }

    void erase_if_unused(Named& name) {
        if (name.second.unused()) erase(entries_.find(name.first));
    }
    void erase_if_unused(Position name) {
        if (name->second.unused()) erase(name);
    }
    void erase(Position name) {
        if (!name->second.claimant.empty()) claimants_.erase(name->second.claimant);
        if (name->second.crowd_of != nullptr) {
            readers_.forget_crowd(name->second.crowd_of->lock, name->first);
        }
        entries_.erase(name);
    }

    WakeList woken_;
    Entries entries_;
    std::unordered_map<std::string, Named*> claimants_;
    Readers readers_;
    RemovedTokens removed_;
    bool closed_ = false;
    Random random_;
};

}  // namespace redlatch::inline v0::detail
