#pragma once

#include "adapters.hpp"
#include <redlatch/core/set_acquisition.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// Takes several locks, or none: carries out what `SetAcquisition` says, as `AcquiringSet` does.
class TakingSet {
public:
    using Machine = detail::SetAcquisition;
    /// With nothing where none is held.
    using Done = std::function<void(const std::vector<Got>&)>;

    TakingSet(Client& client, const AcquisitionPlan& wanted, LockOwner owner, LockOwner caller,
              Done done)
        : client_(&client),
          wanted_(&wanted),
          owner_(owner),
          caller_(caller),
          machine_({.members = wanted.set.size(),
                    .wait = wanted.wait,
                    .lease = wanted.lease,
                    .command_timeout = client.command_timeout()},
                   client.now()),
          done_(std::move(done)) {}

    void start() {
        if (wanted_->cancelled) {
            client_->host().soon(*wanted_->cancelled, [this] {
                stop_ = true;
                cancel();
            });
        }
        act("begin", machine_.begin(now()));
    }

private:
    TimePoint now() const { return client_->now(); }
    bool stopped() const { return stop_ || client_->closed(); }
    bool is_asynchronous() const { return caller_ == LockOwner{}; }

    void act(const char* event, Machine::Action action) {
        coverage().took(event, action.index());
        visit([this](auto& wanted) { carry_out(wanted); }, action);
    }

    /// The wait for one of them ends.
    void cancel() {
        if (current_ != nullptr) current_->cancel();
    }

    void carry_out(const Machine::Take& take) {
        if (take.member > 0) watch_over_taken();
        AcquisitionPlan& member = plans_.emplace_back(*wanted_);
        member.lock = wanted_->set[take.member];
        member.wait = take.wait;
        member.answer_by = take.answer_by;
        member.cancelled.reset();
        takings_.push_back(std::make_unique<Acquiring>(*client_, member, owner_, caller_, nullptr,
                                                       [this](const Result<Got>& got) {
                                                           current_ = nullptr;
                                                           ended(got);
                                                       }));
        current_ = takings_.back().get();
        current_->start();
        if (stop_ || !all_held()) cancel();
    }

    void ended(const Result<Got>& got) {
        if (!got) {
            const char* const event = all_held() ? "refused" : "refused: one is lost";
            if (got.error().code == Errc::cancelled && all_held() && !stopped()) {
                client_->world().checker->fail("a set is cancelled, and nobody has stopped it");
            }
            return act(event, machine_.refused(got.error(), all_held(), stopped(), now()));
        }
        taken_.push_back(*got);
        ever_taken_.push_back(got->hold);
        act(all_held() ? "taken" : "taken: one is lost",
            machine_.taken(all_held(), oldest(), now()));
    }

    void carry_out(const Machine::Refresh& refresh) {
        since_ = refresh.since;
        refresh_by_ = std::min(refresh.answer_by, now() + client_->command_timeout());
        refresh_from(0);
    }

    void refresh_from(std::size_t member) {
        while (member < taken_.size() && taken_[member].hold->refreshed_at() >= since_) ++member;
        if (member == taken_.size()) {
            return act(all_held() ? "refreshed" : "refreshed: one is lost",
                       machine_.refreshed(all_held(), stopped(), now()));
        }
        const HoldPtr& hold = taken_[member].hold;
        refreshings_.push_back(
            std::make_unique<Extending>(*client_, hold, hold->terms().lease, refresh_by_,
                                        [this, next = member + 1] { refresh_from(next); }));
        refreshings_.back()->start();
    }

    /// A thread waits for one after the other; an operation for none, and what it posts is a release like others.
    void carry_out(const Machine::GiveBack& back) {
        end_watch();
        give_back_by_ = std::min(back.answer_by, now() + client_->command_timeout());
        give_back_next();
    }

    void give_back_next() {
        while (!taken_.empty()) {
            const Got last = taken_.back();
            taken_.pop_back();
            const auto ending = client_->end_at_table(
                [&last](LockTable& table) { return table.end_acquisition(*last.hold, last.id); });
            const bool waits = !is_asynchronous() && now() < give_back_by_ && !stopped();
            auto& releasing = releasings_.emplace_back(std::make_unique<Releasing>(
                *client_, waits ? Releasing::Done{[this] { give_back_next(); }} : [] {}));
            if (waits) return releasing->start(ending, ReleaseMode::confirmed, give_back_by_);
            if (is_asynchronous()) {
                releasing->start(ending, ReleaseMode::confirmed);
            } else {
                releasing->abandon(ending);
            }
        }
        act("given back", machine_.given_back(now()));
    }

