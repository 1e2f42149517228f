#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/random.hpp>
#include <redlatch/error.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/service/parker.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A process's place in the server's queue. It belongs to no thread: a waiter who leaves bequeaths
/// it to the next one.
struct QueuePlace {
    Token token;
    HoldTerms terms;
    bool unclear_try = false;  ///< as in `Hold`
};

/// A lock that passes from a thread of this process to the next.
struct HandOff {
    Token token;
    TimePoint refreshed;             ///< when the last command went out that gave it its lease
    bool unclear_try = false;        ///< as in `Hold`
    std::uint64_t fence = 0;         ///< as in `Hold`
    std::shared_ptr<TokenAtMasters> votes{};  ///< as in `Hold`
};

/// The state of every lock inside this process: who holds it, which one thread contends for it at
/// the server, and who waits behind that one, first come first served. All handles of a client on
/// one name meet here. Knows nothing of servers; does no I/O and calls no user code. Thread-safe.
///
/// A name's entry is there only while somebody holds it, contends for it or waits for it, or has
/// yet to return an acquisition that was lost.
class LockTable {
    /// The mutex, held. Whom its holder wakes is woken when it is free again: a thread that runs at
    /// once would only wait here.
    class Lock {
    public:
        explicit Lock(LockTable& table) : table_(&table) { lock(); }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;
        ~Lock() {
            if (held_) unlock();
        }

        void lock() {
            table_->mutex_.lock();
            held_ = true;
        }
        void unlock() {
            const Parker::Wake wake = std::exchange(table_->wake_, {});
            held_ = false;
            table_->mutex_.unlock();
            wake();
        }

    private:
        LockTable* table_;
        bool held_ = false;
    };
    using Holds = std::vector<std::shared_ptr<Hold>>;

public:
    /// Who wants a lock, and how long for.
    struct AcquireRequest {
        const HoldTerms& terms;
        LockOwner owner;
        LockOwner caller;  ///< the thread that waits, whoever is to own the hold
        Wait wait;
        TimePoint deadline;
        const std::stop_token& stop;
        Acquisition acquisition;
        HandoffLimit handoffs;

        const std::string& key() const noexcept { return terms.keys->lock; }
    };

private:
    /// A sleeping thread.
    class Sleeper {
    public:
        explicit Sleeper(const std::stop_token& stop) {
            if (stop.stop_possible()) on_stop_ = std::make_unique<OnStop>(stop, Unpark{&parker_});
        }

        /// Sleeps until it is woken, `until` has come or a stop is requested; maybe less. Holds the
        /// mutex before.
        void sleep(Lock& lock, TimePoint until) {
            lock.unlock();
            parker_.park(until);
        }
        [[nodiscard]] Parker::Wake wake() noexcept { return parker_.unpark(); }

    private:
        struct Unpark {
            Parker* parker;
            void operator()() const noexcept { parker->unpark()(); }
        };

        using OnStop = std::stop_callback<Unpark>;

        Parker parker_;
        std::unique_ptr<OnStop> on_stop_;  // g++ 12 warns of an optional one, for no reason
    };

    /// A thread in the queue.
    struct Waiting {
        const AcquireRequest* request;
        Sleeper sleeper;
        TimePoint asleep_until = TimePoint::max();
        std::shared_ptr<Hold> hold{};    // that the lock has passed on to
        std::atomic<bool> given{false};  // it has; the queue has forgotten about this
    };

    struct Entry {
        KeyType key_type{};
        std::shared_ptr<Hold> current{};          // acquired, and not over as far as is known
        Holds past{};                             // lost, with acquisitions not yet returned
        bool contended = false;                   // a thread has its turn at the server
        Sleeper* contender = nullptr;             // that thread, while it pauses
        TimePoint recheck_at = TimePoint::max();  // it should ask the server again
        std::optional<QueuePlace> queue_place{};  // under which it waits at the server, if it does
        std::optional<Grant> grant{};             // a message for that queue_place
        std::shared_ptr<const Error> fault{};     // what that thread met instead of an answer
        std::vector<Sleeper*> nesting{};          // threads that pause before they nest once more
        std::list<Waiting*> queue{};
        Handoffs handoffs{};

        bool free() const noexcept { return current == nullptr && !contended; }
        bool unused() const noexcept {
            return free() && queue.empty() && past.empty() && nesting.empty();
        }
    };

