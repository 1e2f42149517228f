#pragma once

#include <redlatch/clock.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/release_answer.hpp>
#include <redlatch/core/renewal_try.hpp>
#include <redlatch/core/validity.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// The tokens that nobody uses any more: when each is released, and when once more.
class CleanUpQueue {
public:
    /// `late_window`: how long after it was given up a command may still run.
    CleanUpQueue(bool several_masters, Clock::duration late_window)
        : several_masters_(several_masters), late_window_(late_window) {}
    CleanUpQueue(const CleanUpQueue&) = delete;
    CleanUpQueue& operator=(const CleanUpQueue&) = delete;

    void add(std::shared_ptr<Hold> hold, CleanUp what, TimePoint now) {
        if (!what.needed()) return;
        // A key that a late command makes is gone by itself after this. It may have been extended before.
        const auto gone_after = saturating_cast<Clock::duration>(hold->longest_ttl());
        const TimePoint last_end = std::max(saturating_add(now, gone_after), hold->valid_until());
        const TimePoint give_up_at = saturating_add(last_end, gone_after);
        const TimePoint due = what.at_once || closing_ ? now : later(now, *hold, what);
        ++tokens_.try_emplace(hold->token().bytes, Cleaned{hold}).first->second.jobs;
        put(due, {std::move(hold), what.at_once && what.once_more, give_up_at, {}});
    }

    /// The hold of that token if its clean-up is to come or under way; else null.
    std::shared_ptr<Hold> find(std::string_view token) const {
        const auto found = tokens_.find(token);
        return found == tokens_.end() ? nullptr : found->second.hold;
    }

    /// From now on all are due, and each is tried once; once more where that gets no answer, and more often
    /// where a master has refused it for now.
    void close(TimePoint now) {
        closing_ = true;
        for (auto all = std::exchange(waiting_, {}); !all.empty();) {
            auto next = all.extract(all.begin());
            next.key() = std::min(next.key(), now);
            waiting_.insert(std::move(next));
        }
    }

    /// Whether none is to come or under way.
    bool is_empty() const noexcept { return waiting_.empty() && under_way_ == 0; }

    TimePoint next_due() const noexcept {
        return waiting_.empty() ? TimePoint::max() : waiting_.begin()->first;
    }

    /// Adds to `due` those that have to begin now, as long as that has fewer than `most`.
    void take_due(TimePoint now, std::size_t most, std::vector<std::shared_ptr<Try>>& due) {
        while (due.size() < most && !waiting_.empty() && waiting_.begin()->first <= now) {
            auto next = std::move(waiting_.extract(waiting_.begin()).mapped());
            if (closing_) next->make_last();
            due.push_back(std::move(next));
            ++under_way_;
        }
    }

private:
    struct Job {
        std::shared_ptr<Hold> hold;
        bool once_more;
        TimePoint give_up_at;
        std::vector<MasterIndex>
            left;  // of several masters, those that have not answered; else empty
        bool repeated_at_close = false;  // it got no answer while the client was closing
    };

    /// A token that is cleaned up.
    struct Cleaned {
        std::shared_ptr<Hold> hold;
        std::size_t jobs = 0;  // to come or under way
    };

    class CleanUpTry final : public Try {
    public:
        CleanUpTry(CleanUpQueue& queue, Job job)
            : Try(job.hold), queue_(&queue), job_(std::move(job)) {}

        /// The client is closing: none follows where it is answered.
        void make_last() noexcept { job_.once_more = false; }

    private:
        bool prepare(TimePoint) override { return true; }

        /// A token is released only where somebody has asked with it.
        std::vector<MasterIndex> choose(std::vector<MasterIndex> masters) override {
            if (!job_.left.empty()) return job_.left;
            if (masters.size() == 1) return masters;
            std::vector<MasterIndex> some;
            for (std::size_t i = 0; i < masters.size(); ++i) {
                if (hold_->open_tries.may_be_at(i)) some.push_back(masters[i]);
            }
            return some;
        }

        bool is_decided() const override { return votes_.open() == 0; }

        bool goes_on(std::int64_t answer) override {
            if (has_more_to_serve(answer)) more_to_serve_ = true;
            return has_more_to_serve(answer);
        }

        void follow(Renewal&, TimePoint now) override {
            --queue_->under_way_;
            Job next = job_;
            const bool closing = queue_->closing_;
            const bool again = !silent_.empty() && now < job_.give_up_at;
            const bool goes_on = more_to_serve_ || refused_for_now_;
            if (again && (goes_on || !closing || !job_.repeated_at_close)) {
                if (closing && !goes_on) next.repeated_at_close = true;
                if (queue_->several_masters_) next.left = silent_;
                return queue_->put(saturating_add(now, pause()), std::move(next));
            }
            if (!job_.once_more) return queue_->end(*hold_);
            next.once_more = false;
            next.left.clear();
            const auto wait = closing ? Clock::duration::zero() : queue_->late_window_;
            queue_->put(saturating_add(now, wait), std::move(next));
        }

        Clock::duration pause() const {
            if (more_to_serve_) return Clock::duration::zero();
            if (queue_->closing_) {
                return refused_for_now_ ? closing_retry_pause : Clock::duration::zero();
            }
            // Of several masters, one that is out of reach is connected to by another thread.
            return queue_->several_masters_ ? quick_retry_pause : usual_retry_pause;
        }

        CleanUpQueue* const queue_;
        Job job_;
        bool more_to_serve_ = false;
    };

    static constexpr std::chrono::milliseconds usual_retry_pause{500};
    static constexpr std::chrono::milliseconds quick_retry_pause{100};
    static constexpr std::chrono::milliseconds closing_retry_pause{50};

    /// When a token is released that is not released at once.
    TimePoint later(TimePoint now, const Hold& hold, CleanUp what) const {
        const TimePoint none_runs = saturating_add(now, late_window_);
        if (!what.is_delayed) return none_runs;
        if (!hold.left_until) {
            return std::max(none_runs,
                            delay_over(now, hold.terms().lock_delay, hold.terms().drift));
        }
        const Unanswered unanswered = hold.unanswered();
        const bool may_run = unanswered.acquire || unanswered.extend;
        return may_run ? std::max(none_runs, *hold.left_until) : *hold.left_until;
    }

    void put(TimePoint due, Job job) {
        waiting_.emplace(due, std::make_shared<CleanUpTry>(*this, std::move(job)));
    }

    void end(const Hold& hold) {
        const auto token = tokens_.find(hold.token().bytes);
        if (--token->second.jobs == 0) tokens_.erase(token);
    }

    const bool several_masters_;
    const Clock::duration late_window_;
    std::multimap<TimePoint, std::shared_ptr<CleanUpTry>> waiting_;  // by when they are due
    std::unordered_map<std::string_view, Cleaned> tokens_;           // the hold has the bytes
    std::size_t under_way_ = 0;
    bool closing_ = false;
};

}  // namespace redlatch::inline v0::detail
