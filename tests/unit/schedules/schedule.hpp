#pragma once

#include "acquisition.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::test::schedules {

/// One schedule, from its seed to its end.
class Schedule {
public:
    Schedule(std::uint64_t seed, Bug bug, ModelRedis& redis, bool traced)
        : dice_(seed),
          plan_(draw_plan(dice_, bug)),
          trace_(timeline_, traced),
          server_(plan_, timeline_, redis, dice_),
          checker_(plan_, timeline_, trace_, server_),
          network_(plan_, timeline_, trace_, dice_, server_, checker_),
          redis_(&redis) {
        for (const ProcessPlan& plan : plan_.processes) add(plan);
        redis.on_publish([this](std::string_view channel, std::string_view message) {
            publish(channel, message);
        });
    }

    ~Schedule() { redis_->on_publish(nullptr); }
    Schedule(const Schedule&) = delete;
    Schedule& operator=(const Schedule&) = delete;

    /// Throws `Violation`.
    void run() {
        for (const auto& process : processes_) process->start();
        plan_trouble();
        while (!timeline_.empty()) step();
        for (const auto& process : processes_) {
            if (!process->host().crashed() && !process->finished()) {
                checker_.fail("somebody waits for ever");
            }
        }
        pass(200ms);
        checker_.check_end_of_use();
        pass(2min);
        checker_.check_quiet();
    }

    std::string trace() const { return trace_.text(); }
    std::uint64_t steps() const { return steps_; }

private:
    static constexpr Moment end_of_time = 10min;

    void add(const ProcessPlan& plan) {
        const int number = static_cast<int>(processes_.size());
        processes_.push_back(std::make_unique<Process>(world_, number, plan));
        checker_.add(processes_.back()->host());
        server_.set_subscribed(number, false);
    }

    void step() {
        if (timeline_.next() > end_of_time) checker_.fail("no end of it");
        const Timeline::Task task = timeline_.take();
        ++steps_;
        checker_.check();
        task();
    }

    void pass(Moment time) {
        timeline_.at(timeline_.now() + time, [] {});
        timeline_.take();
    }

    void publish(std::string_view channel, std::string_view message) {
        const int number = Server::process_of(channel.substr(channel.rfind(':') + 1));
        Process& process = *processes_[static_cast<std::size_t>(number)];
        if (!process.connected()) return trace_("  message to a dead connection");
        network_.publish(process.host(), std::string{message},
                         [&process](const std::string& text) { process.hear(text); });
    }

    // ---- Trouble

    Process& some_process() {
        const auto count = static_cast<std::int64_t>(processes_.size());
        return *processes_[static_cast<std::size_t>(dice_.between(0, count))];
    }

    template <class Task>
    void sometime(Task task) {
        timeline_.at(dice_.span(0ns, plan_.faults.until), std::move(task));
    }

    void plan_trouble() {
        if (plan_.faults.outages) {
            for (int i = dice_.pick({1, 3}); i > 0; --i) sometime([this] { outage(); });
        }
        if (plan_.faults.crashes) sometime([this] { crash(); });
        if (plan_.faults.freezes) sometime([this] { freeze(); });
        if (plan_.faults.failovers) sometime([this] { fail_over(); });
    }

    void outage() { some_process().lose_subscription(dice_.span(1ms, 1s)); }

    void crash() {
        checker_.crashed(timeline_.now());
        some_process().crash();
    }

    void freeze() {
        const Moment until =
            timeline_.now() + dice_.span(0ns, 2 * Moment{plan_.longest_lease} + 100ms);
        Process& process = some_process();
        trace_("process ", process.number(), " freezes until ", until / 1us, "us");
        process.host().freeze_until(until);
        checker_.damaged(until);
    }

    void fail_over() {
        const Moment ahead = dice_.pick<Moment>({0s, 100ms, 5s, -1s});
        const bool keeps_keys = !dice_.one_in(3);
        trace_("failover, ", keeps_keys ? "with" : "without", " keys, clock ", ahead / 1us, "us");
        server_.fail_over(keeps_keys, ahead / 1us * 1us);
        checker_.failed_over(keeps_keys, ahead);
    }

    Dice dice_;
    Plan plan_;
    Timeline timeline_;
    Trace trace_;
    Server server_;
    Checker checker_;
    Network network_;
    ModelRedis* redis_;
    World world_{&plan_, &timeline_, &trace_, &dice_, &server_, &network_, &checker_};
    std::vector<std::unique_ptr<Process>> processes_;
    std::uint64_t steps_ = 0;
};

}  // namespace redlatch::test::schedules