    using Entries = std::unordered_map<std::string, Entry>;
    using Named = Entries::value_type;  // stays where it is, whatever is added or erased

public:
    /// Why a pause has ended.
    enum class Woken {
        in_time,    ///< it was over
        granted,    ///< a message says that the lock is ours
        recheck,    ///< a message may have been missed
        lost,       ///< the end of the hold that the thread nests in
        cancelled,  ///< the stop token
        closed,     ///< the end of the client
    };

    /// A thread's turn to contend for a lock at the server. At its end the next one has it, unless
    /// it was turned into a hold.
    class Turn {
    public:
        Turn(LockTable& table, Named& entry) : table_(&table), entry_(&entry) {}
        Turn(Turn&& other) noexcept
            : table_(std::exchange(other.table_, nullptr)), entry_(other.entry_) {}
        Turn& operator=(Turn&&) = delete;
        ~Turn() {
            if (table_ != nullptr) table_->end_turn(*entry_, nullptr, false);
        }

        /// Sleeps until `until`, or until there is something to do.
        Woken pause(TimePoint until, const std::stop_token& stop) {
            return table_->pause(entry_->second, until, stop);
        }

        /// The place in the server's queue that the thread before has left behind.
        std::optional<QueuePlace> inherited() const {
            const Lock lock{*table_};
            return entry_->second.queue_place;
        }

        /// Announces the token of a hold that will ask for a place in the server's queue: from now
        /// on a grant for it is known to be ours.
        void announce(const Hold& hold) {
            const Lock lock{*table_};
            entry_->second.queue_place = {.token = hold.token(), .terms = hold.terms()};
        }

        /// The message that ended the pause.
        std::optional<Grant> take_grant() {
            const Lock lock{*table_};
            return std::exchange(entry_->second.grant, std::nullopt);
        }

        /// Whether another thread waits that could inherit the place.
        bool has_heirs() const {
            const Lock lock{*table_};
            return !entry_->second.queue.empty();
        }

        /// Ends the turn without a hold. True where the next thread inherits the place in the
        /// server's queue; else the caller has to see to what it has left at the server.
        bool bequeath(bool unclear_try) {
            return std::exchange(table_, nullptr)->bequeath(*entry_, unclear_try);
        }

        /// The last try met a fault, or (null) an answer. Who gives up behind it gave up for that.
        void met(std::shared_ptr<const Error> fault) {
            const Lock lock{*table_};
            entry_->second.fault = std::move(fault);
        }

        /// The server gave the lock to `hold`, and says whether other processes wait. False where
        /// the client was closed meanwhile: then nothing is held here, and the caller has to release
        /// it.
        bool finish(std::shared_ptr<Hold> hold, bool others_wait = false) {
            return std::exchange(table_, nullptr)->end_turn(*entry_, std::move(hold), others_wait);
        }

    private:
        LockTable* table_;
        Named* entry_;
    };

    enum class Answer {
        turn,            ///< contend for it at the server
        handed,          ///< the thread before us has passed it on
        nested,          ///< this thread holds it already, and may hold it again
        deadlock,        ///< this thread holds it already, may not again, and would wait for ever
        busy,            ///< the wait ended first
        cancelled,       ///< the stop token ended the wait
        closed,          ///< the client has been closed
        wrong_key_type,  ///< it is in use with a policy of another key type
    };

    struct Admission {
        Answer answer;
        std::optional<Turn> turn{};
        std::shared_ptr<Hold> hold{};          ///< where handed: the one we have now; where nested
        std::uint64_t count = 0;               ///< where nested: the hold count wanted now
        Holds expired{};                       ///< found past their validity: to be declared lost
        std::shared_ptr<const Error> fault{};  ///< where busy: why, if not because of a holder
    };

    LockTable() = default;
    LockTable(const LockTable&) = delete;
    LockTable& operator=(const LockTable&) = delete;

    /// Asks for a lock. Waits in the queue as long as somebody else of this process is before us.
    Admission enter(const AcquireRequest& request) {
        Lock lock{*this};
        if (closed_) return {Answer::closed};
        return admit(lock, *entries_.try_emplace(request.key()).first, request);
    }

    /// What a hold loses when one of its acquisitions ends.
    struct Ending {
        enum class Kind {
            nothing,  ///< there was no such acquisition
            nested,   ///< others of the hold go on
            last,     ///< the hold has to be released at the server
            handed,   ///< the hold has passed on to the next thread here
            past,     ///< the hold was lost before
        };
        Kind kind = Kind::nothing;
        std::shared_ptr<Hold> hold{};
        std::uint64_t count = 0;  ///< where nested: how many are left
        bool watched = false;     ///< where nested: the acquisition that ended was
        bool has_heir = false;  ///< where last: a thread here would like to be next, on equal terms
    };

