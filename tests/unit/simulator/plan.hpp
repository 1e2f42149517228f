#pragma once

#include "mutant.hpp"
#include "timeline.hpp"
#include <redlatch/core/hold.hpp>
#include <redlatch/options.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <ostream>
#include <string_view>
#include <vector>

namespace redlatch::test::simulator {

inline constexpr std::size_t most_masters = 3;
inline constexpr std::size_t most_nodes = most_masters;  // that one after the other are one master
inline constexpr std::size_t most_sentinels = 3;

/// How often things go wrong: once in so many; never for 0.
struct Rates {
    int refused = 0;     ///< no connection
    int lost = 0;        ///< a command never arrives
    int unanswered = 0;  ///< its answer never does
    int slow = 0;        ///< either takes long, perhaps longer than anybody waits for it
    int repeated =
        0;  ///< the connection had died: sent again at once, and the first sending runs too
    int doubled = 0;  ///< runs twice, and the client never knows
    int message_lost = 0;
    int message_late = 0;  ///< maybe longer than the lease
    int message_doubled = 0;

    static constexpr int Rates::*all[] = {
        &Rates::refused,      &Rates::lost,         &Rates::unanswered,
        &Rates::slow,         &Rates::repeated,     &Rates::doubled,
        &Rates::message_lost, &Rates::message_late, &Rates::message_doubled};
    static constexpr const char* names[] = {"refused",      "lost",         "unanswered",
                                            "slow",         "repeated",     "doubled",
                                            "message_lost", "message_late", "message_doubled"};

    bool none() const {
        return std::ranges::all_of(all, [this](auto rate) { return this->*rate == 0; });
    }
};

/// Something that goes wrong once.
struct Trouble {
    enum class Kind {
        outage,      ///< a process loses its subscription
        crash,       ///< a process ends
        freeze,      ///< a process is stopped, and goes on later
        close,       ///< a client is closed
        failover,    ///< another server takes over, with another clock
        forgetting,  ///< the same without the keys
        silence,     ///< a server is stopped, and goes on later
        restart,  ///< a server ends, and comes back with its keys, which live on, but without scripts
        clock_step,  ///< of a server: outside the promise
        promotion,   ///< a replica takes over, with what it has got by then
        cut,         ///< a replica is cut off from its master
        migration,   ///< of a Cluster: the slot moves to another node
        deafness,    ///< a Sentinel answers nobody
        loading,     ///< a server says that it is loading its data
        fullness,    ///< a server has no memory left
    };
    static constexpr const char* names[] = {"outage",     "crash",      "freeze",  "close",
                                            "failover",   "forgetting", "silence", "restart",
                                            "clock_step", "promotion",  "cut",     "migration",
                                            "deafness",   "loading",    "fullness"};

    Kind kind;
    Moment when;
    int whom = 0;      ///< which process, server or replica
    Moment length{0};  ///< how long it lasts, or by how much a clock is ahead
};

/// Another lease for a hold, once.
struct ExtensionPlan {
    Moment after;  ///< that it was taken
    Lease lease;
};

/// A lock goes to another process instead of being released.
struct HandoverPlan {
    int process = 0;
    Moment after{0};  ///< that it was detached
    Lease lease;
    Moment hold{0};  ///< how long it is kept there
    bool watched = false;

    bool operator==(const HandoverPlan&) const = default;
};

/// What the claims of a schedule's locks are to; none where a lock has one holder.
enum class Claims { none, shared, permits };

/// How clients find the master.
enum class Finding { by_address, by_cluster, by_sentinels };

/// The nodes of which one is the master, and how they and the Sentinels hear of another one.
struct NodesPlan {
    Finding finding = Finding::by_address;
    int count = 1;
    int sentinels = 0;
    std::array<Moment, most_nodes> node_lags{};  ///< each hears so much later
    std::array<Moment, most_sentinels> sentinel_lags{};
    Moment outage{0};              ///< how long there is no master when another one takes over
    Moment lingering{0};           ///< how long the old one still believes that it is the master
    Moment hand_over{0};           ///< how long no node has a slot at the end of its migration
    bool keys_move_last = false;   ///< until then a slot that moves has all its keys
    bool back_as_replica = false;  ///< the old one, else it is gone
    bool says_down = false;        ///< CLUSTERDOWN while there is no master
};

/// One acquisition.
struct AcquisitionPlan {
    Moment pause;  ///< before it
    int lock = 0;
    Wait wait = Wait::unlimited();
    Lease lease{30s};
    std::int64_t weight = 0;  ///< of its claim
    Moment hold{0};           ///< how long the lock is kept; for ever where the holder hangs
    bool fenced = false;
    bool watched = false;  ///< its lease is renewed until the release
    bool polls = false;
    bool owns_itself = false;    ///< `Owner::hold`
    bool sends_release = false;  ///< `ReleaseMode::sent`
    bool is_held = false;        ///< as a `Held`, which any thread may release; else by `lock()`
    bool awaits_loss = false;
    bool hangs = false;  ///< its holder never releases it
    unsigned local_handoffs = 16;
    milliseconds max_hold = milliseconds::max();
    milliseconds lock_delay{0};
    milliseconds min_hold{0};
    Replicas replicas = Replicas::none();  ///< that have to acknowledge it
    std::optional<Moment> cancelled{};
    std::optional<Moment> downgraded{};  ///< so long after it was got; of writers only
    std::optional<Moment> delivered{};   ///< so long after it was got; of asynchronous ones only
    bool untaken = false;                ///< by then nobody wants it any more
    std::optional<HandoverPlan> handed_to{};
    std::vector<int>
        set{};  ///< the locks, of one that takes several or none; then `lock` is nothing
    TimePoint answer_by = TimePoint::max();  ///< of one of a set: no try waits any longer
    std::vector<ExtensionPlan> extensions{};
    std::vector<AcquisitionPlan>
        nested{};  ///< taken while this one is held; `pause` counts from there
};

/// One that acquires one lock after the other: a thread, or an asynchronous operation.
struct ActorPlan {
    bool asynchronous = false;
    std::vector<AcquisitionPlan> acquisitions{};
};

/// What an operator does once.
struct OperationPlan {
    enum class Kind {
        force_anybody,  ///< takes the lock away from whoever has it
        force_owner,    ///< from one that it has seen there some time before
        set_permits,
    };
    static constexpr const char* names[] = {"forces anybody's", "forces an owner's",
                                            "sets permits"};

