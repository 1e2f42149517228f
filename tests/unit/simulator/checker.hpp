#pragma once

#include "coverage.hpp"
#include "server.hpp"
#include <redlatch/core/describe_owner.hpp>
#include <redlatch/core/handoff.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_entry.hpp>
#include <redlatch/core/recheck.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/net/server_error.hpp>
#include <redlatch/options.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// What must be true after every step of a schedule, and at its end. Throws `Violation`.
class Checker {
public:
    using HoldPtr = std::shared_ptr<detail::Hold>;

    Checker(const Plan& plan, const Timeline& timeline, Trace& trace,
            std::vector<std::unique_ptr<Server>>& servers)
        : plan_(&plan), timeline_(&timeline), trace_(&trace), servers_(&servers) {}

    void add(const Host& host) { hosts_.push_back(&host); }

    // ---- What clients do

    void sent(const Command& command) {
        if (command.token().empty()) return;
        Token& token = token_of(command.token());
        token.lock = command.lock;
        if (command.asks()) token.asked |= bit_of(command.master);
        if (command.verb == Verb::move) {
            token_of(command.next_token()).asked |= bit_of(command.master);
        }
        if (command.asks()) token.fenced = command.fenced();
        if (command.asks()) token.reads = command.reads();
        if (command.verb == Verb::release) {
            token.dead = true;
        } else if (token.dead && (command.asks() || command.verb == Verb::move)) {
            fail("a token is used after its release was sent: " + std::string{command.token()});
        }
    }

    /// The lock is to last longer. The command may go out somewhat later.
    void prolongs(const detail::Hold& hold) {
        const std::string& name = hold.token().bytes;
        if (token_of(name).dead) fail("a token is renewed after its release was sent: " + name);
    }

    /// A renewal goes out, which is for all readers that share a claim.
    void renews(const detail::Hold& hold) {
        if (!hold.terms().joins) return;
        Token& token = token_of(hold.token().bytes);
        const Moment last = std::exchange(token.renewal_sent_at, timeline_->now());
        if (!is_soon(last, hold)) return;
        if (token.early_renewals-- <= 0)
            fail("a claim is renewed for each reader: " + hold.token().bytes);
    }

    /// Nobody will use the token again. What a hidden repetition got for it, nobody gives back.
    void dies(std::string_view name) {
        Token& token = token_of(name);
        token.dead = true;
        if (plan_->rates.doubled > 0) damage_by_owner(token.lock, name);
    }

    /// A release of the token is planned, the last one for `last`. The first one comes at once, or when its
    /// `lock_delay` is over.
    void cleans_up(std::string_view name, detail::CleanUp what, Moment last) {
        if (what.at_once) look_for_lock_delay(name);
        if (what.at_once || what.is_delayed) token_of(name).waits_for_release = false;
        dies(name);
        disturbed(timeline_->now());  // it may have to be sent again
        Token& token = token_of(name);
        token.held_by_few = false;
        token.granted_in_vain = false;
        token.to_be_released = token.asked;
        token.taken_late = 0;
        token.outlasts_holds = false;
        token.released_at = std::max(token.released_at, last);
    }
    /// Its client hears for how long the server gives it the lock.
    void is_given(std::string_view name, milliseconds ttl) { token_of(name).given_for = ttl; }
    /// It has the lock, as its client hears, and too few replicas know of that.
    void held_by_few(std::string_view name) { token_of(name).held_by_few = true; }
    /// Its client hears of a grant, and nobody there wants it.
    void granted_in_vain(std::string_view name) { token_of(name).granted_in_vain = true; }
    /// The same of the late answer to a try. Where the token has been released for the last time, nobody else will.
    void answered_in_vain(std::string_view name) {
        Token& token = token_of(name);
        const bool for_good = token.is_over() && timeline_->now() > token.released_at;
        if (for_good && token.to_be_released == 0) token.granted_in_vain = true;
    }
    /// Its lock has moved to a ticket, for another process: that is adopted, or its lease ends.
    void detached(const detail::Hold& hold, std::string_view ticket) {
        token_of(ticket).is_ticket = true;
        token_of(hold.token().bytes).kept_until = Moment{-1h};
    }
    /// It may have the lock of a hold, and is kept for nobody as long as that.
    void keeps(std::string_view ticket, const detail::Hold& hold) {
        token_of(ticket).kept_until = token_of(hold.token().bytes).kept_until;
    }
    /// Not all that was planned will be done.
    void clean_up_failed() { tidy_ = false; }

    /// One more waits for so much of the lock, or one less.
    void waits(int process, int lock, std::int64_t weight, int more) {
        Lock& here = locks_[static_cast<std::size_t>(lock)];
        auto& waiting = here.waiting[static_cast<std::size_t>(process)];
        if (more > 0) {
            waiting.push_back(weight);
        } else {
            waiting.erase(std::ranges::find(waiting, weight));
        }
    }

    /// `handed`: by the holder before, in the process; `handoffs`: how often in a row that may be.
    void begins(const HoldPtr& hold, int lock, bool handed, unsigned handoffs) {
        Lock& here = locks_[static_cast<std::size_t>(lock)];
        const std::string& name = hold->token().bytes;
        (*trace_)("holds ", tail(name), " until ", moment_of_end(*hold) / 1us, "us");
        Token& token = token_of(name);
        revive(token, *hold);
        held_[hold.get()] = {.keep = hold};
        token.held_by_few = false;
        if (token.given_in == generation(0)) token.lost_by_failover = false;
        check_replicated(*hold, token);
        const std::uint64_t expected = hold->terms().traits.fenced ? token.fence : 0;
        // A command that the network has doubled takes the lock anew for a token whose lease was over.
        const bool taken_anew = hold->fence < expected && moment_of_end(*hold) <= timeline_->now();
        if (several()) {
            check_fence_of_several(here, *hold);
        } else if (hold->fence != expected && !taken_anew && token.generation == generation(0) &&
                   !token.lost_by_failover && !token.was_forced &&
                   !is_of_server_before(*hold, token)) {
            fail("the fencing token is not its own: " + name);
        }
        token.first_end = token.end = hold->valid_until();
        if (!handed) note_longer_lease(token, lock, *hold);
        token.began = timeline_->now();
        token.moved_to = false;
        Moment& kept_until = here.kept_until[static_cast<std::size_t>(process_of(name))];
        if (handed && timeline_->now() < kept_until) fail("handed on before its min_hold was over");
        kept_until = token.kept_until = moment_of_min_hold(*hold);
        if (plan_->is_calm()) check_row(here, process_of(name), handed, handoffs);
        here.holds.push_back(hold);
        here.idle_since = timeline_->now();
        check_end(lock, *hold);
        check_exclusion(here);
    }

    /// One more reader of its process goes on with its claim. What that knows of others is some moments old, or of when
    /// the reader has asked.
    void joins(const detail::Hold& hold, int lock, Moment asked) const {
        const std::string& name = hold.token().bytes;
        const auto token = tokens_.find(name);
        if (token == tokens_.end() || token->second.is_over()) {
            fail("a reader goes on with a claim that is over: " + name);
        }
        const Lock& here = locks_[static_cast<std::size_t>(lock)];
        // A release that an ACL stops half-way takes places with it.
        if (!here.order_is_known || !clocks_keep_time_ || plan_->denies_any()) return;
        const Moment known = std::min(asked, timeline_->now() - longest_without_news);
        for (const Queued& one : here.order) {
            const auto other = tokens_.find(one.token);
            const bool is_own = process_of(one.token) == process_of(name) &&
                                other != tokens_.end() && !other->second.reads &&
                                !other->second.is_over();
            if (timeline_->now() + 2ms >= one.present_until) continue;
            if (is_own || one.since < known) fail("a reader goes past one that waits: " + name);
        }
    }

    /// The reader that takes a claim came to its process as that one.
    void came(const std::string& name, std::uint64_t number) { token_of(name).came = number; }
    /// One more reader gets in with one that came before it. `writers`: who waits to write in that process.
    void is_let_in(const std::string& name, std::uint64_t number,
                   const std::vector<std::uint64_t>& writers) {
        const Token& token = token_of(name);
        for (const std::uint64_t writer : writers) {
            if (token.came < writer && writer < number)
                fail("a reader is let in past a writer of its process: " + name);
        }
    }

    /// It will be delivered later: until then nobody has it.
    void awaits_delivery(const detail::Hold& hold) { held(hold).undelivered = true; }
    /// Its caller has it from now on.
    void delivers(const detail::Hold& hold, int lock) {
        const std::string& name = hold.token().bytes;
        (*trace_)("delivers ", tail(name));
        if (host_of(hold).clock() >= hold.valid_until()) {
            fail("delivered when its validity was over: " + name);
        }
        Token& token = token_of(name);
        held(hold).undelivered = false;
        held(hold).delivered_late =
            host_of(hold).clock() + 20 * plan_->latency > hold.valid_until();
        token.kept_until = moment_of_min_hold(hold);
        Lock& here = locks_[static_cast<std::size_t>(lock)];
        here.kept_until[static_cast<std::size_t>(process_of(name))] = token.kept_until;
    }
    /// Its caller does not get it, or does not want it any more.
    void gives_back(const detail::Hold& hold) { held(hold).undelivered = false; }