    /// Ends the innermost acquisition that `owner` made with `lock()` or `try_lock()`.
    Ending end_innermost(const std::string& key, LockOwner owner) {
        return end_where(key, [owner](const Hold& hold, const Acquisition& acquisition) {
            return hold.owner() == owner && acquisition.through != nullptr;
        });
    }

    /// Ends one acquisition of a hold, from any thread.
    Ending end_acquisition(const Hold& hold, std::uint64_t id) {
        return end_where(hold.key(),
                         [&hold, id](const Hold& other, const Acquisition& acquisition) {
                             return &other == &hold && acquisition.id == id;
                         });
    }

    /// Ends one of the acquisitions made through one `LockImpl`, whichever thread made it.
    Ending end_one_through(const std::string& key, const void* through) {
        return end_where(key, [through](const Hold&, const Acquisition& acquisition) {
            return acquisition.through == through;
        });
    }

    /// The release of a hold has been answered, or given up: the next one's turn.
    void released(const Hold& hold) {
        const Lock lock{*this};
        vacate(hold);
    }

    /// Instead of a release, the server gave the lock to the token in `handed`. False where nobody
    /// here wants it any more on the terms of `hold`: then the caller has to release that token.
    bool moved(const Hold& hold, HandOff handed, bool others_wait) {
        const Lock lock{*this};
        const auto entry = entries_.find(hold.key());
        if (entry == entries_.end() || entry->second.current.get() != &hold) return false;
        Entry& here = entry->second;
        here.handoffs.others_wait(others_wait, handed.refreshed);
        if (closed_ || !has_heir(here, hold)) return false;
        hand_on(here, std::move(handed));
        return true;
    }

    /// A hold is over without a release.
    void lost(const std::shared_ptr<Hold>& hold) {
        const Lock lock{*this};
        const auto entry = entries_.find(hold->key());
        if (entry == entries_.end()) return;
        Entry& here = entry->second;
        for (Sleeper* sleeper : here.nesting) wake(sleeper);
        if (here.current == hold && !hold->nest.empty()) here.past.push_back(hold);
        vacate(*hold);
    }

    /// Sleeps as a thread that is about to nest in `hold`, which it has: until `until`, or until
    /// there is something to do.
    Woken pause(const Hold& hold, TimePoint until, const std::stop_token& stop) {
        Lock lock{*this};
        const auto entry = entries_.find(hold.key());
        if (entry == entries_.end()) return Woken::lost;
        Entry& here = entry->second;
        Sleeper self{stop};
        here.nesting.push_back(&self);
        std::optional<Woken> cause;
        while (!(cause = end_of_nesting(hold, until, stop))) {
            self.sleep(lock, std::min(until, hold.valid_until()));
            lock.lock();
        }
        std::erase(here.nesting, &self);
        erase_if_unused(*entry);
        return *cause;
    }

    /// What `owner` holds under `key`, or held until it was lost; null for nothing.
    std::shared_ptr<Hold> find(const std::string& key, LockOwner owner) {
        const Lock lock{*this};
        const auto entry = entries_.find(key);
        if (entry == entries_.end()) return nullptr;
        const auto& current = entry->second.current;
        if (current != nullptr && current->owner() == owner) return current;
        const auto& past = entry->second.past;
        const auto last = std::find_if(past.rbegin(), past.rend(), [owner](const auto& hold) {
            return hold->owner() == owner;
        });
        return last == past.rend() ? nullptr : *last;
    }

    /// Who in this process holds `key`, whichever thread; null for nobody.
    std::shared_ptr<Hold> current(const std::string& key) {
        const Lock lock{*this};
        const auto entry = entries_.find(key);
        return entry == entries_.end() ? nullptr : entry->second.current;
    }

    /// Hands a grant to whom it is for. False where nobody here goes by that token (any more): the
    /// caller has to give the lock back.
    bool deliver(const Grant& grant) {
        const Lock lock{*this};
        const auto found = entries_.find(grant.key);
        if (found == entries_.end()) return false;
        Entry& here = found->second;
        if (here.queue_place && here.queue_place->token.bytes == grant.token) {
            here.grant = grant;
            wake(here.contender);
            return true;
        }
        // The answer to its own question was faster than the message.
        return here.current != nullptr && here.current->token().bytes == grant.token;
    }

