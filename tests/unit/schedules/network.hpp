#pragma once

#include "checker.hpp"
#include "server.hpp"
#include <redlatch/core/fault.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace redlatch::test::schedules {

/// What came back for a command.
struct Answer {
    ModelRedis::Value value;
    std::shared_ptr<const std::string> server;
    bool repeated = false;  ///< an earlier sending may have been carried out too
};
using Outcome = Expected<Answer, detail::Fault>;

/// A command under way: ends once, whatever else arrives.
class Exchange {
public:
    using Done = std::function<void(Outcome)>;

    explicit Exchange(Done done) : done_(std::move(done)) {}

    void settle(Outcome outcome) {
        if (done_) std::exchange(done_, nullptr)(std::move(outcome));
    }
    void fail(bool maybe_executed) {
        settle(Unexpected{detail::Fault{.error = {Errc::unavailable, {}, {}, "no answer", {}},
                                        .maybe_executed = maybe_executed}});
    }
    void cancel() {
        settle(Unexpected{detail::Fault{.error = {Errc::cancelled, {}, {}, {}, {}},
                                        .transient = false,
                                        .maybe_executed = true}});
    }

private:
    Done done_;
};

/// Carries commands to the server and answers and messages back, with all that can go wrong there.
class Network {
public:
    Network(const Plan& plan, Timeline& timeline, Trace& trace, Dice& dice, Server& server,
            Checker& checker)
        : plan_(&plan),
          timeline_(&timeline),
          trace_(&trace),
          dice_(&dice),
          server_(&server),
          checker_(&checker) {}

    /// Sends `command`; `again` is what goes out in its place if the connection turns out dead.
    std::shared_ptr<Exchange> call(Host& host, Command command, Command again, TimePoint answer_by,
                                   Exchange::Done done) {
        auto exchange = std::make_shared<Exchange>(std::move(done));
        checker_->sent(command);
        command.number = again.number = ++sent_;
        const Moment now = timeline_->now();
        if (fault(plan_->faults.refused)) {
            checker_->disturbed(now);
            const Moment patience = std::max(now, host.moment_of(answer_by));
            host.later(std::min(now + latency(), patience), [exchange] { exchange->fail(false); });
            return exchange;
        }
        const bool repeated = fault(plan_->faults.repeated);
        if (repeated) carry_out_late(command);
        if (fault(plan_->faults.doubled)) {
            checker_->doubled();
            carry_out_late(command);
        }
        deliver(host, repeated ? std::move(again) : std::move(command), repeated, answer_by,
                exchange);
        return exchange;
    }

    /// A message from the server, which `hear` gets at `host`.
    void publish(Host& host, std::string message, std::function<void(std::string)> hear) {
        const Moment now = timeline_->now();
        if (plan_->bug == Bug::no_recheck || fault(plan_->faults.message_lost)) {
            (*trace_)("  message lost");
            checker_->message_lost(now);
            return;
        }
        if (fault(plan_->faults.message_doubled)) {
            host.soon(lateness(), [hear, message] { hear(message); });
        }
        const bool late = fault(plan_->faults.message_late);
        const Moment arrival = now + (late ? lateness() : latency());
        if (late) checker_->message_lost(arrival);
        host.later(arrival, [hear = std::move(hear), message = std::move(message)]() mutable {
            hear(std::move(message));
        });
    }

    Moment latency() { return dice_->span(10us, plan_->latency); }
    bool fault(int one_in) {
        return timeline_->now() < plan_->faults.until && dice_->one_in(one_in);
    }

private:
    /// Anything from a little late to long after everybody has forgotten it.
    Moment lateness() {
        const Moment most = dice_->pick<Moment>(
            {5ms, plan_->command_timeout, 2 * plan_->command_timeout, 2 * plan_->longest_lease});
        return dice_->span(0ns, most);
    }

    void deliver(Host& host, Command command, bool repeated, TimePoint answer_by,
                 const std::shared_ptr<Exchange>& exchange) {
        const Moment now = timeline_->now();
        const bool lost = fault(plan_->faults.lost);
        const bool unanswered = lost || fault(plan_->faults.unanswered);
        const bool slow = fault(plan_->faults.slow);
        const Moment there = now + (slow ? lateness() : latency());
        const Moment back = there + (slow ? lateness() : latency());
        const Moment patience = host.moment_of(answer_by);
        if (unanswered || slow) checker_->disturbed(back);
        if (unanswered || back > patience) {
            const bool broken = unanswered && dice_->one_in(2);
            host.later(broken ? std::min(back, patience) : patience,
                       [exchange] { exchange->fail(true); });
        }
        if (lost) return;
        timeline_->at(there, [this, &host, command = std::move(command), repeated, back, unanswered,
                              exchange] {
            if (command.server != server_->id()) {
                return host.later(back, [exchange] { exchange->fail(true); });
            }
            Answer answer{carry_out(command), server_->id(), repeated};
            if (unanswered) return;
            host.later(back, [exchange, answer = std::move(answer)]() mutable {
                exchange->settle(std::move(answer));
            });
        });
    }

    void carry_out_late(const Command& command) {
        const Moment when = timeline_->now() + lateness();
        checker_->disturbed(when);
        timeline_->at(when, [this, command] {
            if (command.server != server_->id()) return;
            (*trace_)("once more:");
            carry_out(command);
        });
    }

    ModelRedis::Value carry_out(const Command& command) {
        (*trace_)("server: ", command);
        checker_->before(command);
        ModelRedis::Value value = server_->run(command);
        (*trace_)("  answer ", value);
        checker_->executed(command, value);
        return value;
    }

    const Plan* plan_;
    Timeline* timeline_;
    Trace* trace_;
    Dice* dice_;
    Server* server_;
    Checker* checker_;
    std::uint64_t sent_ = 0;
};

}  // namespace redlatch::test::schedules