    /// A set that a thread was refused was given back, in time.
    void was_given_back(const detail::Hold& hold, int lock) const {
        if (!plan_->is_calm() || several() || hold.terms().joins || !hold.in(Phase::released))
            return;
        const std::string& name = hold.token().bytes;
        if (Server::find(server(0).owners(lock), name).token == name) {
            fail("a set leaves one of its locks taken behind: " + name);
        }
    }

    /// A hold that its plan says owns itself, or does not.
    void owns_itself(const detail::Hold& hold, bool yes) { held(hold).owns_itself = yes; }

    /// An acquisition has succeeded that wants the hold to be renewed.
    void watches(const detail::Hold& hold, std::uint64_t acquisition) {
        Token& token = token_of(hold.token().bytes);
        token.watchers.push_back(acquisition);
        ++token.early_renewals;
        ++held(hold).early_renewals;
    }

    /// Its owner has asked once more.
    void nests(const detail::Hold& hold) {
        if (held(hold).owns_itself) fail("nested in a hold that owns itself");
    }

    /// It is about to be kept.
    void takes(const detail::Hold& hold) const {
        if (host_of(hold).clock() >= hold.valid_until()) {
            fail("taken when its validity was over: " + hold.token().bytes);
        }
    }

    /// An acquisition has failed.
    void gives_up(int process, TimePoint deadline, Errc why) const {
        const bool passes = why == Errc::timed_out || why == Errc::unavailable ||
                            why == Errc::no_quorum || why == Errc::not_replicated;
        if (passes && host(process).clock() < deadline) fail("gave up before its deadline");
    }

    /// A single try, which lasts as long as a command may take.
    void met_a_fault() const {
        if (plan_->is_calm() && !several() && leases_outlast_commands(*plan_))
            fail("told of a fault, and there was none");
    }

    /// Its process asks with it in its turn from now on, and has asked with `before` until now.
    void contends(std::string_view name, int lock, std::string_view before) {
        const bool is_answered = !before.empty() && token_of(before).is_answered;
        Token& token = token_of(name);
        token.lock = lock;
        token.contends_since = timeline_->now();
        token.is_answered = is_answered;
    }
    /// A try with it.
    void answered(std::string_view name) { token_of(name).is_answered = true; }

    /// An acquisition with that token, or with none yet, says that others have had the lock since it `started`.
    void says_others_have_it(int process, int lock, std::string_view name, Moment started) {
        if (host(process).frozen_until() >= started) return;  // others have not had their turn yet
        if (is_narrowed(lock)) return;  // there are too few permits for anybody
        if (locks_[static_cast<std::size_t>(lock)].deposed_answered_at >= started) return;
        for (std::size_t master = 0; master < servers_->size(); ++master) {
            note_owners(lock, server(static_cast<int>(master)).owners(lock));
        }
        const Moment recent = timeline_->now() - detail::LockEntry::silent_after - 50ms;
        // What its own command has left, the same one finds that runs once more.
        const bool runs_twice = plan_->rates.doubled > 0 || plan_->rates.repeated > 0;
        const bool is_true = std::ranges::any_of(tokens_, [&](const auto& named) {
            const auto& [other, token] = named;
            if (token.lock != lock || (other == name && !runs_twice)) return false;
            if (token.had_at >= started) return true;
            if (process_of(other) != process) return false;
            // Its release, or its first try, may be on its way.
            const Moment end = host(process).moment_of(token.end);
            if (std::max({token.had_at, end, token.contends_since}) >= recent) return true;
            return token.is_answered && !token.is_over();
        });
        if (!is_true) fail("says that others have a lock that nobody has had");
    }

    /// A renewal was answered.
    void renewed(const detail::Hold& hold) {
        Held& token = held(hold);
        if (token.undelivered) fail("renewed before it was delivered: " + hold.token().bytes);
        const Moment last = std::exchange(token.renewed_at, timeline_->now());
        if (hold.terms().joins || !is_soon(last, hold)) return;
        if (token.early_renewals-- <= 0) fail("renewed in a hot loop: " + hold.token().bytes);
    }

    /// Its holder relies on it for longer now, by the word of the server of that run id.
    void prolonged(const detail::Hold& hold, int lock,
                   const std::shared_ptr<const std::string>& server, int master) {
        (*trace_)("prolongs ", tail(hold.token().bytes), " until ", moment_of_end(hold) / 1us,
                  "us");
        Token& token = token_of(hold.token().bytes);
        const bool is_longer = hold.valid_until() > std::exchange(token.end, hold.valid_until());
        const bool is_current = server == this->server(master).id();
        if (is_longer && !several() && is_current) token.generation = generation(master);
        if (is_longer && is_current) token.lost_by_failover = false;
        token.prolonged_until = Moment{-1h};
        check_end(lock, hold);
    }

    /// A client that held it has closed, and had a connection at its second try at least.
    void has_closed(const detail::Hold& hold, int lock) const {
        const bool is_alone = plan_->loses_connections_only() && !several() && !plan_->has_nodes();
        if (!is_alone && !plan_->moves_shortly_only()) return;
        const Server::Owner its = Server::find(server(0).owners(lock), hold.token().bytes);
        if (!its.token.empty()) fail("left behind by a client that has closed: " + its.token);
    }

    /// Of what was writing, only reading is left, and the server has been told.
    void downgraded(const detail::Hold& hold, int lock) const {
        if (!plan_->is_calm() || !valid(hold)) return;
        const auto writes = std::ranges::count_if(*servers_, [&](const auto& server) {
            return Server::find(server->owners(lock), hold.token().bytes).weight == all;
        });
        if (is_majority(static_cast<std::size_t>(writes))) {
            fail("the server takes a reader for a writer: " + hold.token().bytes);
        }
    }

    /// Somebody is about to be told that the hold is lost.
    void lost(const detail::Hold& hold, int lock, bool closing) {
        (*trace_)("lost: ", tail(hold.token().bytes));
        const bool is_kept = !several() || is_majority(count_masters_that_keep(hold, lock));
        if (promised(hold) && is_kept && !closing)
            fail("told of a loss that is none: " + hold.token().bytes);
        const auto& watchers = token_of(hold.token().bytes).watchers;
        const bool watched = std::ranges::any_of(hold.nest, [&watchers](const auto& one) {
            return one.watched && std::ranges::find(watchers, one.id) != watchers.end();
        });
        const TimePoint soon =
            detail::saturating_add(host_of(hold).clock(), hold.terms().lease.duration());
        const bool runs_out = soon < hold.last_end() && !closing;
        const bool was_forced = token_of(hold.token().bytes).was_forced;
        const bool has_time =
            hold.terms().lease.duration() > 20 * plan_->latency && !held(hold).delivered_late;
        if (watched && runs_out && has_time && !was_forced && plan_->is_calm())
            fail("a watched hold was not renewed");
        if (!has_other_readers(hold, lock)) {
            Token& token = token_of(hold.token().bytes);
            token.waits_for_release = !closing && lasts_after(token, timeline_->now());
            dies(hold.token().bytes);
            if (plan_->has_claims() && !closing) look_for_remains(hold, lock);
        }
        token_of(hold.token().bytes).kept_until = Moment{-1h};
        if (!closing) {
            Token& token = token_of(hold.token().bytes);
            token.lost_at = timeline_->now();
            if (held(hold).keep != nullptr && hold.has_lock_delay()) {
                token.left_to.push_back(&hold);
                locks_[static_cast<std::size_t>(lock)].left_to.push_back(&hold);
            }
        }
        damage_by_owner(lock, hold.token().bytes);
        for (const AtMaster& at : locks_[static_cast<std::size_t>(lock)].at) {
            const Server::Owner its = Server::find(at.owners, hold.token().bytes);
            if (!its.token.empty() && its.end != Moment::max()) {
                tidy_at_ = std::max(tidy_at_, its.end);
            }
        }
    }

    /// Its holder is not at work any more, or has nothing to wait for: its server may give the lock to others.
    void needs_no_delay(const detail::Hold& hold) {
        std::erase(token_of(hold.token().bytes).left_to, &hold);
    }

    /// Nobody of that process is at work any more: its client has closed.
    void closes(int process) {
        for (auto& [name, token] : tokens_) {
            if (process_of(name) == process) token.left_to.clear();
        }
    }

    /// Its server says that it has nothing any more which it could keep.
    void has_no_delay(const detail::Hold& hold) { token_of(hold.token().bytes).left_to.clear(); }

    /// The release of a hold goes out.
    void releases(const detail::Hold& hold) { look_for_lock_delay(hold.token().bytes); }

    /// A process has taken the lock away from that owner, as its client hears.
    void forced(int process, int lock, std::string_view owner) {
        if (process_of(owner) == process) token_of(owner).is_told_of_force = true;
        for (const auto& hold : locks_[static_cast<std::size_t>(lock)].holds) {
            const Token& token = token_of(hold->token().bytes);
            // That of an acquisition that has its answer to come is none yet.
            const bool had_begun = token.began < token.forced_since;
            const bool is_here = had_begun && process_of(hold->token().bytes) == process;
            if (is_here && hold->in(Phase::held) && hold->token().bytes == owner) {
                fail("who has lost a lock is not told by its own process: " + hold->token().bytes);
            }
        }
    }