    Kind kind;
    Moment when;
    int lock = 0;
    Moment hesitation{0};      ///< between its look at the owners and what it does
    std::int64_t permits = 0;  ///< that there are from now on
};

struct ProcessPlan {
    TimePoint clock{};
    std::int64_t rate_ppm = 0;
    bool deaf = false;          ///< it may not subscribe
    bool observed = false;      ///< it has an observer
    std::string_view denied{};  ///< a command that its ACL forbids; empty for none
    std::uint64_t noise = 0;
    std::vector<ActorPlan> actors{};
    std::vector<OperationPlan> operations{};
};

/// All that is meant to happen in a schedule, and the seed of all chance in it.
struct Plan {
    Mutant mutant = Mutant::none;
    std::uint64_t noise = 0;
    bool on_hash = false;
    Claims claims = Claims::none;
    std::int64_t permits = 0;  ///< that there are of each lock
    int locks = 1;
    int masters = 1;
    int replicas = 0;  ///< of the master
    Moment replication_delay{0};
    NodesPlan nodes{};
    std::array<microseconds, most_masters> server_clocks{};  ///< ahead of the first one's
    milliseconds node_timeout{100};
    std::ptrdiff_t max_connections = 64;  ///< of a process, to each of several masters
    Drift drift{};
    Backoff backoff{};
    milliseconds command_timeout{300};
    milliseconds longest_lease{1000};
    Moment latency{500us};
    Rates rates{};
    Moment faults_until{0};  ///< after that, nothing is lost, late or repeated any more
    std::vector<Trouble> troubles{};
    std::vector<ProcessPlan> processes{};

    bool has_several_masters() const { return masters > 1; }
    bool has_claims() const { return claims != Claims::none; }
    bool has_nodes() const { return nodes.finding != Finding::by_address; }
    bool has_sentinels() const { return nodes.finding == Finding::by_sentinels; }
    bool is_cluster() const { return nodes.finding == Finding::by_cluster; }
    bool reads(const AcquisitionPlan& wanted) const {
        return claims == Claims::shared && wanted.weight == detail::ClaimTerms::reader;
    }

    /// No lease is longer, nor is its end for the server.
    milliseconds longest_ttl() const { return 3 * longest_lease; }

