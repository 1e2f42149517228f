#pragma once

#include "checker.hpp"
#include "network.hpp"
#include <redlatch/core/attempts.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/release.hpp>
#include <redlatch/core/renewal.hpp>
#include <redlatch/core/server_clock.hpp>
#include <redlatch/core/token_state.hpp>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace redlatch::test::schedules {

/// What the parts of a schedule stand on.
struct World {
    const Plan* plan;
    Timeline* timeline;
    Trace* trace;
    Dice* dice;
    Server* server;
    Network* network;
    Checker* checker;

    bool has(Bug bug) const { return plan->bug == bug; }
};

class Process;
class Acquisition;

/// What `Gate` knows of one lock, and does with it, without threads.
struct GateEntry {
    struct Ticket {
        std::string token;
        bool unclear;
        bool fenced;
    };

    std::shared_ptr<Hold> current{};
    bool contended = false;
    Acquisition* contender = nullptr;  ///< while it pauses
    TimePoint recheck_at = TimePoint::max();
    std::optional<Ticket> ticket{};
    std::optional<detail::Grant> grant{};
    std::deque<Acquisition*> queue{};
    TimePoint contended_at = TimePoint::min();  ///< as `Contention` remembers it

    bool free() const { return current == nullptr && !contended; }

    void hand_turn_on(bool with_ticket);
    void wake_front();
    bool bequeath(bool unclear) {
        const bool inherited = ticket && !queue.empty();
        if (inherited) ticket->unclear = unclear;
        hand_turn_on(inherited);
        return inherited;
    }
};

/// One client: its gate, its subscription, and what it releases in the background.
class Process {
public:
    Process(const World& world, int number, const ProcessPlan& plan)
        : world_(&world),
          number_(number),
          plan_(&plan),
          host_(*world.timeline, plan.clock, plan.rate_ppm) {}

    int number() const { return number_; }
    Host& host() { return host_; }
    const World& world() const { return *world_; }
    GateEntry& entry(int lock) { return entries_[static_cast<std::size_t>(lock)]; }

    void start() {
        for (std::size_t thread = 0; thread < plan_->threads.size(); ++thread) next(thread, 0);
    }
    bool finished() const { return unfinished_ == 0; }

    std::string new_token(std::size_t thread) {
        return Server::client_id(number_) + ":m:" + std::to_string(thread) + ":" +
               std::to_string(++tokens_);
    }

    /// Goes on with the next errand of a thread.
    void next(std::size_t thread, std::size_t errand);

    // ---- Hold and gate

    void take_run_out(GateEntry& here) {
        if (here.current == nullptr || here.current->phase != Hold::Phase::held) return;
        if (host_.clock() < here.current->valid_until) return;
        const auto hold = std::exchange(here.current, nullptr);
        hold->phase = Hold::Phase::over;
        world_->checker->runs_out(hold);
        if (!hold->unclear) return;
        bury({.token = hold->token, .lock = hold->lock, .lease = hold->lease}, {too_late()});
    }

    void vacate(const Hold& hold) {
        GateEntry& here = entry(hold.lock);
        if (here.current.get() != &hold) return;
        here.current = nullptr;
        here.wake_front();
    }

    // ---- Subscription

    bool possible() const { return !plan_->deaf; }
    bool listening() const { return listening_; }

    void subscribe() {
        if (started_ || plan_->deaf) return;
        started_ = true;
        resubscribe(world_->network->latency());
    }

    /// From now on messages get lost; the client finds out, and so does the server, sometime before
    /// the client is back.
    void lose_subscription(Moment for_how_long) {
        if (!connected_) return;
        (*world_->trace)("subscription of ", number_, " is dead");
        connected_ = false;
        resubscribe(for_how_long + 1us);
        while_cut_off(for_how_long, [this] { listening_ = false; });
        while_cut_off(for_how_long, [this] { world_->server->set_subscribed(number_, false); });
        world_->checker->damaged(world_->timeline->now() + for_how_long);
    }
    bool connected() const { return connected_; }

    void hear(const std::string& message) {
        const auto grant = detail::parse_grant(message);
        if (!grant) world_->checker->fail("a message that is none: " + message);
        (*world_->trace)("hears of ", grant->token.substr(31), " lease ", grant->ttl.count());
        if (deliver(*grant) || world_->has(Bug::unknown_grant_ignored)) return;
        const int lock = world_->server->lock_of(grant->key);
        bury({.token = grant->token, .lock = lock, .lease = grant->ttl}, {0ns});
    }