    void carry_out(const Machine::Done&) {
        end_watch();
        for (const Got& got : taken_) {
            client_->world().checker->delivers(*got.hold, Client::lock_of(*got.hold));
            got.hold->delivered();
            if (!got.hold->terms().traits.watched) continue;
            client_->world().checker->watches(*got.hold, got.id);
            renew(*got.hold, got.hold);
        }
        end(taken_);
    }

    void carry_out(const Machine::Failed&) {
        for (const HoldPtr& hold : ever_taken_) {
            if (hold->in(Phase::held))
                client_->world().checker->fail("a set keeps one of its locks");
            if (gives_back_in_time()) {
                client_->world().checker->was_given_back(*hold, Client::lock_of(*hold));
            }
        }
        end({});
    }

    /// Whether its releases are to be waited for, and had the time for that.
    bool gives_back_in_time() const {
        const milliseconds more = wanted_->wait.is_none() ? client_->command_timeout() : 0ms;
        return !is_asynchronous() && !stopped() && now() < deadline_ + more;
    }

    void end(const std::vector<Got>& all) {
        const milliseconds patience = wanted_->wait.is_none() ? client_->command_timeout() : 0ms;
        client_->world().checker->returned(client_->number(), begun_,
                                           detail::saturating_add(deadline_, patience), "a set");
        std::exchange(done_, nullptr)(all);
    }

    /// A loss of one of them ends the wait; until then they are renewed.
    void watch_over_taken() {
        for (; watched_ < taken_.size(); ++watched_) {
            const auto& [hold, id] = taken_[watched_];
            losses_.push_back(std::make_unique<std::stop_callback<std::function<void()>>>(
                hold->lost_token(), [this, round = round_] {
                    client_->host().soon(client_->start_up(), [this, round] {
                        if (round == round_) cancel();
                    });
                }));
            client_->watch_clock(hold);
            if (hold->terms().traits.watched) continue;
            if (!hold->is_outermost(id)) continue;
            enlisted_.push_back(taken_[watched_]);
            hold->renewed_by_watchdog = true;
            client_->world().checker->watches(*hold, id);
            client_->renewal().machine().enlist(*hold);
            renew(*hold, hold);
        }
    }
    void renew(const Hold& since, const HoldPtr& hold) {
        client_->renewal().machine().arm(hold, since.refreshed_at());
        client_->renewal().wake_in_time();
    }
    void end_watch() {
        for (const Got& got : std::exchange(enlisted_, {})) {
            client_->renewal().machine().dismiss_one(*got.hold, got.id);
        }
        watched_ = 0;
        losses_.clear();
        ++round_;
    }

    bool all_held() const {
        return std::ranges::all_of(taken_,
                                   [this](const Got& got) { return got.hold->valid(now()); });
    }
    TimePoint oldest() const {
        TimePoint first = TimePoint::max();
        for (const Got& got : taken_) first = std::min(first, got.hold->refreshed_at());
        return first;
    }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"SetAcquisition",
                                         {"Take", "Refresh", "GiveBack", "Done", "Failed"}};
        static_assert(Machine::Action::size == 5);
        return machine;
    }

    Client* client_;
    const AcquisitionPlan* wanted_;
    LockOwner owner_;
    LockOwner caller_;
    const Moment begun_ = client_->world().timeline->now();
    const TimePoint deadline_ = detail::Attempts::deadline(wanted_->wait, client_->now());
    Machine machine_;
    Done done_;
    bool stop_ = false;
    TimePoint since_{};
    TimePoint refresh_by_{};
    TimePoint give_back_by_{};
    std::deque<AcquisitionPlan> plans_;  // each acquisition refers to its own
    Acquiring* current_ = nullptr;
    std::vector<std::unique_ptr<Acquiring>> takings_;
    std::vector<Got> taken_;
    std::vector<HoldPtr> ever_taken_;
    std::size_t watched_ = 0;    // of those that were taken
    std::vector<Got> enlisted_;  // that nobody else wants to be renewed
    std::vector<std::unique_ptr<std::stop_callback<std::function<void()>>>> losses_;
    int round_ = 0;  // a loss ends no wait of a later one
    std::vector<std::unique_ptr<Extending>> refreshings_;
    std::vector<std::unique_ptr<Releasing>> releasings_;
};

}  // namespace redlatch::test::simulator