    bool is_calm() const { return rates.none() && troubles.empty() && !denies_any(); }
    /// Nothing goes wrong but that there is no connection to be had, now and then.
    bool loses_connections_only() const {
        Rates others = rates;
        others.refused = 0;
        const auto closes = [](const Trouble& t) { return t.kind == Trouble::Kind::close; };
        return others.none() && std::ranges::all_of(troubles, closes) && !denies_any();
    }
    /// Nothing goes wrong but that a slot moves, for less than one command may take.
    bool moves_shortly_only() const {
        const auto is_short = [this](const Trouble& t) {
            const bool moves = t.kind == Trouble::Kind::migration;
            return moves ? t.length <= Moment{command_timeout} / 4 : t.kind == Trouble::Kind::close;
        };
        const auto heard_at_once = [](Moment lag) { return lag == Moment{0}; };
        return is_cluster() && rates.none() && nodes.hand_over <= 1ms &&
               std::ranges::all_of(nodes.node_lags, heard_at_once) &&
               std::ranges::all_of(troubles, is_short) && !denies_any();
    }
    bool denies_any() const {
        return std::ranges::any_of(processes, [](const auto& p) { return !p.denied.empty(); });
    }
    bool sets_permits() const {
        return std::ranges::any_of(processes, [](const ProcessPlan& process) {
            return std::ranges::any_of(process.operations, [](const OperationPlan& operation) {
                return operation.kind == OperationPlan::Kind::set_permits;
            });
        });
    }
    bool has(Trouble::Kind kind) const {
        return std::ranges::any_of(troubles, [kind](const auto& t) { return t.kind == kind; });
    }
};

// ---- Drawing

inline Moment short_or_long(Dice& dice, Moment usual, Moment rare) {
    return dice.one_in(4) ? dice.span(0ns, rare) : dice.span(0ns, usual);
}

inline Rates draw_rates(Dice& dice) {
    Rates rates;
    const auto rate = [&dice] { return dice.one_in(2) ? dice.pick({4, 10, 40}) : 0; };
    if (!dice.one_in(3)) {
        for (int Rates::*const fault : {&Rates::refused, &Rates::lost, &Rates::unanswered,
                                        &Rates::slow, &Rates::repeated, &Rates::doubled}) {
            rates.*fault = rate();
        }
    }
    if (!dice.one_in(3)) {
        rates.message_lost = rate();
        rates.message_late = rate();
        rates.message_doubled = rate();
    }
    return rates;
}

inline void draw_troubles(Dice& dice, Plan& plan) {
    using Kind = Trouble::Kind;
    const int processes = static_cast<int>(plan.processes.size());
    const auto add = [&](Kind kind, int whom, Moment length) {
        plan.troubles.push_back({kind, dice.span(0ns, plan.faults_until), whom, length});
    };
    const auto process = [&] { return static_cast<int>(dice.between(0, processes)); };
    const auto master = [&] { return static_cast<int>(dice.between(0, plan.masters)); };
    if (dice.one_in(4)) {
        for (int i = dice.pick({1, 3}); i > 0; --i)
            add(Kind::outage, process(), dice.span(1ms, 1s));
    }
    if (dice.one_in(6)) add(Kind::crash, process(), dice.pick<Moment>({0ns, 1s, 100s}));
    if (dice.one_in(4)) {
        for (int i = dice.pick({1, 2}); i > 0; --i) {
            add(Kind::freeze, process(), dice.span(0ns, 2 * Moment{plan.longest_lease} + 100ms));
        }
    }
    if (dice.one_in(6)) add(Kind::close, process(), 0ns);
    if (plan.has_several_masters()) {
        if (dice.one_in(3)) add(Kind::forgetting, master(), dice.span(1ms, 300ms));
        if (dice.one_in(3)) add(Kind::silence, master(), dice.span(1ms, 2s));
    } else if (dice.one_in(6)) {
        const Kind kind = dice.one_in(2) ? Kind::failover : Kind::forgetting;
        add(kind, master(), dice.pick<Moment>({0s, 100ms, 5s, -1s}));
    }
    if (dice.one_in(8)) add(Kind::silence, master(), dice.span(1ms, dice.pick<Moment>({50ms, 2s})));
    if (dice.one_in(10)) add(Kind::restart, master(), dice.span(1ms, 300ms));
    if (dice.one_in(20)) add(Kind::clock_step, master(), dice.pick<Moment>({5s, -1s, 100ms}));
}

inline Wait draw_wait(Dice& dice) {
    if (dice.one_in(12)) return Wait::none();
    if (dice.one_in(3)) return dice.span(1ms, dice.pick<Moment>({20ms, 300ms}));
    if (dice.one_in(2)) return dice.span(300ms, 20s);
    return Wait::unlimited();
}

/// What all acquisitions of a schedule have in common, or not.
struct Mixture {
    bool leases = false;
    int fenced = 0;   ///< of how many each one wants a fencing token; 0 for none
    int watched = 0;  ///< of how many each one is renewed; 0 for none
    int polls = 0;
    int hangs = 0;
    int extended = 0;
    int delayed = 0;
    unsigned local_handoffs = 16;
};

inline Mixture draw_mixture(Dice& dice) {
    return {.leases = dice.one_in(2),
            .fenced = dice.pick({0, 0, 1, 2}),
            .watched = dice.pick({0, 0, 2}),
            .polls = dice.pick({0, 0, 0, 0, 1, 3}),
            .hangs = dice.pick({0, 0, 12}),
            .extended = dice.pick({0, 0, 1, 3}),
            .delayed = dice.pick({0, 0, 0, 1, 3}),
            .local_handoffs = dice.pick({0U, 1U, 3U, 16U})};
}

inline AcquisitionPlan draw_acquisition(Dice& dice, const Plan& plan, const Mixture& mixture) {
    const auto longest = plan.longest_lease.count();
    AcquisitionPlan made{.pause = short_or_long(dice, 5ms, 1s)};
    made.lock = static_cast<int>(dice.between(0, plan.locks));
    made.wait = draw_wait(dice);
    made.lease = Lease{milliseconds{mixture.leases ? dice.between(15, longest + 1) : longest}};
    const Moment lease{made.lease.duration()};
    made.hold = dice.one_in(4) ? dice.span(0ns, lease * 3 / 2) : dice.span(0ns, lease / 8);
    made.fenced = dice.one_in(mixture.fenced);
    made.watched = dice.one_in(mixture.watched);
    if (made.watched && dice.one_in(3)) made.hold = dice.span(lease / 4, lease * 3);
    if (made.watched && dice.one_in(4)) {
        made.max_hold = milliseconds{dice.between(longest / 2, 3 * longest)};
        made.lease = std::min(made.lease, Lease{made.max_hold});
    }
    made.polls = dice.one_in(mixture.polls);
    made.owns_itself = dice.one_in(6);
    made.sends_release = dice.one_in(3);
    made.is_held = made.owns_itself || dice.one_in(2);
    made.awaits_loss = dice.one_in(3);
    made.hangs = dice.one_in(mixture.hangs);
    made.local_handoffs = mixture.local_handoffs;
    if (dice.one_in(mixture.delayed)) made.lock_delay = milliseconds{dice.between(1, longest)};
    if (dice.one_in(12)) made.cancelled = dice.span(0ns, 500ms);
    if (dice.one_in(mixture.extended)) {
        for (int i = dice.pick({1, 1, 2}); i > 0; --i) {
            made.extensions.push_back({short_or_long(dice, lease / 8, lease),
                                       Lease{milliseconds{dice.between(10, 2 * longest + 1)}}});
        }
        if (dice.one_in(2)) made.hold = dice.span(0ns, lease * 2);
    }
    return made;
}

/// While another one of the same owner is held.
inline AcquisitionPlan draw_nested(Dice& dice, const Plan& plan, const Mixture& mixture,
                                   const AcquisitionPlan& outer) {
    AcquisitionPlan made = draw_acquisition(dice, plan, mixture);
    made.pause = dice.span(0ns, Moment{outer.lease.duration()} / 2);
    made.lock = outer.lock;
    made.fenced = outer.fenced;
    made.owns_itself = false;
    made.is_held = outer.is_held;
    made.hangs = false;
    return made;
}

/// Rates stay within the drift that leases are shortened by.
inline ProcessPlan draw_process(Dice& dice, const Plan& plan, const Mixture& mixture,
                                std::initializer_list<int> actors) {
    ProcessPlan process{.clock = TimePoint{dice.span(100s, 100'000s)},
                        .rate_ppm = dice.pick<std::int64_t>({0, -9'800, 9'800}),
                        .deaf = dice.one_in(16),
                        .observed = dice.one_in(3),
                        .noise = dice.seed()};
    process.actors.resize(static_cast<std::size_t>(dice.pick(actors)));
    for (ActorPlan& actor : process.actors) {
        actor.asynchronous = dice.one_in(3);
        for (int i = dice.pick({1, 1, 2}); i > 0; --i) {
            actor.acquisitions.push_back(draw_acquisition(dice, plan, mixture));
            AcquisitionPlan& outer = actor.acquisitions.back();
            if (!plan.on_hash || !dice.one_in(3)) continue;
            outer.nested.push_back(draw_nested(dice, plan, mixture, outer));
            if (dice.one_in(3)) {
                outer.nested.front().nested.push_back(draw_nested(dice, plan, mixture, outer));
            }
        }
    }
    return process;
}

inline std::size_t count_acquisitions(const std::vector<AcquisitionPlan>& plans) {
    std::size_t count = plans.size();
    for (const auto& plan : plans) count += count_acquisitions(plan.nested);
    return count;
}

inline std::size_t count_acquisitions(const Plan& plan) {
    std::size_t count = 0;
    for (const auto& process : plan.processes) {
        for (const auto& actor : process.actors) count += count_acquisitions(actor.acquisitions);
    }
    return count;
}

/// Whether a command, which may take two round trips, is answered before any lease is over.
inline bool leases_outlast_commands(const std::vector<AcquisitionPlan>& plans, Moment latency) {
    return std::ranges::all_of(plans, [latency](const AcquisitionPlan& plan) {
        return plan.lease.duration() > 5 * latency && leases_outlast_commands(plan.nested, latency);
    });
}
inline bool leases_outlast_commands(const Plan& plan) {
    return std::ranges::all_of(plan.processes, [&plan](const ProcessPlan& process) {
        return std::ranges::all_of(process.actors, [&plan](const ActorPlan& actor) {
            return leases_outlast_commands(actor.acquisitions, plan.latency);
        });
    });
}

/// Some schedules in which some acquisitions have a `min_hold`. By chance of their own, so that nothing
/// else of a schedule depends on it.
inline void draw_min_holds(Dice dice, Plan& plan) {
    if (!dice.one_in(6)) return;
    const auto longest = 2 * plan.longest_lease.count();
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                if (dice.one_in(2)) acquisition.min_hold = milliseconds{dice.between(1, longest)};
            }
        }
    }
}