    /// When nothing is left behind any more, at the latest: what is lost ends by itself.
    Moment tidy_at() const { return std::max(tidy_at_, timeline_->now()) + 200ms; }

    /// Somebody wants to be told when the hold is lost.
    void awaits_loss(const HoldPtr& hold) { awaited_.push_back({hold, hold->lost_token()}); }

    /// A call ended that was to end at `limit`.
    void returned(int process, Moment started, TimePoint limit, const char* call) {
        const Host& host = this->host(process);
        const bool was_stopped = host.frozen_until() >= started;
        // A thread may be stopped for that long between the answer and its return.
        const Moment allowed = allowed_lateness + plan_->latency / 4;
        if (!was_stopped && host.clock() > detail::saturating_add(limit, allowed)) {
            fail(std::string{call} + " returned too late");
        }
    }

    /// Whether its holder, who ends it, could rely on it until now, and hears of the first release that was
    /// carried out. What was repeated unseen is nobody's, and an ACL stops a command half-way. Of several
    /// masters, one that has lost its keys has not had it.
    bool was_promised(const detail::Hold& hold) const {
        const bool is_told_twice = plan_->rates.doubled > 0 || plan_->denies_any();
        if (is_told_twice || several()) return false;
        return host_of(hold).clock() < hold.valid_until() &&
               promised_until(hold, moment_of_end(hold));
    }

    /// What a release is said to have found is not how it was.
    void told_wrongly(const detail::Hold& hold, std::string_view outcome) const {
        fail("its release is told as " + std::string{outcome} + ": " + hold.token().bytes);
    }

    // ---- What goes wrong

    /// A command went wrong; that is over at `when`.
    void disturbed(Moment when) { disturbed_ = std::max(disturbed_, when); }

    /// Something that only the end of a lease heals.
    void damaged(Moment when) { damage_until(when + plan_->longest_lease + longest_delay()); }
    void message_lost(Moment when) {
        damaged(when);
        tidy_ = false;
    }
    void doubled() { tidy_ = false; }
    void ended(Moment when) {
        damaged(when);
        tidy_ = false;
    }
    void failed_over(bool keeps_keys, Moment jump) {
        damaged(timeline_->now() + std::chrono::abs(jump));
        // A master that has restarted has no vote for some time.
        if (several()) damaged(timeline_->now() + std::chrono::abs(jump) + 2 * no_vote());
        tidy_ = false;
        learn_settings();
        clocks_go_back_ = clocks_go_back_ || jump < 0ns;
        for (Lock& here : locks_) {
            here.order.clear();
            here.order_is_known = false;
            // Numbers rise with the clock then; not if that is behind.
            here.counter_is_lost = here.counter_is_lost || !keeps_keys;
            if (here.counter_is_lost && clocks_go_back_) here.fence = 0;
        }
    }
    /// Before a replica takes over, whose clock is ahead: which holds it must have.
    void promotes(int replica, Moment jump) {
        kept_by_replica_.clear();
        if (jump != 0ns) return;
        for (std::size_t lock = 0; lock < locks_.size(); ++lock) {
            for (const auto& hold : locks_[lock].holds) {
                const Token& token = token_of(hold->token().bytes);
                const bool asked = hold->terms().replicas != Replicas::none();
                const bool has_it = (token.acknowledged_by & (1U << replica)) != 0;
                const bool as_it_was = hold->valid_until() == token.first_end;
                if (asked && has_it && as_it_was && promised(*hold)) {
                    kept_by_replica_.emplace_back(static_cast<int>(lock), hold);
                }
            }
        }
    }
    /// A replica has taken over. What it has not got yet is outside the promise, but for what it has
    /// acknowledged.
    void promoted(Moment jump) {
        failed_over(false, jump);
        for (const auto& [lock, hold] : kept_by_replica_) {
            const Server::Owner its = Server::find(server(0).owners(lock), hold->token().bytes);
            promotions().took("acknowledged", 0);
            if (its.token.empty() || its.end < moment_of_end(*hold)) {
                fail("a replica that has acknowledged a lock has not got it: " +
                     hold->token().bytes);
            }
        }
        replica_took_over_ = true;
        learn_settings();
        for (Lock& here : locks_) here.fence_may_be_older = true;
        for (auto& [name, token] : tokens_) {
            token.lost_by_failover = true;
            token.kept_at_most = 0ns;
            token.forced_at = 0;
        }
        for (std::size_t lock = 0; lock < locks_.size(); ++lock) {
            const Owners owners = server(0).owners(static_cast<int>(lock));
            locks_[lock].at[0].owners = owners;
            for (const auto& hold : locks_[lock].holds) {
                if (!valid(*hold)) continue;
                promotions().took("any", has(owners, hold->token().bytes) ? 0 : 1);
            }
            for (const Server::Owner& owner : owners) kept_at_promotion(owner, jump);
            wait_for_places(static_cast<int>(lock));
        }
    }
    /// Outside the promise.
    void clock_stepped(Moment jump) {
        clocks_keep_time_ = false;
        failed_over(true, jump);
        for (Lock& here : locks_) here.fence = 0;
    }

    // ---- What the server does

    void before(const Command& command) {
        Lock& here = locks_[static_cast<std::size_t>(command.lock)];
        AtMaster& at = here.at[static_cast<std::size_t>(command.master)];
        // Nobody takes it without a command.
        const bool free = at.owners.empty() && at.is_known;
        at.before = free ? Owners{} : server(command.master).owners(command.lock);
        at.is_known = true;
        here.queue_before.clear();
        const bool moves = server(command.master).migration().phase() == Migration::Phase::moving;
        // Where the ACL forbids a command, a place may be lost.
        if ((moves && !plan_->denies_any()) || command.verb == Verb::force_unlock) {
            here.queue_before = server(command.master).queue(command.lock);
        }
        for (const Server::Owner& owner : at.owners) {
            if (has(at.before, owner.token)) continue;
            token_of(owner.token).had_at = owner.end;
            here.expired = std::max(here.expired, owner.end);
            here.order_is_known = false;
        }
    }

    void executed(const Command& command, const ModelRedis::Value& value) {
        const bool refused = value.is_error() && (value.text.starts_with("LATE ") ||
                                                  value.text.starts_with("NOSCRIPT "));
        if (value.is_error() && !refused) return failed(command, value);
        if (!refused) check_in_time(command, value);
        Lock& here = locks_[static_cast<std::size_t>(command.lock)];
        AtMaster& at = here.at[static_cast<std::size_t>(command.master)];
        if (command.verb == Verb::release && !refused) {
            leave_order(here, command.token());
            Token& token = token_of(command.token());
            token.outlasts_holds = false;
            token.to_be_released &= ~bit_of(command.master);
            token.taken_late &= ~bit_of(command.master);
            token.prolonged_until = Moment{-1h};
        }
        const Owners owners = server(command.master).owners(command.lock);
        const bool extends = command.verb == Verb::extend && value.integer == 1;
        // By itself, before the client knew that an extension had left anything.
        const bool is_gone = command.verb == Verb::extend && !refused && value.integer == 0;
        if (is_gone && !has(owners, command.token())) {
            token_of(command.token()).prolonged_until = Moment{-1h};
            token_of(command.token()).waits_for_release = false;
            token_of(command.token()).denied_at |= bit_of(command.master);
        }
        if (extends) token_of(command.token()).denied_at &= ~bit_of(command.master);
        if (extends && !command.asks_to_join()) {
            const Server::Owner its = Server::find(owners, command.token());
            if (!its.token.empty()) token_of(command.token()).prolonged_until = its.end;
        }
        if (command.verb != Verb::force_unlock) {
            check_places(here, command, owners, command.token());
        }
        if (command.verb == Verb::force_unlock && !refused) {
            check_forced(here, command, value, owners);
        } else if (!plan_->has_claims()) {
            check_min_hold(command, at, owners, refused);
        }
        if (!refused) check_not_revived(command, value);
        if (command.verb == Verb::set_permits && !refused) note_setting(here, command, value);
        // A repetition says that what the first sending moved has ended by itself.
        const bool not_moved = command.verb == Verb::move && !refused && !value.elements[0].integer;
        if (not_moved) token_of(command.next_token()).not_moved();
        const bool moved = command.verb == Verb::move && !refused && !not_moved;
        if (moved) token_of(command.token()).moved_away = true;
        const bool is_given = std::ranges::any_of(
            owners, [&](const Server::Owner& one) { return !has(at.before, one.token); });
        const bool served = !refused && (owners.empty() || is_given);
        if (plan_->has_claims() || served) pass_over(here);
        // Those behind one that leaves may be let in.
        const bool asked = command.verb == Verb::acquire && !refused;
        if (plan_->has_claims() && asked && has_no_place(value)) {
            leave_order(here, command.token());
        }
        for (const Server::Owner& owner : owners) {
            if (!has(at.before, owner.token)) changed_hands(here, command, owner.token, owners);
            if (owner.end == Moment::max()) fail("a lock that never expires");
            if (is_left_to_its_lease(owner.token)) tidy_at_ = std::max(tidy_at_, owner.end);
            if (!replica_took_over_) continue;
            Token& token = token_of(owner.token);
            token.kept_at_most = std::max(token.kept_at_most, owner.end);
        }
        note_owners(command.lock, at.before);
        note_owners(command.lock, owners);
        at.owners = owners;
        const bool for_owner = command.verb != Verb::release && command.verb != Verb::force_unlock;
        if (for_owner && !refused && has(owners, command.token())) came_late(command);
        if (command.verb == Verb::acquire && !refused) {
            Token& token = token_of(command.token());
            token.acknowledged_by = 0;  // what they have by then ends sooner
            token.asked_at = server(command.master).replication().offset();
            note_asked(here, command, value);
        }
        for (const auto& hold : here.holds) check_end(command.lock, *hold, &command, &at.owners);
    }

