#pragma once

#include "../history/recorder.hpp"
#include "../lab/dice.hpp"
#include "../lab/plan.hpp"
#include "../lab/store.hpp"
#include "loss_watch.hpp"
#include "reliance.hpp"
#include "seeded_bugs.hpp"
#include <redlatch/redlatch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// A client that is there until it is ended under its users.
struct ClientDoor {
    std::shared_mutex mutex;
    std::unique_ptr<Client> client;  ///< null after its end
};

/// Locks with such keys, in their names.
constexpr const char* kind_of(KeyType type) {
    switch (type) {
        case KeyType::string: return "string";
        case KeyType::hash: return "hash";
        default: return "shared";
    }
}

/// What a client with locks of this policy gets wrong.
template <class Policy>
constexpr Mistake mistake_of = std::is_same_v<Policy, CountsFromReply>  ? Mistake::counts_from_reply
                               : std::is_same_v<Policy, Deaf>           ? Mistake::deaf
                               : std::is_same_v<Policy, CompletesTwice> ? Mistake::completes_twice
                               : std::is_same_v<Policy, DeliversLate>   ? Mistake::delivers_late
                               : std::is_same_v<Policy, PartOfSet>      ? Mistake::takes_part
                               : std::is_same_v<Policy, KeepsUntaken>   ? Mistake::keeps_untaken
                                                                        : Mistake::none;

/// Who uses locks in a client process, a thread or a coroutine: what each of them has, and how it writes down what it
/// did and was told.
class LockUser {
public:
    struct Place {
        ClientDoor* door;
        Recorder* recorder;
        LossWatch* losses;
        const ClientPlan* plan;
        std::chrono::milliseconds command_timeout;  ///< the client's
    };

    /// `stop`: its work is over; `calls_stop`: its calls that wait are, too.
    LockUser(const Place& place, std::uint64_t seed, std::stop_token stop,
             std::stop_token calls_stop)
        : door_{place.door},
          recorder_{place.recorder},
          losses_{place.losses},
          plan_{place.plan},
          command_timeout_{place.command_timeout},
          store_{place.plan->store},
          dice_{seed},
          stop_{std::move(stop)},
          calls_stop_{std::move(calls_stop)} {}
    LockUser(const LockUser&) = delete;
    LockUser& operator=(const LockUser&) = delete;

    [[nodiscard]] Dice& dice() { return dice_; }

protected:
    using milliseconds = std::chrono::milliseconds;

    ~LockUser() = default;

    /// Decides what the next request is about, and on which terms it is made. Locks of one kind have names of their
    /// own.
    [[nodiscard]] LockOptions draw_request(const char* kind, const char* policy, bool watched) {
        const Habits& habits = plan_->habits;
        const auto names = static_cast<std::size_t>(plan_->names);
        facts_ = {};
        facts_.lock = kind + (":" + std::to_string(dice_.below(names)));
        facts_.policy = policy;
        facts_.hold = recorder_->next_number();
        lease_ = draw_lease();
        wait_ = dice_.percent(habits.no_wait) ? milliseconds{0} : dice_.in(habits.wait);
        const LockOptions options = this->options(watched);
        note_terms(options, facts_.policy.find("Watchdog") != std::string::npos);
        return options;
    }

    [[nodiscard]] milliseconds draw_lease() {
        const Habits& habits = plan_->habits;
        if (dice_.percent(habits.briefly)) return dice_.in(habits.brief);
        if (dice_.percent(habits.lastingly)) return dice_.in(habits.lasting);
        return dice_.in(habits.lease);
    }

    /// What a checker has to know of the terms to tell whether the lock should have been renewed.
    void note_terms(const LockOptions& options, bool watched) {
        facts_.counts["lease_ms"] = lease_.count();
        if (watched) facts_.counts["watched"] = 1;
        if (options.max_hold != LockOptions{}.max_hold) facts_.counts["ends_itself"] = 1;
    }

    /// A lock or its like of the client's; nothing where that has been closed.
    template <class Made, class... Arguments>
    [[nodiscard]] std::optional<Made> made(const Arguments&... arguments) {
        const std::shared_lock in{door_->mutex};
        if (door_->client == nullptr) return std::nullopt;
        return std::optional<Made>{std::in_place, *door_->client, arguments...};
    }
    template <class Policy>
    [[nodiscard]] std::optional<Lock<Policy>> lock_of(const LockOptions& options) {
        return made<Lock<Policy>>(facts_.lock, options);
    }

    /// What a handle on the lock does in its own way.
    [[nodiscard]] LockOptions options(bool watched) {
        LockOptions options;
        options.lease = lease_;
        options.backoff = {milliseconds{5}, milliseconds{40}};
        if (dice_.percent(plan_->habits.polls)) options.wait_strategy = WaitStrategy::polling;
        if (dice_.percent(40)) options.release_mode = ReleaseMode::sent;
        if (watched && dice_.percent(10)) {
            options.max_hold = lease_ + milliseconds{dice_.between(0, 500)};
        }
        if (dice_.percent(10)) {
            options.lock_delay = milliseconds{dice_.between(1, longest_lock_delay.count())};
        }
        options.local_handoffs = static_cast<unsigned>(dice_.between(0, 8));
        return options;
    }