/// Some schedules in which what is acquired asynchronously is delivered later than it is got: likewise.
inline void draw_deliveries(Dice dice, Plan& plan) {
    if (!dice.one_in(4)) return;
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            if (!actor.asynchronous) continue;
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                if (dice.one_in(4)) continue;
                const Moment lease{acquisition.lease.duration()};
                acquisition.delivered =
                    short_or_long(dice, std::min<Moment>(lease, 5ms), 2 * lease);
                acquisition.untaken = dice.one_in(6);
            }
        }
    }
}

/// How many replicas have to acknowledge such an acquisition. Those of an unlimited wait can, within its
/// lease.
inline Replicas draw_acknowledgements(Dice& dice, const Plan& plan,
                                      const AcquisitionPlan& acquisition) {
    const auto there = static_cast<unsigned>(plan.replicas);
    const Moment lease{acquisition.lease.duration()};
    if (lease < 8 * plan.latency + 6 * plan.replication_delay) return Replicas::none();
    if (dice.one_in(8) && !acquisition.wait.is_unlimited()) return there + 1;
    return dice.pick<Replicas>({Replicas::none(), 1U, 1U, there, Replicas::all()});
}

/// Some schedules in which the master has replicas: likewise. What takes over then is one of them.
inline void draw_replicas(Dice dice, Plan& plan) {
    using Kind = Trouble::Kind;
    if (plan.has_several_masters() || !dice.one_in(5)) return;
    plan.replicas = dice.pick({1, 2, 2, 3});
    plan.replication_delay = std::min<Moment>(dice.pick<Moment>({50us, plan.latency, 20ms}),
                                              Moment{plan.command_timeout} / 8);
    for (ProcessPlan& process : plan.processes) {
        if (process.denied.empty() && dice.one_in(30)) process.denied = "WAIT";
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                acquisition.replicas = draw_acknowledgements(dice, plan, acquisition);
            }
        }
    }
    const auto replica = [&] { return static_cast<int>(dice.between(0, plan.replicas)); };
    for (Trouble& trouble : plan.troubles) {
        const bool takes_over = trouble.kind == Kind::failover || trouble.kind == Kind::forgetting;
        if (takes_over) trouble.kind = Kind::promotion;
        if (takes_over) trouble.whom = replica();
    }
    const auto add = [&](Kind kind, Moment length) {
        plan.troubles.push_back({kind, dice.span(0ns, plan.faults_until), replica(), length});
    };
    for (int i = dice.pick({0, 1, 1, 3}); i > 0; --i) add(Kind::cut, dice.span(1ms, 1s));
    for (int i = dice.pick({0, 1, 1, 2}); i > 0; --i) {
        add(Kind::promotion, dice.pick<Moment>({0s, 0s, 0s, 0s, 0s, 100ms, -1s}));
    }
}

/// What an acquisition takes of a lock with claims.
inline std::int64_t draw_weight(Dice& dice, const Plan& plan, int writers) {
    using detail::ClaimTerms;
    if (plan.claims == Claims::permits) return dice.between(1, plan.permits + 1);
    return dice.one_in(writers) ? ClaimTerms::writer : ClaimTerms::reader;
}

/// Of `most` at most: who reads cannot write within that.
inline void draw_weights(Dice& dice, const Plan& plan, int writers, std::int64_t most,
                         AcquisitionPlan& acquisition) {
    acquisition.weight = std::min(draw_weight(dice, plan, writers), most);
    const bool writes = acquisition.weight == detail::ClaimTerms::writer;
    if (writes && dice.one_in(4)) acquisition.downgraded = dice.span(0ns, acquisition.hold + 1ms);
    for (AcquisitionPlan& nested : acquisition.nested) {
        draw_weights(dice, plan, writers, acquisition.weight, nested);
    }
}

/// Some schedules in which locks have claims: readers' and writers', or permits. Likewise.
inline void draw_claims(Dice dice, Plan& plan) {
    if (!dice.one_in(4)) return;
    const bool shared = plan.has_several_masters() || dice.one_in(2);
    plan.claims = shared ? Claims::shared : Claims::permits;
    plan.on_hash = false;
    if (!shared) plan.permits = dice.pick({1, 2, 2, 3});
    const int writers = dice.pick({1, 2, 3, 5});
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                acquisition.min_hold = 0ms;
                if (!shared) {
                    acquisition.is_held = true;
                    acquisition.fenced = false;
                    acquisition.nested.clear();
                }
                draw_weights(dice, plan, writers, detail::ClaimTerms::writer, acquisition);
            }
        }
    }
}

/// Some schedules in which some acquisitions take several locks, or none, with leases that last for that. Likewise.
inline void draw_sets(Dice dice, Plan& plan) {
    if (plan.claims == Claims::permits || plan.locks < 2 || !dice.one_in(2)) return;
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                const bool lasts = acquisition.lease.duration() >
                                   (plan.has_several_masters() ? 60 : 12) * plan.latency;
                if (dice.one_in(2) || !lasts) continue;
                for (int lock = 0; lock < plan.locks; ++lock) acquisition.set.push_back(lock);
                acquisition.is_held = true;
                acquisition.delivered.reset();
                acquisition.untaken = false;
                acquisition.extensions.clear();
                acquisition.nested.clear();
            }
        }
    }
}