    /// Messages may have been missed: whoever waits at the server asks again, spread over some time.
    void recheck_all(TimePoint now) {
        const Lock lock{*this};
        const auto waiting = static_cast<Clock::rep>(entries_.size());
        const auto span = std::min<Clock::duration>(waiting * std::chrono::milliseconds{1},
                                                    std::chrono::seconds{1});
        for (auto& [key, entry] : entries_) {
            if (!entry.queue_place) continue;
            entry.recheck_at = now + Clock::duration{random_.between(0, span.count())};
            wake(entry.contender);
        }
    }

    /// What the lock table leaves behind at the end of the client: the caller has to release it.
    struct Remains {
        Holds holds{};
        std::vector<QueuePlace>
            places{};  ///< left behind for a thread here that does not get to use it
    };

    /// Ends all waiting and lets nobody in any more.
    Remains close() {
        const Lock lock{*this};
        closed_ = true;
        Remains remains;
        for (auto& [key, entry] : entries_) {
            if (entry.current != nullptr) remains.holds.push_back(entry.current);
            if (entry.queue_place && !entry.contended) {
                remains.places.push_back(*std::exchange(entry.queue_place, std::nullopt));
            }
            wake(entry.contender);
            for (Sleeper* sleeper : entry.nesting) wake(sleeper);
            for (Waiting* waiting : entry.queue) wake(&waiting->sleeper);
        }
        return remains;
    }

    /// How many names have an entry.
    std::size_t size() {
        const Lock lock{*this};
        return entries_.size();
    }

private:
    Admission admit(Lock& lock, Named& entry, const AcquireRequest& request) {
        Entry& here = entry.second;
        Admission admission{Answer::busy};
        // Where threads wait, the one in front takes it out, and has its turn at once.
        if (here.queue.empty()) take_expired(here, admission.expired);
        if (here.free() && here.queue.empty()) here.key_type = request.terms.traits.key_type;
        const bool valid = here.current != nullptr && here.current->valid(Clock::now());
        if (here.key_type != request.terms.traits.key_type) {
            admission.answer = Answer::wrong_key_type;
        } else if (valid && here.current->owner() == request.owner &&
                   request.terms.traits.reentrant) {
            nest(here.current, request.acquisition, admission);
        } else if (valid && here.current->owner() == request.caller &&
                   request.wait.is_unlimited()) {
            admission.answer = Answer::deadlock;
        } else if (here.free() && here.queue.empty()) {
            admission.answer = Answer::turn;
        } else if (!request.wait.is_none()) {
            wait_for_turn(lock, here, request, admission);
            if (admission.answer == Answer::handed) return admission;
        }
        if (admission.answer == Answer::busy && here.contended) admission.fault = here.fault;
        if (admission.answer == Answer::turn) {
            here.contended = true;
            admission.turn.emplace(*this, entry);
        }
        erase_if_unused(entry);
        return admission;
    }

    static void nest(const std::shared_ptr<Hold>& hold, const Acquisition& acquisition,
                     Admission& admission) {
        hold->nest.push_back(acquisition);
        admission.answer = Answer::nested;
        admission.hold = hold;
        admission.count = hold->nest.size();
    }

    void wait_for_turn(Lock& lock, Entry& here, const AcquireRequest& request,
                       Admission& admission) {
        Waiting self{&request, Sleeper{request.stop}};
        here.queue.push_back(&self);
        do {
            const bool front = here.queue.front() == &self;
            if (front) take_expired(here, admission.expired);
            if (front && here.free() && !closed_) {
                here.queue.pop_front();
                admission.answer = Answer::turn;
                return;
            }
            if (const auto end = end_of_wait(request)) {
                admission.answer = leave_queue(here, self, *end);
                return;
            }
            self.asleep_until = std::min(request.deadline, end_to_watch(here));
            self.sleeper.sleep(lock, self.asleep_until);
            if (!self.given.load(std::memory_order_acquire)) lock.lock();
        } while (!self.given.load(std::memory_order_acquire));
        // The entry is others' business by now; nor need the mutex be held.
        admission.answer = Answer::handed;
        admission.hold = std::move(self.hold);
    }

    /// How long a thread in the queue may sleep. Each of them watches for the end of the present
    /// hold, so that hardly any has to be woken when it becomes the one in front.
    static TimePoint end_to_watch(const Entry& here) {
        const bool runs = here.current != nullptr && here.current->valid(Clock::now());
        return runs ? here.current->valid_until() : TimePoint::max();
    }

