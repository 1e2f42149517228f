#pragma once

#include "../history/history.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace redlatch::test::fault {

/// A small history written by hand. Moments are milliseconds; a validity ends between the moment that
/// is given and two milliseconds later.
class Story {
public:
    struct Taken {
        int process = 1;
        std::uint64_t hold = 1;
        int from = 0;  ///< the call
        int to = 1;    ///< and its return
        int valid = 100;
        std::uint64_t fence = 0;
        std::string lock = "a";
        std::string policy = "Simple";
        std::map<std::string, long long> counts{};  ///< "reads", "permits" and "of", "set"
    };

    Story& takes(const Taken& taken) {
        terms_[{taken.process, taken.hold}] = taken;
        completed(taken, Op::acquire, taken.from, taken.to, Stage::ok, "ok", taken.valid);
        return *this;
    }
    Story& nests(int process, std::uint64_t hold, int from, int to, int valid) {
        completed(terms(process, hold), Op::nest, from, to, Stage::ok, "ok", valid);
        return *this;
    }
    Story& fails(Op op, int process, std::uint64_t hold, int from, int to, std::string outcome) {
        completed(terms(process, hold), op, from, to, Stage::fail, std::move(outcome), {});
        return *this;
    }
    Story& extends(int process, std::uint64_t hold, int from, int to, int valid) {
        completed(terms(process, hold), Op::extend, from, to, Stage::ok, "ok", valid);
        return *this;
    }
    Story& releases(int process, std::uint64_t hold, int from, int to,
                    std::string outcome = "released") {
        completed(terms(process, hold), Op::release, from, to, Stage::ok, std::move(outcome), {});
        return *this;
    }
    /// `valid`: what it would be if it were asked for; 0 for none left.
    Story& probes(int process, std::uint64_t hold, int at, bool held, int valid = 0) {
        Event event = about(terms(process, hold), Op::probe, Stage::note, at);
        event.held = held;
        tell_validity(event, valid);
        events_.push_back(event);
        return *this;
    }
    Story& loses(int process, std::uint64_t hold, int at) {
        events_.push_back(about(terms(process, hold), Op::lost, Stage::note, at));
        return *this;
    }
    /// A call that waits until `limit`, 0: for ever; `to` 0: it never comes back.
    Story& waits(int process, int from, int to, int limit, const std::string& lock = "a") {
        Event event = about({.process = process, .hold = ++waits_, .lock = lock}, Op::acquire,
                            Stage::invoke, from);
        event.call = ++calls_;
        if (limit != 0) event.limit = ms(limit);
        events_.push_back(event);
        if (to == 0) return *this;
        event.at = ms(to);
        event.stage = Stage::fail;
        event.outcome = "timed_out";
        event.limit.reset();
        events_.push_back(event);
        return *this;
    }
    /// The last call failed for another reason.
    Story& failed(std::string outcome) {
        events_.back().outcome = std::move(outcome);
        return *this;
    }
    /// A nested call without limit that should have ended by `limit`, with its outer hold, and took the lock anew.
    Story& waits_anew(int process, int from, int to, int limit) {
        waits(process, from, to, limit);
        events_.back().counts["anew"] = 1;
        return *this;
    }
    /// The last call completes once more.
    Story& completes_again(int at) {
        Event event = events_.back();
        event.at = ms(at);
        events_.push_back(event);
        return *this;
    }
    /// The last completion was not as it should be: "inside", "elsewhere", "over".
    Story& completed(const char* how) {
        events_.back().counts[how] = 1;
        return *this;
    }
    /// The end of a process's client.
    Story& closes(int process, int from, int to, int limit) {
        Event event =
            about({.process = process, .hold = 0, .lock = ""}, Op::close, Stage::invoke, from);
        event.call = ++calls_;
        event.limit = ms(limit);
        events_.push_back(event);
        event.at = ms(to);
        event.stage = Stage::ok;
        event.limit.reset();
        events_.push_back(event);
        return *this;
    }
    /// Somebody looks from now on whether `lost()` fires.
    Story& asks(int process, std::uint64_t hold, int at) {
        Event event = about(terms(process, hold), Op::lost, Stage::note, at);
        event.outcome = "asked";
        events_.push_back(event);
        return *this;
    }
    /// The last calls, acquisitions or releases, are those of a watchdog's, with such a lease.
    Story& watched(int events, int lease) {
        for (auto event = events_.end() - events; event != events_.end(); ++event) {
            event->counts = {{"watched", 1}, {"lease_ms", lease}};
        }
        return *this;
    }
    Story& fault(const std::string& name, int from, int to, int target = 0) {
        Event event;
        event.at = ms(from);
        event.op = Op::fault;
        event.stage = Stage::invoke;
        event.outcome = name;
        event.counts["target"] = target;
        event.call = ++calls_;
        events_.push_back(event);
        event.at = ms(to);
        event.stage = Stage::ok;
        events_.push_back(event);
        return *this;
    }
    Story& fault_at(const std::string& name, int at, int target) {
        return fault(name, at, at, target);
    }
    Story& writes(int order, int read, std::uint64_t fence = 0,
                  const std::string& verdict = "accepted", int process = 1) {
        Event event = about({.process = process}, Op::write, Stage::note, order);
        event.fence = fence;
        event.outcome = verdict;
        event.counts = {{"order", order}, {"read", read}, {"wrote", read + 1}};
        events_.push_back(event);
        return *this;
    }
    Story& snapshot(int process, const std::string& name, int at,
                    std::map<std::string, long long> counts) {
        Event event = about({.process = process}, Op::snapshot, Stage::note, at);
        event.outcome = name;
        event.counts = std::move(counts);
        events_.push_back(event);
        return *this;
    }

    [[nodiscard]] History history() const {
        History sorted = events_;
        std::ranges::stable_sort(sorted, {}, &Event::at);
        return sorted;
    }

private:
    static Time ms(int moment) { return std::chrono::milliseconds{moment}; }

    const Taken& terms(int process, std::uint64_t hold) const { return terms_.at({process, hold}); }

    static Event about(const Taken& taken, Op op, Stage stage, int at) {
        Event event;
        event.at = ms(at);
        event.op = op;
        event.stage = stage;
        event.process = taken.process;
        event.hold = taken.hold;
        event.lock = taken.lock;
        event.policy = taken.policy;
        event.counts = taken.counts;
        return event;
    }

    static void tell_validity(Event& event, int valid) {
        if (valid == 0) return;
        event.valid_until = ms(valid);
        event.valid_at_most = ms(valid + 2);
    }

    void completed(const Taken& taken, Op op, int from, int to, Stage stage, std::string outcome,
                   int valid) {
        Event event = about(taken, op, Stage::invoke, from);
        event.call = ++calls_;
        events_.push_back(event);
        event.at = ms(to);
        event.stage = stage;
        event.outcome = std::move(outcome);
        event.fence = taken.fence;
        tell_validity(event, valid);
        events_.push_back(event);
    }

    History events_;
    std::map<std::pair<int, std::uint64_t>, Taken> terms_;
    std::uint64_t calls_ = 0;
    std::uint64_t waits_ = 1'000;
};

}  // namespace redlatch::test::fault