/// Some schedules in which a process has many readers on equal terms that come close together, so that they go on with
/// each other's claims. Likewise.
inline void draw_reader_crowds(Dice dice, Plan& plan) {
    if (plan.claims != Claims::shared || plan.has_several_masters() || !dice.one_in(2)) return;
    const Lease lease{plan.longest_lease};
    const bool fenced = dice.one_in(3);
    const Moment close = dice.pick<Moment>({2ms, 8ms, 30ms});
    for (ProcessPlan& process : plan.processes) {
        for (int i = dice.pick({0, 2, 3, 4}); i > 0; --i) {
            ActorPlan reader{.asynchronous = dice.one_in(4)};
            for (int j = dice.pick({1, 3, 6}); j > 0; --j) {
                reader.acquisitions.push_back(
                    {.pause = dice.span(0ns, close),
                     .lock = static_cast<int>(dice.between(0, plan.locks)),
                     .wait = draw_wait(dice),
                     .lease = lease,
                     .weight = detail::ClaimTerms::reader,
                     .hold = dice.one_in(6) ? dice.span(0ns, 2 * plan.longest_lease)
                                            : dice.span(0ns, close),
                     .fenced = fenced,
                     .watched = dice.one_in(6),
                     .owns_itself = dice.one_in(6),
                     .sends_release = dice.one_in(3),
                     .is_held = true,
                     .awaits_loss = dice.one_in(3),
                     .hangs = dice.one_in(20)});
                if (dice.one_in(8)) {
                    reader.acquisitions.back().extensions.push_back(
                        {short_or_long(dice, plan.longest_lease / 8, plan.longest_lease), lease});
                }
            }
            process.actors.push_back(std::move(reader));
        }
    }
}

/// Some schedules in which readers of a process wait on equal terms while somebody writes, and writers of that
/// process come among them. Likewise.
inline void draw_waiting_crowds(Dice dice, Plan& plan) {
    using detail::ClaimTerms;
    if (plan.claims != Claims::shared || plan.has_several_masters() || !dice.one_in(2)) return;
    const Lease lease{plan.longest_lease};
    const Moment close = dice.pick<Moment>({3ms, 10ms, 40ms});
    for (ProcessPlan& process : plan.processes) {
        for (int i = dice.pick({0, 3, 5, 8}); i > 0; --i) {
            const bool writes = dice.one_in(4);
            ActorPlan actor{};
            for (int j = dice.pick({1, 2, 4}); j > 0; --j) {
                actor.acquisitions.push_back(
                    {.pause = dice.span(0ns, close),
                     .wait = dice.one_in(4) ? draw_wait(dice) : Wait::unlimited(),
                     .lease = lease,
                     .weight = writes ? ClaimTerms::writer : ClaimTerms::reader,
                     .hold = dice.span(0ns, dice.one_in(6) ? plan.longest_lease : close),
                     .watched = dice.one_in(6),
                     .is_held = true,
                     .hangs = dice.one_in(30)});
                if (dice.one_in(8)) actor.acquisitions.back().cancelled = dice.span(0ns, 3 * close);
            }
            process.actors.push_back(std::move(actor));
        }
    }
}

/// Some schedules with claims in which a slot moves for long, and has all its keys until then. Likewise.
inline void draw_long_moves(Dice dice, Plan& plan) {
    if (!plan.is_cluster() || !plan.has_claims() || !dice.one_in(2)) return;
    plan.nodes.keys_move_last = true;
    for (Trouble& trouble : plan.troubles) {
        if (trouble.kind != Trouble::Kind::migration) continue;
        trouble.when = dice.span(0ns, plan.faults_until / 4);
        trouble.length = dice.span(0ns, plan.faults_until);
    }
}

/// Some schedules in which the master is one of several nodes, which clients find by a Cluster's map or by Sentinels.
/// Likewise.
inline void draw_nodes(Dice dice, Plan& plan) {
    using Kind = Trouble::Kind;
    if (plan.has_several_masters() || !dice.one_in(4)) return;
    NodesPlan& nodes = plan.nodes;
    nodes.finding = dice.one_in(2) ? Finding::by_cluster : Finding::by_sentinels;
    nodes.count = dice.pick({2, 3, 3});
    for (Moment& lag : nodes.node_lags) lag = dice.pick<Moment>({0ms, 2ms, 50ms, 1s, 100s});
    nodes.outage = dice.pick<Moment>({0ms, 5ms, 100ms, 1s});
    nodes.hand_over = dice.pick<Moment>({0ms, 1ms, 40ms, 300ms});
    nodes.back_as_replica = dice.one_in(2);
    nodes.says_down = dice.one_in(2);
    const auto add = [&](Kind kind, int whom, Moment length) {
        plan.troubles.push_back({kind, dice.span(0ns, plan.faults_until), whom, length});
    };
    if (plan.is_cluster() && plan.replicas == 0) {
        for (int i = dice.pick({0, 1, 1, 2, 4}); i > 0; --i) {
            add(Kind::migration, dice.pick({0, 1}),
                dice.span(0ns, dice.pick<Moment>({5ms, 100ms, 1s})));
        }
    }
    if (plan.has_sentinels()) {
        nodes.sentinels = dice.pick({1, 2, 3, 3});
        for (Moment& lag : nodes.sentinel_lags) {
            lag = dice.pick<Moment>({0ms, 5ms, 300ms, 100s});
        }
        // One of them is up to date.
        const auto best = static_cast<std::size_t>(dice.between(0, nodes.sentinels));
        nodes.sentinel_lags[best] = dice.span(0ns, 50ms);
        if (dice.one_in(3)) nodes.lingering = dice.span(1ms, dice.pick<Moment>({20ms, 1s}));
        for (int i = dice.pick({0, 1, 2}); i > 0; --i) {
            const auto whom = static_cast<std::size_t>(dice.between(0, nodes.sentinels));
            const bool may_be_for_good = whom != best && dice.one_in(2);
            add(Kind::deafness, static_cast<int>(whom),
                may_be_for_good ? 1h : dice.span(1ms, 50ms));
        }
    }
    if (dice.one_in(3)) return;
    const auto replicas = std::max(plan.replicas, 1);
    const Kind kind = plan.replicas > 0 ? Kind::promotion
                      : dice.one_in(4)  ? Kind::forgetting
                                        : Kind::failover;
    add(kind, static_cast<int>(dice.between(0, replicas)), 0ns);
}