    std::optional<Answer> end_of_wait(const AcquireRequest& request) const {
        if (closed_) return Answer::closed;
        if (request.stop.stop_requested()) return Answer::cancelled;
        if (Clock::now() >= request.deadline) return Answer::busy;
        return std::nullopt;
    }

    Answer leave_queue(Entry& here, const Waiting& self, Answer answer) {
        const bool was_front = here.queue.front() == &self;
        std::erase(here.queue, &self);
        if (was_front) wake_front(here);
        return answer;
    }

    /// Whether the thread in front would not notice, but for the token, that `hold` was not its own.
    static bool has_heir(const Entry& here, const Hold& hold) {
        if (hold.scripts().move.source().empty() || here.queue.empty()) return false;
        const AcquireRequest& next = *here.queue.front()->request;
        if (next.terms.replicas != Replicas::none()) return false;  // it has to ask them
        return hold.terms().same_at_server(next.terms) && here.handoffs.allowed(next.handoffs);
    }

    /// The thread in front holds the lock.
    void hand_on(Entry& here, HandOff handed) {
        Waiting& next = *here.queue.front();
        const AcquireRequest& request = *next.request;
        here.current =
            std::make_shared<Hold>(request.terms, std::move(handed.token), request.owner);
        here.queue.pop_front();
        here.handoffs.count();
        here.current->unclear_try = handed.unclear_try;
        here.current->fence = handed.fence;
        here.current->votes = std::move(handed.votes);
        here.current->nest.push_back(request.acquisition);
        here.current->taken(Clock::now(), handed.refreshed);
        next.hold = here.current;
        wake(&next.sleeper);
        next.given.store(true, std::memory_order_release);  // it may be gone after this
        wake_front(here);
    }

    std::optional<Woken> end_of_nesting(const Hold& hold, TimePoint until,
                                        const std::stop_token& stop) const {
        const TimePoint now = Clock::now();
        if (closed_) return Woken::closed;
        if (stop.stop_requested()) return Woken::cancelled;
        if (!hold.valid(now)) return Woken::lost;
        if (now >= until) return Woken::in_time;
        return std::nullopt;
    }

    Woken pause(Entry& here, TimePoint until, const std::stop_token& stop) {
        Lock lock{*this};
        Sleeper self{stop};
        here.contender = &self;
        Woken woken{};
        while (!has_cause(here, until, stop, woken)) {
            self.sleep(lock, std::min(until, here.recheck_at));
            lock.lock();
        }
        here.contender = nullptr;
        return woken;
    }

    bool has_cause(Entry& here, TimePoint until, const std::stop_token& stop, Woken& cause) const {
        const TimePoint now = Clock::now();
        if (closed_) {
            cause = Woken::closed;
        } else if (stop.stop_requested()) {
            cause = Woken::cancelled;
        } else if (here.grant) {
            cause = Woken::granted;
        } else if (now >= here.recheck_at) {
            here.recheck_at = TimePoint::max();
            cause = Woken::recheck;
        } else if (now >= until) {
            cause = Woken::in_time;
        } else {
            return false;
        }
        return true;
    }

    bool bequeath(Named& entry, bool unclear_try) {
        const Lock lock{*this};
        Entry& here = entry.second;
        const bool inherited = here.queue_place && !here.queue.empty() && !closed_;
        if (inherited) here.queue_place->unclear_try = unclear_try;
        hand_turn_on(entry, inherited);
        return inherited;
    }

    void hand_turn_on(Named& entry, bool with_ticket) {
        Entry& here = entry.second;
        here.contended = false;
        here.recheck_at = TimePoint::max();
        here.grant.reset();
        if (!with_ticket) here.queue_place.reset();
        wake_front(here);
        erase_if_unused(entry);
    }

    bool end_turn(Named& entry, std::shared_ptr<Hold> hold, bool others_wait) {
        const Lock lock{*this};
        Entry& here = entry.second;
        if (hold != nullptr) here.handoffs.begin(others_wait, hold->refreshed_at());
        const bool kept = hold == nullptr || !closed_;
        if (hold != nullptr) here.fault = nullptr;
        if (kept && hold != nullptr && hold->in(Phase::lost)) {
            here.past.push_back(std::move(hold));  // a service was faster
        } else if (kept) {
            here.current = std::move(hold);
        }
        hand_turn_on(entry, false);
        return kept;
    }