    /// So many replicas are to acknowledge it, where it asks all that there are.
    void counted(std::string_view name, int replicas) { token_of(name).counted = replicas; }
    /// As many as are asked for have acknowledged what was written up to there. It may be an earlier try's.
    void acknowledged(std::string_view name, unsigned replicas, std::uint64_t offset) {
        Token& token = token_of(name);
        if (offset >= token.asked_at) token.acknowledged_by = replicas;
    }

    // ---- Its nodes

    /// Whether fewer permits than in the beginning are left of a lock.
    bool is_narrowed(int lock) const {
        return most(locks_[static_cast<std::size_t>(lock)]) < plan_->permits;
    }

    /// A command was sent to one node after the other, or Sentinels were asked, so often.
    void sent_on(int times) const {
        constexpr int most = 10;
        if (times > most) fail("sent on from node to node without end");
    }

    /// A node has sent a command on to another one, which is to take it this once.
    void follows_ask(bool asking) const {
        if (!asking) fail("an ASK is followed without ASKING");
    }

    /// A new command goes to one node, and the client has last heard of another master.
    void asks(int node, int known) const {
        if (node != known) fail("asks a server that it knows to be no master");
    }

    /// A search that began when the client knew the master `then` leads to `found`.
    void finds(const std::optional<detail::ServerAddress>& then,
               const std::optional<detail::ServerAddress>& now,
               const detail::ServerAddress& found) const {
        const bool knows_better = now && then != now && *now != found;
        if (knows_better) fail("goes back to a server, though it has learned of another master");
    }

    /// A command was carried out by a master that is none any more: what it says is outside the promise.
    void went_to_deposed(const Command& command) {
        locks_[static_cast<std::size_t>(command.lock)].deposed_answered_at = timeline_->now();
        for (const std::string_view name :
             {command.token(),
              command.verb == Verb::move ? command.next_token() : command.token()}) {
            if (name.empty()) continue;
            Token& token = token_of(name);
            token.lock = command.lock;
            token.generation = -1;
            token.lost_by_failover = true;
            // Its process is told, though a new master has the lock still.
            token.was_forced = token.was_forced || command.verb == Verb::force_unlock;
        }
        tidy_ = false;
    }

    /// Its client may hear of what that one gave after a new master has given the same token the lock.
    void answered_by_deposed(const Command& command, const ModelRedis::Value& value) {
        if (command.verb != Verb::acquire || value.elements.size() < 5) return;
        if (value.elements[0].integer == 0) return;
        token_of(command.token()).fence_before =
            static_cast<std::uint64_t>(value.elements[4].integer);
    }

    /// A new master has taken over with all keys, by the same clock.
    void survived() {
        for (std::size_t lock = 0; lock < locks_.size(); ++lock) {
            const Owners owners = server(0).owners(static_cast<int>(lock));
            locks_[lock].at[0].owners = owners;
            for (const Server::Owner& owner : owners) {
                if (is_tombstone(owner.token)) continue;
                Token& token = token_of(owner.token);
                if (token.generation == generation(0) - 1) token.generation = generation(0);
            }
        }
    }

    // ---- What must be true

    /// At a moment at which nothing has happened yet.
    void check() {
        for (Lock& here : locks_) {
            if (here.holds.empty() && !somebody_waits(here)) {
                here.idle_since = timeline_->now();
                continue;
            }
            std::erase_if(here.holds, [](const auto& hold) { return !hold->in(Phase::held); });
            for (const auto& hold : here.holds) {
                if (token_of(hold->token().bytes).is_told_of_force)
                    fail("held, though its own process has taken it away: " + hold->token().bytes);
            }
            check_exclusion(here);
            check_idle(here);
        }
        if (!awaited_.empty()) check_losses();
    }

    /// Nobody uses anything any more; nothing is under way.
    void check_end_of_use() const {
        for (const auto& [name, token] : tokens_) {
            if (token.taken_late != 0)
                fail("nobody releases what a late command has taken: " + name);
            if (token.held_by_few && !has_stopped(name))
                fail("nobody gives back what too few replicas have: " + name);
            if (token.outlasts_holds && !has_stopped(name))
                fail("nobody releases what lasts longer than who has had it: " + name);
            if (token.granted_in_vain) fail("nobody gives back what nobody wants: " + name);
            if ((lasts_on(token) || token.waits_for_release) && !has_stopped(name))
                fail("nobody releases what lasts on after a loss: " + name);
            // A command that runs twice may move what its client was told had not moved.
            const bool may_move_twice =
                (plan_->has_nodes() || plan_->denies_any()) && plan_->rates.doubled > 0;
            const bool is_left = token.moved_to && !token.is_over() && !token.is_ticket;
            if (is_left && !has_stopped(name) && !may_move_twice)
                fail("nobody uses or releases what a lock has moved to: " + name);
        }
        for (const auto& [hold, known] : held_) {
            const std::string& name = hold->token().bytes;
            if (!known.undelivered || has_stopped(name) || !hold->in(Phase::held)) continue;
            fail("nobody gives back what nobody took: " + name);
        }
        // Some releases never came through.
        const bool released = std::ranges::none_of(
            tokens_, [](const auto& named) { return named.second.to_be_released != 0; });
        if (tidy_ && released && !plan_->denies_any()) check_nothing_left("left behind: ");
    }
    void check_quiet() const { check_nothing_left("left behind for good: "); }

    [[noreturn]] void fail(const std::string& what) const {
        (*trace_)("VIOLATION ", what);
        throw Violation{what};
    }

private:
    using Phase = detail::Phase;
    using Owners = Server::Owners;

    struct Token {
        int lock = 0;
        bool dead = false;
        unsigned asked = 0;                  ///< the masters that it has asked with, a bit for each
        unsigned taken_late = 0;             ///< where it has got the lock after its last release
        Moment released_at{-1h};             ///< for the last time, as far as is planned
        unsigned to_be_released = 0;         ///< where no release has come yet that somebody wants
        int generation = 0;                  ///< of the server that gave it the lock
        Moment kept_at_most{Moment::max()};  ///< by a replica that has taken over since
        bool lost_by_failover = false;       ///< until a server says otherwise
        bool held_by_few = false;            ///< of too few replicas
        int counted = 0;                     ///< the replicas there were
        unsigned acknowledged_by = 0;        ///< the replicas that have it, a bit for each
        std::uint64_t given_at = 0;          ///< the replication offset
        std::uint64_t asked_at = 0;          ///< the same of its last try
        int given_in = -1;                   ///< and by which server
        bool fenced = false;
        bool reads = false;  ///< it is a reader's
        bool granted_in_vain = false;
        bool is_granted = false;      ///< by a command of somebody else
        bool outlasts_holds = false;  ///< the claim, and nobody has released it yet
        bool moved_to = false;        ///< by the holder before, and nobody has begun to use it
        bool is_ticket = false;       ///< and another process has been told
        bool move_refused = false;    ///< once, so that nobody knows of a copy that does it later
        bool moved_away = false;      ///< the lock has gone on to another token
        std::uint64_t fence = 0;
        std::uint64_t fence_before = 0;  ///< as it was given before, which may be heard of late
        std::uint64_t came = 0;          ///< of a claim: when who took it came
        std::vector<std::uint64_t> watchers{};  ///< the acquisitions that want it to be renewed
        Moment renewal_sent_at{-1h};
        int early_renewals = 0;  ///< one for each watcher, as one may be under way
        TimePoint end{};         ///< of the validity
        TimePoint first_end{};   ///< as it began
        Moment kept_until{-1h};  ///< by its `min_hold`
        Moment lost_at{-1h};     ///< as its client was told
        /// Those that are lost, and whose holders may be at work.
        std::vector<const detail::Hold*> left_to{};
        unsigned denied_at = 0;   ///< the masters that answered its last extension with no
        unsigned forced_at = 0;   ///< the masters that have taken the lock away, a bit for each
        bool was_forced = false;  ///< by any of them: nothing is promised any more
        bool is_told_of_force = false;  ///< its own process
        Moment forced_since{0};
        Moment began{0};                 ///< its hold
        bool waits_for_release = false;  ///< at once, as it lasts on after a loss
        Moment given_for{0};             ///< by the server, as its client has heard last
        Moment prolonged_until{-1h};     ///< by what its holder does not rely on
        Moment had_at{-1h};              ///< the lock, by a server's word, last
        Moment contends_since{-1h};      ///< in its process
        bool is_answered = false;        ///< in that turn