    /// Whoever asks when it is over is told at once.
    template <class View>
    void ask_late(const Reliance<View>& reliance) {
        const std::stop_token late = reliance.lost();
        if (!late.stop_possible() || late.stop_requested()) return;
        Event event = facts_;
        event.op = Op::lost;
        event.stage = Stage::note;
        event.outcome = "not fired";
        recorder_->write(event);
    }

    /// Reads, waits, and writes.
    template <class View>
    void update_resource(const Reliance<View>& reliance) {
        const Store::Write write = read_resource();
        rest(milliseconds{dice_.between(0, 3)});
        write_resource(write, reliance);
    }

    [[nodiscard]] Store::Write read_resource() {
        Store::Write write{.lock = facts_.lock, .process = 0, .hold = facts_.hold};
        write.read = store_.read(facts_.lock);
        return write;
    }

    /// Where the validity allows it, and the lock.
    template <class View>
    void write_resource(Store::Write write, const Reliance<View>& reliance) {
        if (reads() || facts_.counts.contains("permits")) return;
        const std::shared_lock in{door_->mutex};  // a write is over before the client is closed
        const auto time = store_time();
        const milliseconds left = reliance.remaining();
        const bool fenced = facts_.fence > 0;
        if (left <= milliseconds{0} && !fenced) return;
        if (!(fenced && plan_->only_fences)) write.not_after = time + left;
        write.process = static_cast<int>(::getpid());
        write.fence = facts_.fence;
        write.at = now();
        store_.write(write);
    }

    [[nodiscard]] bool reads() const { return facts_.counts.contains("reads"); }

    template <class View>
    void probe(const Reliance<View>& reliance) {
        Event event = facts_;
        event.op = Op::probe;
        event.stage = Stage::note;
        event.at = now();
        event.held = reliance.held();
        event.outcome = enumerator_name(reliance.state());
        tell_validity(event, event.at, reliance);
        recorder_->write(event);
    }

    /// Some callbacks take their time: that must harm nobody.
    void notice_loss(const Event& facts) {
        Event event = facts;
        event.op = Op::lost;
        event.stage = Stage::note;
        event.at = now();
        recorder_->write(event);
        if (event.hold % 8 == 0) rest(milliseconds{60});
    }

    // ---- What is written down

    Event begin(Op op, std::optional<Time> limit) {
        Event event = facts_;
        event.op = op;
        event.stage = Stage::invoke;
        event.call = recorder_->next_number();
        event.limit = limit;
        event.at = now();
        recorder_->write(event);
        event.limit.reset();
        return event;
    }

    void fail(Event& call, const Error& error) {
        call.stage = Stage::fail;
        call.outcome = enumerator_name(error.code);
        call.detail = error.describe();
        recorder_->write(call);
    }

    void complete(Event& call, std::string outcome) {
        call.stage = Stage::ok;
        call.outcome = std::move(outcome);
        recorder_->write(call);
    }

    template <class View>
    void succeed(Event& call, const Reliance<View>& reliance) {
        call.stage = Stage::ok;
        call.outcome = "ok";
        call.fence = reliance.fence();
        tell_validity(call, now(), reliance);
        recorder_->write(call);
    }

    template <class View>
    static void tell_validity(Event& event, Time before, const Reliance<View>& reliance) {
        const milliseconds left = reliance.remaining();
        if (left <= milliseconds{0} && !reliance.held()) return;  // zero: less than one is left
        event.valid_until = before + left;
        event.valid_at_most = now() + left + milliseconds{1};
        // While it waited for others of its set it was renewed, and the last answer to that may come yet.
        if (event.op == Op::acquire && count_of(event, "set") > 0) {
            event.valid_at_most = now() + milliseconds{count_of(event, "lease_ms")};
        }
    }

    /// A call that waits is back 50 ms after its wait; one that doesn't after a command's time.
    [[nodiscard]] Time try_limit() const { return try_limit(wait_); }
    [[nodiscard]] Time try_limit(milliseconds wait) const {
        return now() + std::max(wait + milliseconds{50}, command_timeout_);
    }

    static void rest(Time time) {
        if (time > Time{0}) std::this_thread::sleep_for(time);
    }

    static constexpr milliseconds longest_notice{2500};
    static constexpr milliseconds nest_wait{200};

    ClientDoor* door_;
    Recorder* recorder_;
    LossWatch* losses_;
    const ClientPlan* plan_;
    milliseconds command_timeout_;
    Store store_;
    Dice dice_;
    std::stop_token stop_;
    std::stop_token calls_stop_;
    Event facts_;  // of the hold that it is about
    milliseconds lease_{0};
    milliseconds wait_{0};
};

}  // namespace redlatch::test::fault