    template <class Predicate>
    Ending end_where(const std::string& key, Predicate matches) {
        const Lock lock{*this};
        const auto entry = entries_.find(key);
        if (entry == entries_.end()) return {};
        Entry& here = entry->second;
        if (const auto ended = take_acquisition(here.current.get(), matches)) {
            return end_current(here, *ended);
        }
        for (auto hold = here.past.rbegin(); hold != here.past.rend(); ++hold) {
            if (!take_acquisition(hold->get(), matches)) continue;
            Ending ending{.kind = Ending::Kind::past, .hold = *hold};
            if (ending.hold->nest.empty()) here.past.erase(std::next(hold).base());
            erase_if_unused(*entry);
            return ending;
        }
        return {};
    }

    /// Removes the innermost acquisition that matches, and returns it; nothing where none does.
    template <class Predicate>
    static std::optional<Acquisition> take_acquisition(Hold* hold, Predicate matches) {
        if (hold == nullptr) return std::nullopt;
        auto& nest = hold->nest;
        const auto found = std::find_if(nest.rbegin(), nest.rend(),
                                        [&](const Acquisition& a) { return matches(*hold, a); });
        if (found == nest.rend()) return std::nullopt;
        const Acquisition taken = *found;
        nest.erase(std::next(found).base());
        return taken;
    }

    Ending end_current(Entry& here, const Acquisition& ended) {
        const std::shared_ptr<Hold> hold = here.current;
        Ending ending{.kind = Ending::Kind::past, .hold = hold, .count = hold->nest.size()};
        if (!hold->nest.empty()) {
            ending.kind = Ending::Kind::nested;
            ending.watched = ended.watched;
            return ending;
        }
        ending.has_heir = !closed_ && has_heir(here, *hold);
        const bool passes = ending.has_heir && passes_silently(here, *hold);
        if (!hold->advance(Phase::held, passes ? Phase::released : Phase::releasing)) return ending;
        ending.kind = passes ? Ending::Kind::handed : Ending::Kind::last;
        if (passes) {
            hand_on(here, {hold->token(), hold->refreshed_at(), hold->unclear_try, 0, hold->votes});
        }
        return ending;
    }

    static bool passes_silently(const Entry& here, const Hold& hold) {
        const HoldTerms& terms = hold.terms();
        if (terms.traits.fenced) return false;  // the next one needs a number of its own
        const TimePoint now = Clock::now();
        // One that was extended lasts longer at the server than the next one asks for.
        const TimePoint end = detail::valid_until(hold.refreshed_at(), terms.lease, terms.drift);
        if (hold.valid_until() > end || hold.may_be_prolonged) return false;
        return hold.valid(now) && may_pass_silently(hold.refreshed_at(), here.handoffs.news(), now,
                                                    hold.terms().lease);
    }

    /// A hold past its validity blocks nobody here any longer. The caller declares it lost at once.
    static void take_expired(Entry& here, Holds& expired) {
        if (here.current == nullptr || !here.current->in(Phase::held)) return;
        if (here.current->valid(Clock::now())) return;
        expired.push_back(here.current);
        here.past.push_back(std::exchange(here.current, nullptr));
    }

    void vacate(const Hold& hold) {
        const auto entry = entries_.find(hold.key());
        if (entry == entries_.end() || entry->second.current.get() != &hold) return;
        entry->second.current = nullptr;
        wake_front(entry->second);
        erase_if_unused(*entry);
    }

    /// Wakes the thread in front where it would oversleep its turn. A hold that is being released
    /// wakes it when it is over.
    void wake_front(Entry& here) {
        if (here.queue.empty()) return;
        Waiting& front = *here.queue.front();
        const Hold* const hold = here.current.get();
        const bool may_sleep = hold != nullptr && (!hold->in(Phase::held) ||
                                                   front.asleep_until <= hold->valid_until());
        if (!may_sleep) wake(&front.sleeper);
    }

    void wake(Sleeper* sleeper) {
        if (sleeper == nullptr) return;
        if (wake_.pending()) wake_();  // seldom are there two
        wake_ = sleeper->wake();
    }

    void erase_if_unused(Named& entry) {
        if (entry.second.unused()) entries_.erase(entries_.find(entry.first));
    }

    std::mutex mutex_;
    Parker::Wake wake_;  // to be carried out when the mutex is free
    Entries entries_;
    bool closed_ = false;
    Random random_{static_cast<std::uint64_t>(Clock::now().time_since_epoch().count())};
};

}  // namespace redlatch::inline v0::detail
