#pragma once

#include "server.hpp"
#include <redlatch/options.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::test::schedules {

/// A lock as a process believes to have it.
struct Hold {
    enum class Phase { held, releasing, over };

    int lock;
    std::string token;
    Lease lease;
    TimePoint valid_until;
    bool unclear = false;
    std::uint64_t fence = 0;  ///< 0 where none was wanted
    int generation = 0;       ///< of the server that gave it
    Phase phase = Phase::held;
};

/// What must be true after every step of a schedule, and at its end. Throws `Violation`.
class Checker {
public:
    Checker(const Plan& plan, const Timeline& timeline, Trace& trace, Server& server)
        : plan_(&plan), timeline_(&timeline), trace_(&trace), server_(&server) {}

    void add(const Host& host) { hosts_.push_back(&host); }

    // ---- What clients do

    void sent(const Command& command) {
        Token& token = tokens_[command.token];
        token.lock = command.lock;
        if (command.asks()) token.fenced = command.fenced;
        if (command.kind == Command::Kind::release) {
            token.dead = true;
        } else if (token.dead) {
            fail("a token is used after its release was sent: " + command.token);
        }
    }

    /// Nobody will use the token again. What a hidden repetition got for it, nobody gives back.
    void dies(const std::string& name) {
        Token& token = tokens_[name];
        token.dead = true;
        const Lock& here = locks_[static_cast<std::size_t>(token.lock)];
        if (plan_->faults.doubled > 0 && here.owner.token == name) damage_until(here.owner.end);
    }

    /// A release of the token is planned, or that plan is given up.
    void buries(const std::string& token, int more) { tokens_[token].burials += more; }
    void burial_failed() { tidy_ = false; }

    void waits(int process, int lock, int more) {
        Lock& here = locks_[static_cast<std::size_t>(lock)];
        here.waiting[static_cast<std::size_t>(process)] += more;
    }

    void begins(std::shared_ptr<Hold> hold) {
        Lock& here = lock_of(*hold);
        (*trace_)("holds ", hold->token.substr(31), " until ", moment_of_end(*hold) / 1us, "us");
        const Token& token = tokens_[hold->token];
        hold->generation = token.generation;
        if (hold->fence != token.fence) fail("the fencing token is not its own: " + hold->token);
        here.holds.push_back(std::move(hold));
        here.idle_since = timeline_->now();
        check_end(*here.holds.back());
        check_exclusion(here);
    }

    /// Its holder relies on it for longer now, by the word of the server of that run id.
    void renewed(Hold& hold, const std::shared_ptr<const std::string>& server) {
        (*trace_)("renews ", hold.token.substr(31), " until ", moment_of_end(hold) / 1us, "us");
        if (server == server_->id()) hold.generation = server_->generation();
        check_end(hold);
        check_exclusion(lock_of(hold));
    }

    /// Its holder was told that it is lost.
    void lost(const std::shared_ptr<Hold>& hold) {
        if (promised(*hold)) fail("told of a loss that is none: " + hold->token);
        ends(hold);
    }

    /// A hold was found past its validity: nobody releases it. A late command may have renewed it.
    void runs_out(const std::shared_ptr<Hold>& hold) {
        dies(hold->token);
        damage_until(lock_of(*hold).owner.end);
        ends(hold);
    }

    void ends(const std::shared_ptr<Hold>& hold) {
        (*trace_)("ends ", hold->token.substr(31));
        std::erase(lock_of(*hold).holds, hold);
    }

    /// A call ended that was to end at `limit`.
    void returned(int process, Moment started, TimePoint limit) {
        const Host& host = this->host(process);
        const bool was_stopped = host.frozen_until() > started;
        if (!was_stopped && host.clock() > detail::saturating_add(limit, allowed_lateness)) {
            fail("a call returned too late");
        }
    }

    // ---- What goes wrong

    /// A command went wrong; that is over at `when`.
    void disturbed(Moment when) { disturbed_ = std::max(disturbed_, when); }

    /// Something that only the end of a lease heals.
    void damaged(Moment when) { damage_until(when + plan_->longest_lease); }
    void message_lost(Moment when) {
        damaged(when);
        tidy_ = false;
    }
    void doubled() { tidy_ = false; }
    void crashed(Moment when) {
        damaged(when);
        tidy_ = false;
    }
    void failed_over(bool keeps_keys, Moment jump) {
        damaged(timeline_->now() + std::chrono::abs(jump));
        tidy_ = false;
        for (Lock& here : locks_) {
            here.order.clear();
            // Numbers rise with the clock then; not if that is behind.
            if (!keeps_keys && jump < 0ns) here.fence = 0;
        }
    }