/// Some schedules in which locks go from process to process, by `detach()` and `adopt()`. Likewise.
inline void draw_handovers(Dice dice, Plan& plan) {
    if (plan.has_claims() || plan.has_several_masters() || !dice.one_in(6)) return;
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                const bool is_mutex = !acquisition.is_held && !acquisition.nested.empty();
                if (is_mutex || !acquisition.set.empty() || dice.one_in(3)) continue;
                const auto longest = plan.longest_lease.count();
                const Moment lease{acquisition.lease.duration()};
                acquisition.is_held = true;
                acquisition.handed_to =
                    HandoverPlan{.process = static_cast<int>(dice.between(
                                     0, static_cast<std::int64_t>(plan.processes.size()))),
                                 .after = short_or_long(dice, 2ms, lease * 3 / 2),
                                 .lease = Lease{milliseconds{dice.between(15, longest + 1)}},
                                 .hold = dice.span(0ns, lease),
                                 .watched = dice.one_in(3)};
            }
        }
    }
}

/// Some schedules in which operators take locks away, and set how many permits there are. Likewise.
inline void draw_operations(Dice dice, Plan& plan) {
    using Kind = OperationPlan::Kind;
    const bool counts = plan.claims == Claims::permits;
    if (plan.denies_any() || !dice.one_in(counts ? 2 : 6)) return;
    for (int i = dice.pick({1, 2, 4}); i > 0; --i) {
        const auto whose = static_cast<std::size_t>(
            dice.between(0, static_cast<std::int64_t>(plan.processes.size())));
        OperationPlan made{.kind = dice.one_in(2) ? Kind::force_anybody : Kind::force_owner,
                           .when = dice.span(0ns, plan.faults_until),
                           .lock = static_cast<int>(dice.between(0, plan.locks)),
                           .hesitation = short_or_long(dice, 1ms, 100ms)};
        if (counts && !dice.one_in(3)) {
            made.kind = Kind::set_permits;
            made.permits = dice.between(0, plan.permits + 2);
        }
        plan.processes[whose].operations.push_back(made);
    }
}

/// Some schedules in which a client closes while connections are hard to get. Of one master, and no more than that goes
/// wrong.
inline void draw_closings(Dice dice, Plan& plan) {
    if (plan.has_several_masters() || plan.has_nodes() || !dice.one_in(40)) return;
    plan.rates = {.refused = dice.pick({2, 4})};
    plan.faults_until = dice.span(20ms, 500ms);
    const auto whom = dice.between(0, static_cast<std::int64_t>(plan.processes.size()));
    plan.troubles = {{.kind = Trouble::Kind::close,
                      .when = dice.span(0ns, plan.faults_until),
                      .whom = static_cast<int>(whom)}};
    for (ProcessPlan& process : plan.processes) process.denied = {};
}

/// Some schedules in which a client closes while the slot of its locks moves, for less than one command may
/// take. Nothing else goes wrong. Likewise.
inline void draw_closings_in_a_move(Dice dice, Plan& plan) {
    using Kind = Trouble::Kind;
    if (!plan.is_cluster() || plan.replicas > 0 || !dice.one_in(6)) return;
    plan.rates = {};
    plan.faults_until = dice.span(20ms, 500ms);
    plan.nodes.node_lags = {};
    plan.nodes.hand_over = dice.pick<Moment>({0ms, 1ms});
    const Moment length = dice.span(1ms, Moment{plan.command_timeout} / 4);
    const Moment when = dice.span(0ns, plan.faults_until);
    const auto whom = dice.between(0, static_cast<std::int64_t>(plan.processes.size()));
    plan.troubles = {{Kind::migration, when, dice.pick({0, 1}), length},
                     {Kind::close, when + dice.span(0ns, length), static_cast<int>(whom)}};
    for (ProcessPlan& process : plan.processes) process.denied = {};
}

/// Some schedules in which threads of one process read together for long, and all of them are watched. Likewise.
inline void draw_watched_crowds(Dice dice, Plan& plan) {
    if (plan.claims != Claims::shared || plan.has_several_masters() || !dice.one_in(2)) return;
    const Moment lease{plan.longest_lease};
    const int lock = static_cast<int>(dice.between(0, plan.locks));
    const Moment since = dice.span(0ns, lease);
    ProcessPlan& process = plan.processes[static_cast<std::size_t>(
        dice.between(0, static_cast<std::int64_t>(plan.processes.size())))];
    for (int i = dice.pick({2, 3}); i > 0; --i) {
        process.actors.push_back({.acquisitions = {{.pause = since + dice.span(0ns, 4ms),
                                                    .lock = lock,
                                                    .lease = Lease{plan.longest_lease},
                                                    .weight = detail::ClaimTerms::reader,
                                                    .hold = dice.span(lease, 4 * lease),
                                                    .watched = true,
                                                    .is_held = true,
                                                    .awaits_loss = dice.one_in(3)}}});
    }
}

/// Some schedules in which readers on equal terms have a `lock_delay`, and lose what they go on with at different
/// times. Likewise.
inline void draw_delayed_readers(Dice dice, Plan& plan) {
    if (plan.claims != Claims::shared || plan.has_several_masters() || !dice.one_in(2)) return;
    const milliseconds lease = plan.longest_lease;
    for (ProcessPlan& process : plan.processes) {
        for (ActorPlan& actor : process.actors) {
            for (AcquisitionPlan& acquisition : actor.acquisitions) {
                const bool reads = acquisition.weight == detail::ClaimTerms::reader;
                if (!reads || acquisition.lease != Lease{lease}) continue;
                acquisition.lock_delay = lease;
                if (dice.one_in(3)) acquisition.hold = dice.span(0ns, 2 * lease);
                if (acquisition.watched || !dice.one_in(3)) continue;
                acquisition.extensions.push_back({dice.span(0ns, lease), Lease{lease}});
            }
        }
    }
}

/// Some schedules in which operations of one process give up, one after the other, tries that are answered later:
/// likewise.
inline void draw_late_answers(Dice dice, Plan& plan) {
    if (plan.has_several_masters() || plan.has_claims() || !dice.one_in(10)) return;
    plan.rates.slow = dice.pick({2, 2, 3});
    plan.faults_until = std::max<Moment>(plan.faults_until, 2s);
    plan.command_timeout = 100ms;
    plan.node_timeout = std::min<milliseconds>(plan.node_timeout, 100ms);
    plan.backoff = Backoff{50ms, 400ms};
    ProcessPlan& process = plan.processes.front();
    while (process.actors.size() < 4) process.actors.push_back(process.actors.front());
    for (ActorPlan& actor : process.actors) {
        actor.asynchronous = true;
        for (AcquisitionPlan& acquisition : actor.acquisitions) {
            if (!acquisition.set.empty()) continue;
            acquisition.nested.clear();
            acquisition.lock = 0;
            acquisition.pause = dice.span(0ns, 20ms);
            acquisition.lease = Lease{dice.pick({100ms, 300ms, 1000ms, 3000ms})};
            acquisition.max_hold = std::max(acquisition.max_hold, acquisition.lease.duration());
            acquisition.wait = 5s;
            acquisition.polls = false;
            acquisition.fenced = true;
            acquisition.hold = dice.span(0ns, 500ms);
            acquisition.cancelled.reset();
            if (!dice.one_in(3)) acquisition.cancelled = dice.span(0ns, 250ms);
        }
    }
}