    void crash() {
        (*world_->trace)("process ", number_, " crashes");
        host_.crash();
        // Its machine may be gone as well; then the server takes a while to notice.
        const Moment notice = world_->dice->pick<Moment>({0ns, 1s, 100s});
        world_->timeline->at(world_->timeline->now() + notice,
                             [this] { world_->server->set_subscribed(number_, false); });
    }

    // ---- The server's clock

    /// As a connection knows it, from when it was made on.
    detail::ServerClock& server_clock() {
        if (clock_of_ != world_->server->id()) {
            clock_of_ = world_->server->id();
            server_clock_ = {};
            const Moment there = world_->network->latency();
            server_clock_.answered(host_.clock() - there, world_->server->time(),
                                   host_.clock() + there);
        }
        return server_clock_;
    }

    /// Makes a command do nothing once nobody waits for its answer any more.
    void limit(Command& command, TimePoint answer_by) {
        const TimePoint now = host_.clock();
        command.not_after = server_clock().not_after(now, answer_by - now);
        // The clocks' rates differ, and the server's may have been seen long ago.
        const Moment end = host_.moment_of(std::max(answer_by, now));
        command.too_late = end + end / 50 + detail::late_margin + 1ms;
    }

    /// How long a token's last release waits.
    Moment too_late() const { return world_->plan->command_timeout + detail::late_margin; }

    // ---- Releases in the background

    struct Dead {
        std::string token;
        int lock;
        Lease lease;
    };

    void bury(Dead dead, std::vector<Moment> pauses) {
        const TimePoint give_up_at = host_.clock() + 2 * dead.lease.duration();
        world_->checker->buries(dead.token, static_cast<int>(pauses.size()));
        bury_next(dead, std::move(pauses), give_up_at);
    }

    Command release_of(const std::string& token, int lock) const {
        return {.kind = Command::Kind::release,
                .lock = lock,
                .token = token,
                .server = world_->server->id()};
    }

private:
    void while_cut_off(Moment for_how_long, Timeline::Task task) {
        const Moment when = world_->timeline->now() + world_->dice->span(0ns, for_how_long);
        world_->timeline->at(when, [this, connection = connection_, task = std::move(task)] {
            if (connection == connection_) task();
        });
    }

    void resubscribe(Moment pause) {
        const int connection = ++connection_;
        host_.soon(pause, [this, connection] {
            if (connection != connection_) return;
            connected_ = true;
            world_->server->set_subscribed(number_, true);
            host_.soon(2 * world_->network->latency(), [this, connection] {
                if (connection == connection_) listen();
            });
        });
    }

    void listen();

    bool deliver(const detail::Grant& grant);

    void bury_next(const Dead& dead, std::vector<Moment> pauses, TimePoint give_up_at) {
        const Moment pause = pauses.front();
        pauses.erase(pauses.begin());
        host_.soon(pause, [this, dead, pauses = std::move(pauses), give_up_at] {
            world_->checker->buries(dead.token, -1);
            const TimePoint answer_by =
                host_.clock() + detail::renewal_patience(dead.lease, world_->plan->command_timeout);
            const Command release = release_of(dead.token, dead.lock);
            world_->network->call(host_, release, release, answer_by,
                                  [this, dead, pauses, give_up_at](const Outcome& outcome) {
                                      buried(dead, pauses, give_up_at, outcome.has_value());
                                  });
        });
    }

    void buried(const Dead& dead, std::vector<Moment> pauses, TimePoint give_up_at, bool answered) {
        constexpr Moment retry_pause = 500ms;
        if (!answered && host_.clock() < give_up_at) {
            pauses.insert(pauses.begin(), retry_pause);
            world_->checker->buries(dead.token, 1);
        } else if (!answered) {
            world_->checker->burial_failed();
        }
        if (!pauses.empty()) bury_next(dead, std::move(pauses), give_up_at);
    }

    const World* world_;
    int number_;
    const ProcessPlan* plan_;
    Host host_;
    std::array<GateEntry, 2> entries_{};
    std::vector<std::unique_ptr<Acquisition>> acquisitions_{};
    std::size_t unfinished_ = 0;
    std::uint64_t tokens_ = 0;
    detail::ServerClock server_clock_{};
    std::shared_ptr<const std::string> clock_of_{};
    bool started_ = false;
    bool listening_ = false;
    bool connected_ = false;
    int connection_ = 0;
};

}  // namespace redlatch::test::schedules