    // ---- What the server does

    void before(const Command& command) {
        Lock& here = locks_[static_cast<std::size_t>(command.lock)];
        here.before = server_->owner(command.lock);
        if (here.before.token != here.owner.token) here.expired = here.owner.end;
    }

    void executed(const Command& command, const ModelRedis::Value& value) {
        const bool late = value.is_error() && value.text.starts_with("LATE ");
        if (value.is_error() && !late) fail("the script failed: " + value.text);
        if (!late) check_in_time(command);
        Lock& here = locks_[static_cast<std::size_t>(command.lock)];
        if (command.kind == Command::Kind::release) std::erase(here.order, command.token);
        const Server::Owner owner = server_->owner(command.lock);
        if (owner.token != here.before.token) changed_hands(here, command, owner.token);
        here.owner = owner;
        if (owner.end == Moment::max()) fail("a lock that never expires");
        const bool for_owner = command.kind != Command::Kind::release;
        if (for_owner && owner.token == command.token) came_late(command.token);
        if (command.kind == Command::Kind::acquire && !late) note_asked(here, command, value);
        for (const auto& hold : here.holds) check_end(*hold);
    }

    // ---- What must be true

    /// At a moment at which nothing has happened yet.
    void check() {
        for (Lock& here : locks_) {
            check_exclusion(here);
            check_idle(here);
        }
    }

    /// Nobody uses anything any more; nothing is under way.
    void check_end_of_use() const {
        if (tidy_) check_nothing_left("left behind: ");
    }
    void check_quiet() const { check_nothing_left("left behind for good: "); }

    [[noreturn]] void fail(const std::string& what) const {
        (*trace_)("VIOLATION ", what);
        throw Violation{what};
    }

private:
    struct Token {
        int lock = 0;
        bool dead = false;
        int burials = 0;     ///< planned and not yet sent
        int generation = 0;  ///< of the server that gave it the lock
        bool fenced = false;
        std::uint64_t fence = 0;
    };
    struct Lock {
        std::vector<std::shared_ptr<Hold>> holds{};
        std::array<int, 4> waiting{};
        Moment idle_since{0};
        Server::Owner before{};
        Server::Owner owner{};
        std::uint64_t fence = 0;           ///< the greatest
        Moment expired{-1h};               ///< when a lease ended without a release
        std::vector<std::string> order{};  ///< who queues, first come first
    };

    static constexpr milliseconds allowed_lateness{51};
    static constexpr Moment recheck_cap = 10s;

    Host const& host(int process) const { return *hosts_[static_cast<std::size_t>(process)]; }
    Lock& lock_of(const Hold& hold) { return locks_[static_cast<std::size_t>(hold.lock)]; }

    Moment moment_of_end(const Hold& hold) const {
        return host(Server::process_of(hold.token)).moment_of(hold.valid_until);
    }
    bool valid(const Hold& hold) const {
        const Host& holder = host(Server::process_of(hold.token));
        return hold.phase == Hold::Phase::held && !holder.crashed() &&
               holder.clock() < hold.valid_until;
    }
    /// What the server before gave is outside the promise: the key may be gone with it, and the
    /// clocks may differ.
    bool promised(const Hold& hold) const {
        return valid(hold) && hold.generation == server_->generation();
    }

    /// The last fencing token stays for a day.
    void check_nothing_left(const std::string& what) const {
        constexpr std::int64_t longest = milliseconds{24h + 1min}.count();
        for (const std::string& key : server_->all_keys()) {
            const std::int64_t ttl = server_->ttl(key);
            if (key.starts_with("redlatch:fence:") && ttl > 0 && ttl < longest) continue;
            fail(what + key);
        }
    }

    void check_in_time(const Command& command) const {
        if (command.kind == Command::Kind::acquire && timeline_->now() > command.too_late) {
            fail("carried out when nobody waited for it any more");
        }
    }

    // ---- The owner at the server

    void changed_hands(Lock& here, const Command& command, const std::string& to) {
        if (to.empty()) return;
        Token& token = tokens_[to];
        token.generation = server_->generation();
        if (token.fenced) check_fence(here, token, command.lock);
        const auto process = static_cast<std::size_t>(Server::process_of(to));
        const bool never_told = plan_->processes[process].deaf && token.dead;
        if (never_told || hosts_[process]->crashed()) damaged(timeline_->now());
        if (token.lock != command.lock) fail("given to who never asked for it: " + to);
        if (plan_->faults.none() && command.kind != Command::Kind::set) check_order(here, to);
        std::erase(here.order, to);
    }