/// Some schedules in which a process has few connections to each of several masters: likewise.
inline void draw_few_connections(Dice dice, Plan& plan) {
    if (plan.has_several_masters() && dice.one_in(3))
        plan.max_connections = dice.pick({1, 1, 2, 3});
}

/// Some schedules in which a server refuses what it is asked for a while, all or what takes memory: likewise.
inline void draw_refusals(Dice dice, Plan& plan) {
    if (!dice.one_in(6)) return;
    for (int i = dice.pick({1, 1, 2}); i > 0; --i) {
        plan.troubles.push_back({dice.one_in(2) ? Trouble::Kind::loading : Trouble::Kind::fullness,
                                 dice.span(0ns, plan.faults_until),
                                 static_cast<int>(dice.between(0, plan.masters)),
                                 dice.span(1ms, dice.pick<Moment>({20ms, 200ms, 2s}))});
    }
}

/// Of several masters, a majority may take longer to answer, and to store a fencing token, than a short lease lasts.
/// Who may not give a claim back stands in its own way: what a try gets of one master lasts until the next one has got
/// another. Nobody waits without limit for what cannot be.
inline void limit_vain_waits(std::vector<AcquisitionPlan>& acquisitions, const Plan& plan,
                             bool releases) {
    for (AcquisitionPlan& one : acquisitions) {
        const bool is_vain = !releases || one.lease.duration() < 6 * plan.latency;
        if (is_vain && one.wait.is_unlimited()) one.wait = 20s;
        limit_vain_waits(one.nested, plan, releases);
    }
}
inline void limit_vain_waits(Plan& plan) {
    if (!plan.has_several_masters()) return;
    for (ProcessPlan& process : plan.processes) {
        const bool releases = plan.claims == Claims::none || process.denied != "ZREM";
        for (ActorPlan& actor : process.actors) {
            limit_vain_waits(actor.acquisitions, plan, releases);
        }
    }
}