        void not_moved() noexcept {
            moved_to = false;
            move_refused = true;
        }

        /// What comes in its name now is late.
        bool is_over() const noexcept { return dead || moved_away; }
    };
    /// What is known of a hold. Readers may share a token.
    struct Held {
        HoldPtr keep{};
        bool undelivered = false;     ///< it has the lock, and its caller has not been told
        bool delivered_late = false;  ///< there was no time to renew it
        bool owns_itself = false;
        Moment renewed_at{-1h};
        int early_renewals = 0;  ///< one for each watcher, as one may be under way
    };
    struct AtMaster {
        Owners before{};
        Owners owners{};
        bool is_known = true;
    };
    struct Queued {
        std::string token;
        Moment present_until;  ///< for so long the server takes it for alive
        Moment since;
        std::int64_t weight = 0;
    };
    struct Lock {
        std::vector<const detail::Hold*> left_to{};  ///< all that were lost, with a `lock_delay`
        std::vector<HoldPtr> holds{};
        std::array<std::vector<std::int64_t>, most_processes> waiting{};  ///< for how much
        Moment idle_since{0};
        std::array<AtMaster, most_masters> at{};
        std::uint64_t fence = 0;                                 ///< the greatest
        bool fence_may_be_older = false;                         ///< that the server has
        bool counter_is_lost = false;                            ///< and no newer one there yet
        std::vector<std::pair<Moment, std::uint64_t>> fences{};  ///< of several masters: since when
        std::array<Moment, most_processes>
            kept_until{};             ///< by the `min_hold` of who had it last there
        Moment expired{-1h};          ///< when a lease ended without a release
        std::vector<Queued> order{};  ///< who queues, first come first
        bool order_is_known = true;
        std::vector<std::string> queue_before{};  ///< a command of which places are checked
        Moment deposed_answered_at{-1h};          ///< by a master that is none any more
        std::int64_t issued = 0;                  ///< the setting of permits that counts
        std::optional<std::int64_t> permits{};    ///< and how many that is
        unsigned in_row = 0;  ///< how often it was passed on inside a process while others waited
        int row_of = 0;       ///< that process
    };
    struct Awaited {
        HoldPtr hold;
        std::stop_token lost;
    };