    /// Whoever is given the lock has a greater number than all before.
    void check_fence(Lock& here, Token& token, int lock) {
        token.fence = server_->fence(lock);
        if (token.fence <= here.fence) fail("a fencing token that is no greater than before");
        here.fence = token.fence;
    }

    /// Where a dead token took the lock, or kept it for longer, that lasts until its release, if
    /// one is still planned, or else as long as the lease.
    void came_late(const std::string& name) {
        const Token& token = tokens_[name];
        if (!token.dead) return;
        (*trace_)("  a dead token has it");
        damaged(timeline_->now());
        if (token.burials == 0) tidy_ = false;
    }

    void note_asked(Lock& here, const Command& command, const ModelRedis::Value& value) {
        const bool refused = value.elements[0].integer == 0;
        if (!refused) tokens_[command.token].generation = server_->generation();
        if (refused && command.stay > 0ms) check_companions(command.lock);
        const bool queues = refused && value.elements[2].integer >= 0;
        const bool known = std::ranges::find(here.order, command.token) != here.order.end();
        if (queues && !known) here.order.push_back(command.token);
        if (!queues) std::erase(here.order, command.token);
        if (queues && tokens_[command.token].dead && tokens_[command.token].burials == 0) {
            tidy_ = false;
        }
    }

    /// Nobody who could have been told was passed over.
    void check_order(const Lock& here, const std::string& to) const {
        for (const std::string& earlier : here.order) {
            if (earlier == to) return;
            if (server_->subscribed(Server::process_of(earlier))) {
                fail(to.substr(31) + " came later than " + earlier.substr(31));
            }
        }
    }

    void check_companions(int lock) const {
        const auto& keys = server_->keys(lock);
        if (server_->ttl(keys.queue) == -1 || server_->ttl(keys.waiters) == -1) {
            fail("a companion key that never expires");
        }
    }

    /// The server keeps a lock for its holder for as long as he relies on it.
    void check_end(const Hold& hold) {
        if (!promised(hold)) return;
        const Server::Owner owner = server_->owner(hold.lock);
        if (owner.token != hold.token)
            fail("held, and the server's lock is another's: " + hold.token);
        if (owner.end < moment_of_end(hold)) fail("held for longer than the server keeps it");
    }

    void check_exclusion(const Lock& here) const {
        const auto count =
            std::ranges::count_if(here.holds, [this](const auto& hold) { return promised(*hold); });
        if (count > 1) fail("two holders");
    }

    // ---- Progress

    void damage_until(Moment end_of_lease) {
        damaged_ = std::max(damaged_, end_of_lease + recheck_cap);
    }

    bool somebody_waits(const Lock& here) const {
        for (std::size_t process = 0; process < hosts_.size(); ++process) {
            if (here.waiting[process] > 0 && hosts_[process]->runs()) return true;
        }
        return false;
    }

    /// Without trouble a free lock is taken within some round trips. After a command went wrong it
    /// takes the command timeout and a retry, once more for the release in the background; after
    /// the end of a lease, or where a message was lost, a re-check.
    void check_idle(Lock& here) {
        const Moment now = timeline_->now();
        const bool held =
            std::ranges::any_of(here.holds, [this](const auto& h) { return valid(*h); });
        if (held || !somebody_waits(here)) {
            here.idle_since = now;
            return;
        }
        for (const auto& hold : here.holds) {
            here.idle_since = std::max(here.idle_since, std::min(now, moment_of_end(*hold)));
            // Who took it by a slow command relies on it for less than the server's lease.
            if (hold->token == here.owner.token) damage_until(here.owner.end);
        }
        const Moment retry = plan_->backoff.max + Moment{50ms} + 10 * plan_->latency;
        Moment limit = here.idle_since + 2 * retry;
        limit = std::max(limit, disturbed_ + 2 * plan_->command_timeout + 600ms + 2 * retry);
        limit = std::max(limit, damaged_ + 2 * plan_->command_timeout + 600ms + 2 * retry);
        if (!here.owner.token.empty() && here.owner.end <= now) here.expired = here.owner.end;
        limit = std::max(limit, here.expired + recheck_cap + 2 * retry);
        if (now > limit) fail("nobody gets the lock, and somebody waits");
    }

    const Plan* plan_;
    const Timeline* timeline_;
    Trace* trace_;
    Server* server_;
    std::vector<const Host*> hosts_;
    std::array<Lock, 2> locks_{};
    std::unordered_map<std::string, Token> tokens_;
    Moment disturbed_{-1h};
    Moment damaged_{-1h};
    bool tidy_ = true;
};

}  // namespace redlatch::test::schedules