/// At least two processes with two owners, three acquisitions and one fault.
inline Plan draw_plan(std::uint64_t seed, Mutant mutant) {
    Dice dice{seed};
    Plan plan{.mutant = mutant,
              .noise = dice.seed(),
              .on_hash = dice.one_in(3),
              .locks = dice.one_in(4) ? 2 : 1,
              .masters = dice.one_in(6) ? 3 : 1,
              .backoff = dice.one_in(2) ? Backoff{10ms, 100ms} : Backoff{50ms, 400ms},
              .command_timeout = dice.pick({100ms, 300ms, 1000ms}),
              .longest_lease = dice.pick({20ms, 60ms, 300ms, 1000ms, 5000ms}),
              .latency = dice.pick<Moment>({50us, 500us, 2ms, 8ms})};
    // Who waits there asks again and again.
    if (plan.has_several_masters())
        plan.longest_lease = std::min<milliseconds>(plan.longest_lease, 1s);
    plan.node_timeout = std::min(plan.command_timeout, dice.pick({20ms, 50ms, 100ms, 300ms}));
    const Mixture mixture = draw_mixture(dice);
    for (int i = dice.pick({2, 2, 3, 4}); i > 0; --i) {
        const bool has_several_owners = plan.processes.size() < 2;
        plan.processes.push_back(has_several_owners
                                     ? draw_process(dice, plan, mixture, {2, 2, 2, 3})
                                     : draw_process(dice, plan, mixture, {1, 1, 2, 4}));
    }
    if (dice.one_in(12)) {
        const auto whose = static_cast<std::size_t>(
            dice.between(0, static_cast<std::int64_t>(plan.processes.size())));
        plan.processes[whose].denied = dice.pick<std::string_view>(
            {"ZADD", "ZADD", "HSET", "HSET", "PUBLISH", "PUBSUB", "ZREM", "PEXPIRE"});
    }
    while (count_acquisitions(plan) < 3) {
        plan.processes.back().actors.front().acquisitions.push_back(
            draw_acquisition(dice, plan, mixture));
    }
    plan.faults_until = dice.span(20ms, dice.pick<Moment>({60ms, 500ms, 4s}));
    if (!dice.one_in(4)) plan.rates = draw_rates(dice);
    if (!dice.one_in(3)) draw_troubles(dice, plan);
    // A counter that is lost rises by the clock.
    if (plan.has_several_masters() && !plan.has(Trouble::Kind::forgetting)) {
        for (microseconds& ahead : plan.server_clocks)
            ahead = dice.pick<microseconds>({0us, 700ms, 3s});
    }
    if (plan.is_calm()) {
        AcquisitionPlan& first = plan.processes.front().actors.front().acquisitions.front();
        if (!first.cancelled) first.cancelled = dice.span(0ns, 100ms);
    }
    draw_min_holds(Dice{dice.seed()}, plan);
    draw_deliveries(Dice{dice.seed()}, plan);
    draw_replicas(Dice{dice.seed()}, plan);
    if (has_claims(mutant)) draw_claims(Dice{dice.seed()}, plan);
    if (has_claims(mutant)) draw_reader_crowds(Dice{dice.seed()}, plan);
    if (has_claims(mutant)) draw_sets(Dice{dice.seed()}, plan);
    if (has_nodes(mutant)) draw_nodes(Dice{dice.seed()}, plan);
    if (has_claims(mutant)) draw_waiting_crowds(Dice{dice.seed()}, plan);
    draw_late_answers(Dice{dice.seed()}, plan);
    if (has_operators(mutant)) draw_operations(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_watched_crowds(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_handovers(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_delayed_readers(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_closings(Dice{dice.seed()}, plan);
    if (has_nodes(mutant)) draw_long_moves(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_closings_in_a_move(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_few_connections(Dice{dice.seed()}, plan);
    if (mutant == Mutant::none) draw_refusals(Dice{dice.seed()}, plan);
    limit_vain_waits(plan);
    return plan;
}

// ---- For people

inline std::ostream& operator<<(std::ostream& out, const AcquisitionPlan& plan) {
    const auto ms = [](Moment moment) { return static_cast<double>(moment / 1us) / 1000; };
    out << "after " << ms(plan.pause) << " ms: lock " << plan.lock << ", lease "
        << plan.lease.duration().count() << ", ";
    if (plan.wait.is_unlimited()) {
        out << "waits without limit";
    } else {
        out << "waits " << ms(plan.wait.duration());
    }
    out << (plan.hangs ? ", hangs" : ", holds ");
    if (!plan.hangs) out << ms(plan.hold);
    if (plan.weight == detail::ClaimTerms::writer) {
        out << ", writes";
    } else if (plan.weight != 0) {
        out << ", weighs " << plan.weight;
    }
    if (plan.fenced) out << ", fenced";
    if (plan.watched) out << ", watched";
    if (plan.polls) out << ", polls";
    if (plan.owns_itself) out << ", owns itself";
    if (plan.sends_release) out << ", sends its release";
    if (plan.is_held) out << ", as a Held";
    if (plan.awaits_loss) out << ", awaits its loss";
    if (plan.max_hold != milliseconds::max()) out << ", max_hold " << plan.max_hold.count();
    if (plan.min_hold != 0ms) out << ", min_hold " << plan.min_hold.count();
    if (plan.lock_delay != 0ms) out << ", lock_delay " << plan.lock_delay.count();
    if (plan.replicas == Replicas::all()) {
        out << ", acknowledged by all";
    } else if (plan.replicas != Replicas::none()) {
        out << ", acknowledged by " << plan.replicas.count();
    }
    if (plan.cancelled) out << ", cancelled after " << ms(*plan.cancelled);
    if (plan.downgraded) out << ", downgraded after " << ms(*plan.downgraded);
    if (plan.delivered) out << ", delivered after " << ms(*plan.delivered);
    if (plan.untaken) out << ", untaken";
    if (plan.handed_to) {
        out << ", then handed to " << plan.handed_to->process << " after "
            << ms(plan.handed_to->after) << " with lease "
            << plan.handed_to->lease.duration().count()
            << (plan.handed_to->watched ? ", watched" : "") << ", which holds "
            << ms(plan.handed_to->hold);
    }
    if (!plan.set.empty()) out << ", with all other locks or not at all";
    for (const auto& [after, lease] : plan.extensions) {
        out << ", extended after " << ms(after) << " by " << lease.duration().count();
    }
    return out;
}

inline void print(std::ostream& out, const AcquisitionPlan& plan, const std::string& indent) {
    out << indent << plan << '\n';
    for (const auto& nested : plan.nested) print(out, nested, indent + "  nested: ");
}

inline std::ostream& operator<<(std::ostream& out, const NodesPlan& plan) {
    const auto us = [](Moment moment) { return moment / 1us; };
    out << "\n"
        << (plan.finding == Finding::by_cluster ? "a Cluster of " : "watched by Sentinels: ")
        << plan.count << " nodes, which hear of each other after";
    for (int i = 0; i < plan.count; ++i) {
        out << ' ' << us(plan.node_lags[static_cast<std::size_t>(i)]);
    }
    out << " us";
    for (int i = 0; i < plan.sentinels; ++i) {
        out << (i == 0 ? ", Sentinels after " : " ")
            << us(plan.sentinel_lags[static_cast<std::size_t>(i)]);
    }
    return out << ", no master for " << us(plan.outage) << ", the old one lingers for "
               << us(plan.lingering) << (plan.back_as_replica ? " and is a replica" : "")
               << ", hand-over " << us(plan.hand_over)
               << (plan.keys_move_last ? ", all keys move last" : "")
               << (plan.says_down ? ", says that it is down" : "") << "\n";
}

inline std::ostream& operator<<(std::ostream& out, const Plan& plan) {
    if (plan.claims == Claims::permits) out << plan.permits << " permits, ";
    if (plan.claims == Claims::shared) out << "for readers and writers, ";
    out << (plan.on_hash ? "hashes" : "strings") << ", " << plan.masters << " master(s), "
        << plan.replicas << " replica(s) that are " << plan.replication_delay / 1us
        << " us behind, node_timeout " << plan.node_timeout.count() << " ms, "
        << plan.max_connections << " connections to each of several, command_timeout "
        << plan.command_timeout.count() << " ms, latency " << plan.latency / 1us << " us, back-off "
        << plan.backoff.min.count() << " to " << plan.backoff.max.count() << " ms\nuntil "
        << plan.faults_until / 1us << " us, once in:";
    if (plan.has_nodes()) out << plan.nodes;
    for (std::size_t i = 0; i < std::size(Rates::all); ++i) {
        const int rate = plan.rates.*Rates::all[i];
        if (rate != 0) out << ' ' << Rates::names[i] << ' ' << rate;
    }
    for (const Trouble& trouble : plan.troubles) {
        out << "\nat " << trouble.when / 1us << " us "
            << Trouble::names[static_cast<std::size_t>(trouble.kind)] << " of " << trouble.whom
            << ", " << trouble.length / 1us << " us";
    }
    int number = 0;
    for (const ProcessPlan& process : plan.processes) {
        out << "\nprocess " << number++ << ", clock " << process.rate_ppm << " ppm"
            << (process.denied.empty() ? "" : ", may not ") << process.denied
            << (process.deaf ? ", deaf" : "") << (process.observed ? ", observed" : "") << '\n';
        for (const ActorPlan& actor : process.actors) {
            out << (actor.asynchronous ? "  asynchronous:\n" : "  thread:\n");
            for (const auto& acquisition : actor.acquisitions) print(out, acquisition, "    ");
        }
        for (const OperationPlan& operation : process.operations) {
            out << "  at " << operation.when / 1us << " us "
                << OperationPlan::names[static_cast<std::size_t>(operation.kind)] << " of lock "
                << operation.lock;
            if (operation.kind == OperationPlan::Kind::set_permits)
                out << ": " << operation.permits;
            out << '\n';
        }
    }
    return out;
}

}  // namespace redlatch::test::simulator