    static constexpr std::int64_t all = detail::ClaimTerms::writer;  ///< nothing fits in beside it
    static constexpr milliseconds allowed_lateness{51};
    static constexpr Moment recheck_cap = 10s;
    /// For so long readers may join without a word from the server, by whatever clock.
    static constexpr Moment longest_without_news = detail::longest_without_news * 102 / 100;

    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view token) const {
            // Their ends tell them apart.
            return std::hash<std::string_view>{}(tail(token));
        }
    };
    Token& token_of(std::string_view name) {
        const auto at = tokens_.find(name);
        return at != tokens_.end() ? at->second : tokens_[std::string{name}];
    }

    Held& held(const detail::Hold& hold) { return held_[&hold]; }

    void note_owners(int lock, const Owners& owners) {
        for (const Server::Owner& owner : owners) {
            Token& token = token_of(owner.token);
            token.lock = lock;
            token.had_at = timeline_->now();
        }
    }

    /// The last reader that was known has lost the claim, and one more had been let in with it before: its thread has
    /// come to run only now.
    void revive(Token& token, const detail::Hold& hold) {
        const bool was_lost = token.dead && token.lost_at >= 0ns;
        if (!was_lost || !hold.terms().joins) return;
        if (host_of(hold).moment_of(hold.taken_at()) <= token.lost_at) token.dead = false;
    }

    /// What a hold that was lost had is left to its holder for the `lock_delay`.
    void look_for_lock_delay(std::string_view name) {
        for (const detail::Hold* hold : token_of(name).left_to) {
            const TimePoint over = hold->valid_until() + hold->terms().lock_delay;
            if (host_of(*hold).clock() < over)
                fail("released for others before its lock_delay is over: " + std::string{name});
        }
    }

    bool has_other_readers(const detail::Hold& hold, int lock) const {
        const auto& holds = locks_[static_cast<std::size_t>(lock)].holds;
        return std::ranges::any_of(holds, [&hold](const HoldPtr& other) {
            return other.get() != &hold && other->in(Phase::held) &&
                   other->token().bytes == hold.token().bytes;
        });
    }

    /// An earlier waiter with its token may have asked for more than its holder knows of.
    void note_longer_lease(Token& token, int lock, const detail::Hold& hold) {
        const milliseconds asked{hold.server_ttl(hold.terms().lease)};
        const Server::Owner its = Server::find(server(0).owners(lock), hold.token().bytes);
        const bool has_more = !its.token.empty() && token.given_for > asked + 2ms;
        if (has_more) token.prolonged_until = its.end;
    }

    /// The server keeps a claim for as long as the last one relies on it, and for the drift and a round trip more: of
    /// a grant nobody knows when it began.
    void look_for_remains(const detail::Hold& hold, int lock) {
        if (!plan_->is_calm() || !promised_when_over(hold)) return;
        const Server::Owner its = Server::find(server(0).owners(lock), hold.token().bytes);
        const Moment end = moment_of_end(hold) + hold.terms().lock_delay +
                           2 * Moment{plan_->drift.floor} + plan_->longest_lease / 8;
        if (its.token.empty() || its.end < end + 10 * plan_->latency) return;
        token_of(hold.token().bytes).outlasts_holds = true;
    }
    /// A server that is not the master any more has given the lock, and its answer came late.
    static bool is_of_server_before(const detail::Hold& hold, const Token& token) {
        return hold.fence != 0 && hold.fence == token.fence_before;
    }
    bool promised_when_over(const detail::Hold& hold) const {
        const auto token = tokens_.find(hold.token().bytes);
        return token != tokens_.end() && token->second.generation == generation(0) &&
               !token->second.is_granted;
    }

    static unsigned bit_of(int master) { return 1U << static_cast<unsigned>(master); }
    bool several() const { return plan_->has_several_masters(); }
    /// For how long a master has no vote that has restarted, at least.
    Moment no_vote() const { return plan_->longest_ttl(); }

    Server& server(int master) const { return *(*servers_)[static_cast<std::size_t>(master)]; }
    int generation(int master) const { return server(master).generation(); }
    const Host& host(int process) const { return *hosts_[static_cast<std::size_t>(process)]; }
    const Host& host_of(const detail::Hold& hold) const {
        return host(process_of(hold.token().bytes));
    }

    Moment longest_delay() const { return longest_delay_; }

    Moment moment_of_end(const detail::Hold& hold) const {
        return host_of(hold).moment_of(hold.valid_until());
    }
    /// Its client was told of a loss, and has neither heard that the server was asked for a longer lease before, nor
    /// released what that has left. None is planned.
    bool lasts_on(const Token& token) const {
        if (token.to_be_released != 0) return false;  // that never came through
        return token.lost_at >= 0ns && lasts_after(token, token.lost_at);
    }
    /// The server keeps it for longer than its client knew when it was lost.
    bool lasts_after(const Token& token, Moment loss) const {
        const bool may_be_doubled = plan_->rates.doubled > 0 || plan_->rates.repeated > 0;
        if (several() || plan_->denies_any() || may_be_doubled) return false;
        return token.prolonged_until > loss + 20ms + 10 * plan_->latency;
    }
    /// Then nobody there releases anything any more.
    bool has_stopped(std::string_view token) const {
        return host(process_of(token)).crashed() || plan_->has(Trouble::Kind::close);
    }
    /// Too soon after that to be renewed again, where all goes well.
    bool is_soon(Moment last, const detail::Hold& hold) const {
        const Moment lease{hold.terms().lease.duration()};
        // The answer before took two round trips, where the server did not know the script yet.
        const Moment apart = timeline_->now() - last + 2 * plan_->latency;
        return plan_->is_calm() && lease > 20 * plan_->latency && apart < lease / 5;
    }

    bool valid(const detail::Hold& hold) const {
        const Host& holder = host_of(hold);
        return hold.in(Phase::held) && !holder.crashed() && hold.valid(holder.clock());
    }
    /// What the server before gave is outside the promise: the key may be gone with it, and the
    /// clocks may differ.
    bool promised(const detail::Hold& hold) const {
        return valid(hold) && promised_until(hold, moment_of_end(hold));
    }
    /// It was lost, and its holder may be at work in its `lock_delay`.
    bool is_left_to(const detail::Hold& hold) const {
        const auto& left_to = tokens_.find(hold.token().bytes)->second.left_to;
        if (std::ranges::find(left_to, &hold) == left_to.end()) return false;
        // By the server's clock.
        const Moment over = moment_of_end(hold) + hold.terms().lock_delay;
        return timeline_->now() < over && promised_until(hold, over);
    }
    bool promised_until(const detail::Hold& hold, Moment end) const {
        if (!clocks_keep_time_) return false;
        const auto token = tokens_.find(hold.token().bytes);
        if (token == tokens_.end() || token->second.was_forced) return false;
        if (several()) return true;
        // Its answer may have been under way when the server lost its keys. Another clock shortens what is extended;
        // who reads with the same token may have extended it since, by less.
        const Moment since = std::max(server(0).forgot_at(), server(0).clock_stepped_at());
        if (host_of(hold).moment_of(hold.refreshed_at()) < since) return false;
        if (token->second.generation != generation(0) || token->second.lost_by_failover)
            return false;
        const Moment last = token->second.kept_at_most;
        return last == Moment::max() || end <= last;
    }

    /// The last fencing token stays for a day, and the key of claims that are over as long as the longest one of them
    /// would.
    void check_nothing_left(const std::string& what) const {
        constexpr std::int64_t longest = milliseconds{24h + 1min}.count();
        constexpr std::int64_t longest_setting = milliseconds{25h + 1min}.count();
        for (const auto& server : *servers_) {
            for (const std::string& key : server->all_keys()) {
                const std::int64_t ttl = server->ttl(key);
                if (key.starts_with("redlatch:fence:") && ttl > 0 && ttl < longest) continue;
                if (key.starts_with("redlatch:permits:") && ttl > 0 && ttl < longest_setting)
                    continue;
                if (plan_->has_claims() && ttl > 0 && is_over(*server, key)) continue;
                fail(what + key);
            }
        }
    }

    static bool is_over(Server& server, const std::string& key) {
        const int lock = Names::get().lock_of(key);
        return Names::get().of(lock)->lock == key && server.owners(lock).empty();
    }

    void check_in_time(const Command& command, const ModelRedis::Value& value) const {
        const bool gives = command.verb == Verb::acquire ||
                           (command.verb == Verb::move && value.elements[0].integer == 1);
        if (gives && clocks_keep_time_ && timeline_->now() > command.too_late) {
            fail("carried out when nobody waited for it any more");
        }
    }

    /// By the ACL or for want of memory only, or as its keys' slot moves. Then it has changed nothing that
    /// matters to who has sent it.
    void failed(const Command& command, const ModelRedis::Value& value) {
        const bool denied = value.text.find("can't run this command") != std::string::npos ||
                            value.text.starts_with("NOPERM ");
        const bool moves =
            plan_->has_nodes() && detail::says_between_servers(detail::plain_words(value.text));
        const bool is_full = plan_->has(Trouble::Kind::fullness) && value.text.starts_with("OOM ");
        if (!moves && !is_full && !(denied && plan_->denies_any()))
            fail("the script failed: " + value.text);
        Lock& here = locks_[static_cast<std::size_t>(command.lock)];
        AtMaster& at = here.at[static_cast<std::size_t>(command.master)];
        Owners owners = server(command.master).owners(command.lock);
        for (const Server::Owner& owner : at.before) {
            // A claim that does not move on is over, as its holder wants it to be.
            const bool ends =
                plan_->has_claims() && command.verb == Verb::move && owner.token == command.token();
            if (!ends && !has(owners, owner.token)) fail("a script that failed has freed the lock");
        }
        for (const Server::Owner& owner : owners) {
            if (has(at.before, owner.token)) continue;
            // One of a lock with claims may have let in others before, as they were told.
            const bool others = plan_->has_claims() && owner.token != command.token();
            if (!others) fail("a script that failed has given the lock");
            changed_hands(here, command, owner.token, owners);
        }
        const bool stays = command.verb == Verb::acquire;
        check_places(here, command, owners, stays ? std::string_view{} : command.token());
        at.owners = std::move(owners);
        check_companions(command);
    }

    // ---- The owner at the server

    static bool has(const Owners& owners, std::string_view token) {
        return std::ranges::find(owners, token, &Server::Owner::token) != owners.end();
    }

    /// By the replica that has taken over, whose clock is ahead. Maybe one that was released, or given up,
    /// since.
    void kept_at_promotion(const Server::Owner& owner, Moment jump) {
        damage_until(owner.end);
        tidy_at_ = std::max(tidy_at_, owner.end);
        if (jump != 0ns || is_tombstone(owner.token)) return;
        Token& token = token_of(owner.token);
        if (token.dead) return;
        token.generation = generation(0);
        token.lost_by_failover = false;
        token.kept_at_most = owner.end;
        // It may have had the lock twice, and the replica knows of the first time only.
        const std::uint64_t fence = token.fenced ? server(0).fence(token.lock) : 0;
        if (fence != 0) token.fence_before = std::exchange(token.fence, fence);
    }

    /// For so long the server takes one for alive that has left, where nobody tells it.
    Moment longest_stay() const {
        return std::max<Moment>(detail::longest_presence_ttl, 3 * plan_->backoff.max);
    }
    /// A replica that has taken over may not have heard that one has left the queue. Others wait until that one's place
    /// is over.
    void wait_for_places(int lock) {
        for (const std::string& waiter : server(0).queue(lock)) {
            if (token_of(waiter).is_over()) damage_until(timeline_->now() + longest_stay());
        }
    }

    static constexpr std::string_view tombstone_suffix = ":min_hold";
    static bool is_tombstone(std::string_view owner) { return owner.ends_with(tombstone_suffix); }

    /// Nobody has the lock by that.
    static bool is_left_to_its_lease(std::string_view owner) {
        return is_tombstone(owner) || owner.ends_with(detail::ticket_mark);
    }

    /// Of a lock without claims.
    static Server::Owner only(const Owners& owners) {
        return owners.empty() ? Server::Owner{} : owners.front();
    }

    /// Somewhat sooner than it ends: clocks go at different rates.
    Moment moment_of_min_hold(const detail::Hold& hold) const {
        const Moment length{hold.terms().min_hold};
        if (hold.kept_until() == TimePoint::min()) return Moment{-1h};
        return host_of(hold).moment_of(hold.kept_until()) - length / 25 - 1ms;
    }

    /// A release before that leaves a tombstone, and nobody has the lock until it is gone.
    void check_min_hold(const Command& command, const AtMaster& at, const Owners& owners,
                        bool refused) {
        const Server::Owner owner = only(owners);
        const Server::Owner before = only(at.before);
        const bool asks_release = command.verb == Verb::release && !refused;
        // Its lease ended first: another has it, or nobody. A place that it had left may get it the lock once more.
        const bool is_gone = before.token != command.token() && owner.token != command.token() &&
                             !is_tombstone(before.token);
        if (asks_release && is_gone) token_of(command.token()).kept_until = Moment{-1h};
        if (refused || owner.token == before.token || !clocks_keep_time_) return;
        if (is_tombstone(before.token) && before.end > timeline_->now()) {
            fail("given away before its min_hold was over");
        }
        const bool releases = command.verb == Verb::release && before.token == command.token();
        const Token& token = token_of(command.token());
        // A lock that was forced away and comes back, to a place that a late command took, is not kept.
        const bool kept =
            timeline_->now() < token.kept_until && !token.lost_by_failover && !token.was_forced;
        if (releases && kept && !is_tombstone(owner.token)) {
            fail("released before its min_hold was over");
        }
    }

    /// `owners`: all who have it now.
    void changed_hands(Lock& here, const Command& command, const std::string& to,
                       const Owners& owners) {
        if (is_tombstone(to)) return;
        const bool moved = command.verb == Verb::move && to == command.next_token();
        Token& token = token_of(to);
        if (moved) {
            token.lock = command.lock;
            token.fenced = command.number(4) == 1;
            token.moved_to = !token.move_refused;
        }
        token.forced_at &= ~bit_of(command.master);
        token.generation = generation(command.master);
        token.is_granted = to != command.token();
        // What the server before had given, or this one by another clock.
        const bool is_new = token.given_in != generation(command.master) || !clocks_keep_time_;
        if (is_new && token.fence != 0) token.fence_before = token.fence;
        token.given_in = generation(command.master);
        token.given_at = server(command.master).replication().offset();
        if (token.fenced && plan_->masters == 1) check_fence(here, token, command.lock);
        const auto process = static_cast<std::size_t>(process_of(to));
        const bool never_told = plan_->processes[process].deaf && token.is_over();
        if (never_told || hosts_[process]->crashed()) damaged(timeline_->now());
        if (token.lock != command.lock) fail("given to who never asked for it: " + to);
        const bool by_queue = command.verb == Verb::acquire || command.verb == Verb::release ||
                              command.verb == Verb::force_unlock || (plan_->has_claims() && !moved);
        if (!moved) check_permits(here, owners);
        if (here.order_is_known && by_queue) check_order(here, to, owners);
        if (command.verb == Verb::set) {
            // The place of a token that is dead by now may still be there.
            const std::string& queue = Names::get().of(command.lock)->queue;
            const bool has_queue = server(command.master).ttl(queue) != -2;
            here.order_is_known = here.order.empty() && !has_queue;
        }
        leave_order(here, to);
    }

    /// Whoever is given the lock has a greater number than all before; a reader that of the last writer.
    void check_fence(Lock& here, Token& token, int lock) {
        token.fence = server(0).fence(lock);
        // That of the last writer is lost with what a replica had not got.
        if (token.reads && here.fence_may_be_older) return;
        here.fence_may_be_older = false;
        here.counter_is_lost = false;
        const bool is_less = token.fence < here.fence;
        if (is_less || (token.fence == here.fence && !token.reads)) {
            fail("a fencing token that is no greater than before");
        }
        here.fence = token.fence;
    }

    /// Who acquires the lock after another has had it gets a greater number.
    void check_fence_of_several(Lock& here, const detail::Hold& hold) {
        if (!hold.terms().traits.fenced || !clocks_keep_time_) return;
        const Moment asked = host_of(hold).moment_of(hold.taken_at());
        for (const auto& [since, fence] : here.fences) {
            const bool is_anothers = hold.fence == fence && !hold.reads();
            if (is_anothers || (since < asked && hold.fence < fence)) {
                fail("a fencing token that is no greater than before");
            }
        }
        here.fences.emplace_back(timeline_->now(), hold.fence);
    }

    /// Where a dead token took the lock, or kept it for longer, that lasts until its release, if
    /// one is still planned, or else as long as the lease.
    void came_late(const Command& command) {
        Token& token = token_of(command.token());
        if (!token.is_over()) return;
        (*trace_)("  a dead token has it");
        const bool asks = command.asks_to_join();
        if (asks && plan_->is_calm()) token.outlasts_holds = true;
        damaged(timeline_->now());
        if ((token.to_be_released & bit_of(command.master)) == 0) tidy_ = false;
        // What its loss had left behind was released before.
        const bool anew = command.verb == Verb::set && token.to_be_released == 0;
        if (anew && token.released_at >= token.lost_at) token.lost_at = Moment{-1h};
        const bool once = plan_->rates.doubled == 0 && plan_->rates.repeated == 0;
        const bool goes_on = !plan_->has(Trouble::Kind::close) && !plan_->has(Trouble::Kind::crash);
        const bool by_script = command.verb == Verb::acquire && clocks_keep_time_;
        if (once && goes_on && by_script && timeline_->now() > token.released_at) {
            token.taken_late |= bit_of(command.master);
        }
    }

    /// One that did not count as alive may have been removed, and stands behind those who have come since.
    static void stand_as(Lock& here, std::vector<Queued>::iterator known,
                         const std::vector<std::string>& queue) {
        const Queued one = *known;
        here.order.erase(known);
        const auto own = std::ranges::find(queue, one.token);
        const auto behind = std::ranges::find_if(here.order, [&](const Queued& other) {
            return own != queue.end() &&
                   std::find(std::next(own), queue.end(), other.token) != queue.end();
        });
        here.order.insert(behind, one);
    }

    static bool has_no_place(const ModelRedis::Value& value) {
        return value.elements.size() < 3 || value.elements[2].integer < 0;
    }

    void note_asked(Lock& here, const Command& command, const ModelRedis::Value& value) {
        const bool refused = value.elements[0].integer == 0;
        if (!refused) token_of(command.token()).generation = generation(command.master);
        // Its client counts on the lease that it has asked for.
        if (!refused && milliseconds{value.elements[1].integer} < command.lease()) {
            fail("taken for less than the lease");
        }
        if (refused && command.stay() > 0ms) check_companions(command);
        const bool queues = refused && !has_no_place(value);
        const Moment present_until = timeline_->now() + command.stay();
        const auto known = std::ranges::find(here.order, command.token(), &Queued::token);
        if (!queues) {
            leave_order(here, command.token());
        } else if (known == here.order.end()) {
            here.order.push_back(
                {std::string{command.token()}, present_until, timeline_->now(), command.weight()});
        } else {
            const bool left = known->present_until <= timeline_->now();
            known->present_until = std::max(known->present_until, present_until);
            if (left) stand_as(here, known, server(command.master).queue(command.lock));
        }
        if (!queues || !token_of(command.token()).is_over()) return;
        tidy_ = false;
        damage_until(present_until);  // nobody knows of that place
    }

    /// Who lives keeps its place, or gets the lock; but for the one that `leaves`.
    void check_places(const Lock& here, const Command& command, const Owners& owners,
                      std::string_view leaves) {
        if (here.queue_before.empty() || !clocks_keep_time_) return;
        const auto after = server(command.master).queue(command.lock);
        for (const std::string& waiter : here.queue_before) {
            const auto known = std::ranges::find(here.order, waiter, &Queued::token);
            const bool lives =
                known != here.order.end() && timeline_->now() + 2ms < known->present_until;
            const bool stays = std::ranges::find(after, waiter) != after.end();
            if (lives && waiter != leaves && !stays && !has(owners, waiter)) {
                fail("somebody else's command has taken a place in the queue: " + waiter);
            }
        }
    }

    /// It takes nothing but that owner's lock; those who wait keep their places, or get the lock.
    void check_forced(Lock& here, const Command& command, const ModelRedis::Value& value,
                      const Owners& owners) {
        const AtMaster& at = here.at[static_cast<std::size_t>(command.master)];
        const std::string_view name = command.token();
        const bool removed = value.integer != 0;
        if (removed != has(at.before, name)) fail("a forced release tells what is not so");
        // One that only waited may have got the lock as its turn has come.
        if (removed && has(owners, name))
            fail("forced away, and it has the lock: " + std::string{name});
        for (const Server::Owner& other : at.before) {
            if (other.token == name) continue;
            if (Server::find(owners, other.token).end < other.end) {
                fail("a forced release has touched another's lock: " + other.token);
            }
        }
        // A late command may have asked for a place with the token.
        check_places(here, command, owners, removed ? name : std::string_view{});
        if (!removed) return;
        (*trace_)("  forced away: ", tail(name));
        if (is_tombstone(name)) {
            token_of(name.substr(0, name.size() - tombstone_suffix.size())).kept_until =
                Moment{-1h};
            return;
        }
        Token& token = token_of(name);
        token.forced_at |= bit_of(command.master);
        token.was_forced = true;
        token.forced_since = timeline_->now();
        token.outlasts_holds = false;
        token.taken_late &= ~bit_of(command.master);
        token.prolonged_until = Moment{-1h};
    }

    /// Who has lost its lock to an operator does not go on with it.
    void check_not_revived(const Command& command, const ModelRedis::Value& value) {
        const bool goes_on = command.verb == Verb::extend || command.verb == Verb::nest ||
                             command.verb == Verb::move || command.verb == Verb::downgrade;
        if (!goes_on || (token_of(command.token()).forced_at & bit_of(command.master)) == 0) return;
        const auto answer = value.elements.empty() ? value.integer : value.elements.front().integer;
        if (answer == 1) fail("forced away, and it goes on: " + std::string{command.token()});
    }

    /// The setting counts that was issued last, whenever it arrives.
    void note_setting(Lock& here, const Command& command, const ModelRedis::Value& value) {
        const std::int64_t issued = command.issued();
        if (issued == 0) {
            if (value.integer <= here.issued)
                fail("a setting is issued no later than the one before");
            return;
        }
        const bool is_repeated = issued == here.issued && command.permits() == here.permits;
        const bool counts = issued > here.issued || is_repeated;
        if (value.integer != (counts ? 1 : 0)) {
            fail(counts ? "the last number of permits does not count" : "an older setting counts");
        }
        if (!counts) return;
        here.issued = issued;
        here.permits = command.permits();
        most_ever_set_ = std::max(most_ever_set_, command.permits());
    }
    /// As the server has it that has taken over.
    void learn_settings() {
        if (plan_->claims != Claims::permits) return;
        for (std::size_t lock = 0; lock < locks_.size(); ++lock) {
            const auto setting = server(0).setting(static_cast<int>(lock));
            locks_[lock].permits.reset();
            if (setting) locks_[lock].permits = setting->permits;
            locks_[lock].issued = setting ? setting->issued : 0;
        }
    }

    /// Nobody gets more than there is, by the setting that counts.
    void check_permits(const Lock& here, const Owners& owners) const {
        if (plan_->claims != Claims::permits || plan_->denies_any()) return;
        std::int64_t used = 0;
        for (const Server::Owner& owner : owners) used += owner.weight;
        if (used > most(here)) fail("more permits are given than there are");
    }

    /// Nobody who could have been told was passed over.
    void check_order(const Lock& here, const std::string& to, const Owners& owners) const {
        if (!clocks_keep_time_ || plan_->denies_any()) return;
        for (const auto& [earlier, present_until, since, weight] : here.order) {
            if (earlier == to) return;
            if (has(owners, earlier)) continue;                 // served at once
            if (weight < all && weight > most(here)) continue;  // it waits for more than there is
            const bool present = timeline_->now() + 2ms < present_until;
            if (present && server(0).subscribed(process_of(earlier))) {
                fail("a later one is served first: " + std::string{tail(to)} + " before " +
                     std::string{tail(earlier)});
            }
        }
    }

    /// The lock goes past one that is not subscribed just now; its place is kept for five seconds.
    void pass_over(Lock& here) const {
        for (Queued& one : here.order) {
            if (server(0).subscribed(process_of(one.token))) continue;
            one.present_until = std::min(one.present_until, timeline_->now() + Moment{5s});
        }
    }

    static void leave_order(Lock& here, std::string_view token) {
        std::erase_if(here.order, [token](const Queued& one) { return one.token == token; });
    }

    /// A process that others wait behind does not keep the lock for its own. What it knows of them may be
    /// some moments old.
    void check_row(Lock& here, int process, bool handed, unsigned handoffs) const {
        const Moment old = timeline_->now() - 10ms - 4 * plan_->latency;
        const bool others_wait = std::ranges::any_of(here.order, [&](const Queued& one) {
            return process_of(one.token) != process && one.since < old &&
                   timeline_->now() + 2ms < one.present_until &&
                   server(0).subscribed(process_of(one.token));
        });
        // One that the lock was taken away from may pass on what it has not.
        if (std::exchange(here.row_of, process) != process) here.in_row = 0;
        here.in_row = handed && others_wait ? here.in_row + 1 : 0;
        if (here.in_row > handoffs) {
            fail("passed on inside a process while others wait");
        }
    }

    void check_companions(const Command& command) const {
        const auto& keys = *Names::get().of(command.lock);
        if (server(command.master).ttl(keys.queue) == -1 ||
            server(command.master).ttl(keys.waiters) == -1) {
            fail("a companion key that never expires");
        }
    }

    /// Holds that last when a replica takes over.
    static Coverage::Machine& promotions() {
        static Coverage::Machine machine{"Promotion", {"kept", "lost"}};
        return machine;
    }

    /// As many replicas as are asked for have the lock when it counts as taken.
    void check_replicated(const detail::Hold& hold, const Token& token) const {
        const Replicas asked = hold.terms().replicas;
        if (asked == Replicas::none() || token.given_in != generation(0) || token.was_forced)
            return;
        const int wanted =
            asked == Replicas::all() ? token.counted : static_cast<int>(asked.count());
        if (server(0).replication().have(token.given_at) < wanted) {
            fail("taken when too few replicas had it: " + hold.token().bytes);
        }
    }

    bool is_majority(std::size_t masters) const { return 2 * masters > servers_->size(); }

    /// Without those that have told an extension that it is not there: a late command may have put it there since.
    std::size_t count_masters_that_keep(const detail::Hold& hold, int lock) const {
        const auto token = tokens_.find(hold.token().bytes);
        const unsigned denied = token == tokens_.end() ? 0 : token->second.denied_at;
        return static_cast<std::size_t>(std::ranges::count_if(*servers_, [&](const auto& server) {
            return (denied & bit_of(server->number())) == 0 &&
                   has(server->owners(lock), hold.token().bytes);
        }));
    }

    /// A majority keeps a lock for its holder for as long as he relies on it.
    /// `known`: who has it at the master that has just carried out `after`.
    void check_end(int lock, const detail::Hold& hold, const Command* after = nullptr,
                   const Owners* known = nullptr) const {
        if (!promised(hold)) return;
        const Moment end = moment_of_end(hold);
        std::size_t keep = 0;
        bool anothers = false;
        for (const auto& server : *servers_) {
            const bool is_known = after != nullptr && after->master == server->number();
            const Server::Owner its =
                Server::find(is_known ? *known : server->owners(lock), hold.token().bytes);
            // One that has lost its keys gives the lock to nobody for as long as a lease may be.
            const bool has_no_vote =
                several() && timeline_->now() < server->forgot_at() + no_vote();
            const bool is_its_own = !its.token.empty();
            anothers = anothers || !is_its_own;
            keep += has_no_vote || (is_its_own && its.end >= end) ? 1U : 0U;
        }
        if (is_majority(keep)) return;
        if (anothers) fail("held, and the server's lock is another's: " + hold.token().bytes);
        fail("held for longer than the server keeps it");
    }

    /// How much there is of a lock.
    std::int64_t most(const Lock& here) const {
        return plan_->claims == Claims::permits ? here.permits.value_or(plan_->permits) : all;
    }
    /// Who has some keeps them when they become fewer.
    std::int64_t most_at_any_time() const {
        return plan_->claims == Claims::permits ? std::max(plan_->permits, most_ever_set_) : all;
    }

    void check_exclusion(const Lock& here) const {
        std::int64_t used = 0;
        for (const auto& hold : here.holds) {
            if (promised(*hold)) used += plan_->has_claims() ? hold->weight() : all;
        }
        if (used > most_at_any_time())
            fail(plan_->has_claims() ? "more holders than may be" : "two holders");
        for (const detail::Hold* hold : here.left_to) {
            if (is_left_to(*hold)) used += plan_->has_claims() ? hold->weight() : all;
        }
        if (used > most_at_any_time()) fail("taken within the lock_delay of one that has lost it");
    }

    /// Who asked to be told of a loss was told by the end of the validity.
    void check_losses() {
        std::erase_if(awaited_, [this](const Awaited& awaited) {
            const detail::Hold& hold = *awaited.hold;
            const Host& holder = host_of(hold);
            if (awaited.lost.stop_requested() || holder.crashed()) return true;
            if (!hold.in(Phase::held) && !hold.in(Phase::lost)) return true;
            const Moment due = std::max(moment_of_end(hold), holder.frozen_until());
            if (holder.runs() && timeline_->now() > due + allowed_lateness) {
                fail("lost() is late: " + hold.token().bytes);
            }
            return false;
        });
    }

    // ---- Progress

    void damage_until(Moment end_of_lease) {
        damaged_ = std::max(damaged_, end_of_lease + recheck_cap);
    }
    void damage_by_owner(int lock, std::string_view token) {
        for (const AtMaster& at : locks_[static_cast<std::size_t>(lock)].at) {
            const Server::Owner its = Server::find(at.owners, token);
            if (!its.token.empty() && its.end != Moment::max()) damage_until(its.end);
        }
    }

    bool somebody_waits(const Lock& here) const {
        for (std::size_t process = 0; process < hosts_.size(); ++process) {
            if (!here.waiting[process].empty() && hosts_[process]->runs()) return true;
        }
        return false;
    }

    /// Whether there is room for any of those that wait.
    bool has_room(const Lock& here) const {
        if (!plan_->has_claims()) {
            return std::ranges::none_of(here.holds, [this](const auto& h) { return valid(*h); });
        }
        std::int64_t used = 0;
        for (const auto& hold : here.holds) used += valid(*hold) ? hold->weight() : 0;
        std::int64_t largest = 0;
        for (const auto& waiting : here.waiting) {
            for (const std::int64_t weight : waiting) {
                if (weight == all || weight <= most(here)) largest = std::max(largest, weight);
            }
        }
        return largest > 0 && used + largest <= most(here);
    }

    /// Without trouble a free lock is taken within some round trips. After a command went wrong it
    /// takes the command timeout and a retry, once more for the release in the background; after
    /// the end of a lease, or where a message was lost, a re-check.
    void check_idle(Lock& here) {
        const Moment now = timeline_->now();
        const bool kept = std::ranges::any_of(here.at, [now](const AtMaster& at) {
            return std::ranges::any_of(at.owners, [now](const Server::Owner& owner) {
                return is_left_to_its_lease(owner.token) && owner.end > now;
            });
        });
        if (!has_room(here) || kept || !somebody_waits(here)) {
            here.idle_since = now;
            return;
        }
        for (const auto& hold : here.holds) {
            if (plan_->has_claims() && valid(*hold)) continue;  // there is room beside it
            here.idle_since = std::max(here.idle_since, std::min(now, moment_of_end(*hold)));
            // Who took it by a slow command relies on it for less than the server's lease.
            for (const AtMaster& at : here.at) {
                const Server::Owner its = Server::find(at.owners, hold->token().bytes);
                if (!its.token.empty()) damage_until(its.end);
            }
        }
        Moment retry = plan_->backoff.max + Moment{50ms} + 10 * plan_->latency;
        if (several()) retry = 40 * (retry + plan_->node_timeout);  // votes may split
        // One node or Sentinel after the other is asked for the master, and most may be old.
        if (plan_->has_nodes()) retry = 4 * (retry + plan_->command_timeout);
        Moment limit = here.idle_since + 2 * retry;
        limit = std::max(limit, disturbed_ + 2 * plan_->command_timeout + 600ms + 2 * retry);
        limit = std::max(limit, damaged_ + 2 * plan_->command_timeout + 600ms + 2 * retry);
        for (const AtMaster& at : here.at) {
            for (const Server::Owner& owner : at.owners) {
                const bool is_over = owner.end <= now;
                if (is_over || several()) here.expired = std::max(here.expired, owner.end);
            }
        }
        limit = std::max(limit, here.expired + recheck_cap + 2 * retry);
        if (plan_->denies_any()) return;  // a try may fail for good
        if (now > limit) fail("nobody gets the lock, and somebody waits");
    }

    const Plan* plan_;
    const Timeline* timeline_;
    Trace* trace_;
    std::vector<std::unique_ptr<Server>>* servers_;
    std::vector<const Host*> hosts_;
    std::array<Lock, most_locks> locks_{};
    std::unordered_map<std::string, Token, Hash, std::equal_to<>> tokens_;
    std::unordered_map<const detail::Hold*, Held> held_;
    std::vector<Awaited> awaited_;
    Moment longest_delay_{plan_->longest_lease};
    Moment disturbed_{-1h};
    Moment damaged_{-1h};
    Moment tidy_at_{0};
    bool tidy_ = true;
    bool clocks_keep_time_ = true;
    bool clocks_go_back_ = false;
    bool replica_took_over_ = false;
    std::int64_t most_ever_set_ = 0;
    std::vector<std::pair<int, HoldPtr>> kept_by_replica_{};  // of one that takes over
};

}  // namespace redlatch::test::simulator
