#pragma once

#include "timeline.hpp"
#include <redlatch/options.hpp>

#include <optional>

namespace redlatch::test::schedules {

/// A mistake that the model's clients or scripts can be made to have, to see the checker find it.
enum class Bug {
    none,
    late_grant_believed,    ///< a grant older than the last answer counts
    lease_shortened,        ///< an acquire that finds the lock its own sets the ttl, whatever it is
    anchor_kept,            ///< a grant is measured by another server's clock
    dead_token_used,        ///< a token is asked with after its release
    plain_delete,           ///< a release deletes whatever is there
    counted_from_arrival,   ///< validity begins when the answer comes
    no_recheck,             ///< whoever waits for a word waits for ever, and no word comes
    unknown_grant_ignored,  ///< nobody gives back what a dead token was given
    shared_queue,           ///< all names have one queue
    last_come_first_served,
    late_commands_run,     ///< a script never finds itself late
    fence_without_clock,   ///< the next fencing token is one more, whatever was lost
    fence_without_memory,  ///< it is the server's time alone
    fence_not_granted,     ///< who is given the lock has the number of the holder before
    anyones_extended,      ///< a renewal asks for no owner
    released_renewed,      ///< renewals go on when the release was sent
};

/// How often things go wrong: once in so many; never for 0.
struct Faults {
    int refused = 0;     ///< no connection
    int lost = 0;        ///< a command never arrives
    int unanswered = 0;  ///< its answer never does
    int slow = 0;        ///< either takes long, perhaps longer than anybody waits for it
    int repeated = 0;    ///< sent again at once, and the first sending runs too, maybe late
    int doubled = 0;     ///< runs twice, and the client never knows
    int message_lost = 0;
    int message_late = 0;  ///< maybe longer than the lease
    int message_doubled = 0;
    bool outages = false;  ///< of subscriptions
    bool crashes = false;
    bool freezes = false;
    bool failovers = false;  ///< to a server with another clock, with or without the keys
    Moment until{0};         ///< after that, nothing goes wrong any more

    bool none() const { return until == 0ns; }
};

/// One acquisition of a thread.
struct Errand {
    Moment pause;  ///< before it
    int lock;
    Wait wait;
    Lease lease;
    Moment hold;  ///< how long the lock is kept
    bool fenced = false;
    bool watched = false;  ///< its lease is renewed until the release
    std::optional<Moment> cancelled{};
};

struct ProcessPlan {
    TimePoint clock;
    std::int64_t rate_ppm;
    bool deaf;  ///< it may not subscribe
    std::vector<std::vector<Errand>> threads{};
};

/// What is meant to happen in a schedule, before chance has its way with it.
struct Plan {
    Bug bug = Bug::none;
    bool on_hash = false;
    int locks = 1;
    Drift drift{};
    Backoff backoff{};
    milliseconds command_timeout{};
    milliseconds longest_lease{};
    Moment latency{};
    int fenced = 0;   ///< of how many errands each one wants a fencing token; 0 for none
    int watched = 0;  ///< of how many errands each one is watched; 0 for none
    Faults faults{};
    std::vector<ProcessPlan> processes{};
};

inline Moment short_or_long(Dice& dice, Moment usual, Moment rare) {
    return dice.one_in(4) ? dice.span(0ns, rare) : dice.span(0ns, usual);
}

inline Faults draw_faults(Dice& dice) {
    Faults faults;
    if (dice.one_in(4)) return faults;
    const auto rate = [&dice] { return dice.one_in(2) ? dice.pick({4, 10, 40}) : 0; };
    const bool commands = !dice.one_in(3);
    const bool messages = !dice.one_in(3);
    if (commands) {
        for (int* const fault : {&faults.refused, &faults.lost, &faults.unanswered, &faults.slow,
                                 &faults.repeated, &faults.doubled}) {
            *fault = rate();
        }
    }
    if (messages) {
        faults.message_lost = rate();
        faults.message_late = rate();
        faults.message_doubled = rate();
        faults.outages = dice.one_in(3);
    }
    faults.crashes = dice.one_in(6);
    faults.freezes = dice.one_in(6);
    faults.failovers = dice.one_in(4);
    faults.until = dice.span(20ms, dice.pick<Moment>({60ms, 500ms, 4s}));
    return faults;
}

inline Wait draw_wait(Dice& dice) {
    if (dice.one_in(16)) return Wait::none();
    if (dice.one_in(3)) return dice.span(1ms, dice.pick<Moment>({20ms, 300ms}));
    if (dice.one_in(2)) return dice.span(300ms, 20s);
    return Wait::unlimited();
}

inline Errand draw_errand(Dice& dice, const Plan& plan, bool mixed_leases) {
    const auto longest = plan.longest_lease.count();
    Errand errand{.pause = short_or_long(dice, 5ms, 1s),
                  .lock = static_cast<int>(dice.between(0, plan.locks)),
                  .wait = draw_wait(dice),
                  .lease = milliseconds{mixed_leases ? dice.between(15, longest + 1) : longest},
                  .hold = {}};
    const Moment lease{errand.lease.duration()};
    errand.hold = dice.one_in(4) ? dice.span(0ns, lease * 3 / 2) : dice.span(0ns, lease / 8);
    errand.fenced = plan.fenced > 0 && dice.one_in(plan.fenced);
    errand.watched = plan.watched > 0 && dice.one_in(plan.watched);
    if (errand.watched && dice.one_in(3)) errand.hold = dice.span(lease / 4, lease * 3);
    if (dice.one_in(12)) errand.cancelled = dice.span(0ns, 500ms);
    return errand;
}

/// Rates stay within the drift that leases are shortened by.
inline ProcessPlan draw_process(Dice& dice, const Plan& plan, bool mixed_leases) {
    ProcessPlan process{.clock = TimePoint{dice.span(100s, 100'000s)},
                        .rate_ppm = dice.pick<std::int64_t>({0, -9'800, 9'800}),
                        .deaf = dice.one_in(16)};
    process.threads.resize(static_cast<std::size_t>(dice.pick({1, 1, 2, 3})));
    for (auto& thread : process.threads) {
        const int errands = dice.pick({1, 1, 2});
        for (int i = 0; i < errands; ++i) {
            thread.push_back(draw_errand(dice, plan, mixed_leases));
        }
    }
    return process;
}

inline Plan draw_plan(Dice& dice, Bug bug) {
    Plan plan{.bug = bug,
              .on_hash = dice.one_in(3),
              .locks = dice.one_in(4) ? 2 : 1,
              .backoff = dice.one_in(2) ? Backoff{10ms, 100ms} : Backoff{50ms, 400ms},
              .command_timeout = dice.pick({100ms, 300ms, 1000ms}),
              .longest_lease = dice.pick({20ms, 60ms, 300ms, 1000ms, 5000ms}),
              .latency = dice.pick<Moment>({50us, 500us, 2ms, 8ms}),
              .fenced = dice.pick({0, 1, 2}),
              .watched = dice.pick({0, 0, 0, 2}),
              .faults = draw_faults(dice)};
    const bool mixed_leases = dice.one_in(2);
    const int processes = dice.pick({2, 2, 3, 4});
    for (int i = 0; i < processes; ++i) {
        plan.processes.push_back(draw_process(dice, plan, mixed_leases));
    }
    return plan;
}

}  // namespace redlatch::test::schedules
