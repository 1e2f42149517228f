#pragma once

#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renew.hpp>
#include <redlatch/service/hold.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/schedule.hpp>
#include <redlatch/service/thread.hpp>
#include <redlatch/topology/topology.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Keeps watched holds alive: one thread for all of a client's, and one connection per server, on
/// which all renewals that are due go out together. It also releases tokens whose acquisition may
/// still come to life at the server ("burying" them). Thread-safe.
class Renewal {
public:
    /// What the thread tells; called with no mutex held.
    struct Events {
        std::function<void(const std::shared_ptr<Hold>&)> lost;
        std::function<void(const Hold&)> renewed;
        std::function<void(const Error&)> failed;
    };

    Renewal(Topology& topology, Events events) : topology_(&topology), events_(std::move(events)) {}
    Renewal(const Renewal&) = delete;
    Renewal& operator=(const Renewal&) = delete;
    ~Renewal() { close(); }

    /// Announces a hold before it is asked for, so that it cannot be had and then not renewed.
    Result<void> enlist(const Hold& hold) {
        const std::lock_guard lock{mutex_};
        if (auto started = start(); !started) return started;
        enlisted_.insert(&hold);
        return {};
    }

    /// From now on renews a hold that was confirmed by a command sent at `sent`.
    void arm(std::shared_ptr<Hold> hold, TimePoint sent) {
        const std::lock_guard lock{mutex_};
        if (!enlisted_.contains(hold.get())) return;
        const TimePoint due = renewal_due(sent, hold->terms().lease);
        put(due, {Job::Kind::renew, std::move(hold)});
    }

    /// Ends the renewal of a hold, before its release is sent. A renewal under way does no harm: the
    /// script finds the token gone, and the answer finds the hold no longer held.
    void dismiss(const Hold& hold) {
        const std::lock_guard lock{mutex_};
        enlisted_.erase(&hold);
        renewals_.remove(&hold);
    }

    /// Releases a dead token in the background, after each of `pauses`: a command that got no
    /// answer may be carried out late, even after a release that was sent on another connection.
    /// Also the way to leave the queue. False where the client has closed.
    bool bury(std::shared_ptr<Hold> hold, std::vector<Clock::duration> pauses) {
        const std::lock_guard lock{mutex_};
        if (!start()) return false;
        // A key that comes to life late is gone by itself after this.
        const auto ttl = std::chrono::milliseconds{hold->server_ttl(hold->terms().lease)};
        const TimePoint give_up_at = saturating_add(Clock::now(), 2 * Clock::duration{ttl});
        bury_next({Job::Kind::bury, std::move(hold), std::move(pauses), give_up_at});
        return true;
    }

    /// Sends what there is to bury now, whether due or not, and ends the thread. Takes at most
    /// twice the time for one command. Nothing is renewed any more.
    void close() {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
        }
        wake_.notify_one();
        if (thread_.joinable()) thread_.join();
    }

private:
    struct Job {
        enum class Kind { renew, bury };
        Kind kind;
        std::shared_ptr<Hold> hold;
        std::vector<Clock::duration> pauses{};  // where buried: those after the next release
        TimePoint give_up_at{};                 // where buried
    };

    /// A job with the command for it and what came of that.
    struct Errand {
        Job job;
        Lease lease;
        RenewalAnswer answer = RenewalAnswer::unknown;
        bool answered = false;  // whatever the answer was
        bool noscript = false;
        bool elsewhere = false;  // another server has to be asked
        TimePoint sent{};

        Call call() const {
            return job.kind == Job::Kind::bury ? release_call(*job.hold)
                                               : extend_call(*job.hold, lease);
        }
    };
    using Batch = std::vector<Errand>;

    /// Renewals that are due this soon go out with those that are due now.
    static constexpr std::chrono::milliseconds batch_window{10};
    static constexpr std::size_t largest_batch = 1000;
    static constexpr std::chrono::milliseconds bury_retry_pause{500};
    static constexpr std::chrono::milliseconds time_to_look_around{200};

    /// With the mutex held.
    Result<void> start() {
        if (running_) return {};
        if (closing_)
            return Unexpected{Error{Errc::cancelled, {}, {}, "the client was closed", {}}};
        try {
            thread_ = start_service_thread([this] { run(); });
            running_ = true;
        } catch (const std::system_error& error) {
            return Unexpected{Error{Errc::unavailable,
                                    {},
                                    {},
                                    std::string{"cannot start the renewal thread: "} + error.what(),
                                    {}}};
        }
        return {};
    }

    /// With the mutex held.
    void put(TimePoint due, Job job) {
        const Hold* const hold = job.hold.get();
        Schedule<Job>& jobs = job.kind == Job::Kind::bury ? burials_ : renewals_;
        jobs.put(hold, due, std::move(job));
        // Most holds are over before the thread would have to look at them: it is left asleep.
        if (due - batch_window < wakes_at_) wake_.notify_one();
    }

    /// With the mutex held.
    void bury_next(Job job) {
        const TimePoint due = saturating_add(Clock::now(), job.pauses.front());
        job.pauses.erase(job.pauses.begin());
        put(due, std::move(job));
    }

    void run() {
        std::unique_lock lock{mutex_};
        while (!closing_) {
            Batch batch = take_batch(saturating_add(Clock::now(), batch_window));
            if (batch.empty()) {
                sleep(lock);
                continue;
            }
            perform(lock, std::move(batch));
        }
        for (;;) {
            Batch rest = take_batch(TimePoint::max());
            if (rest.empty()) break;
            std::erase_if(rest, [](const Errand& e) { return e.job.kind == Job::Kind::renew; });
            for (Errand& errand : rest) errand.job.pauses.clear();
            perform(lock, std::move(rest));
        }
        running_ = false;
    }

    void sleep(std::unique_lock<std::mutex>& lock) {
        const auto idle = [this] { return renewals_.empty() && burials_.empty(); };
        if (idle()) {
            wakes_at_ = TimePoint::max();
            wake_.wait(lock, [this, idle] { return closing_ || !idle(); });
            return;
        }
        const TimePoint now = Clock::now();
        const TimePoint due = std::min(renewals_.next_due(), burials_.next_due());
        const Clock::duration left = saturating_sub(due, now) - batch_window;
        const Clock::duration nap =
            std::clamp<Clock::duration>(left, std::chrono::milliseconds{1}, longest_service_sleep);
        wakes_at_ = now + nap;
        wake_.wait_for(lock, nap);
    }

    Batch take_batch(TimePoint due) {
        Batch batch;
        const TimePoint now = Clock::now();
        while (batch.size() < largest_batch) {
            auto job = renewals_.take_due(due);
            if (!job) job = burials_.take_due(due);
            if (!job) break;
            const Lease lease = renewal_lease(job->hold->terms().lease, now, job->hold->last_end());
            const bool over = job->kind == Job::Kind::renew &&
                              (!job->hold->valid(now) || lease <= Lease{Clock::duration::zero()});
            if (!over) batch.push_back({.job = std::move(*job), .lease = lease});
        }
        return batch;
    }

    /// With several servers, none that does not answer may hold up the others' renewals for long. With
    /// the mutex held.
    Clock::duration patience_with_each(std::size_t servers, const Batch& batch) const {
        if (servers < 2 && links_.size() < 2) return Clock::duration::max();
        Lease shortest = Lease::max();
        const auto look = [&shortest](const Job& job) {
            shortest = std::min(shortest, job.hold->terms().lease);
        };
        renewals_.for_each(look);
        for (const Errand& errand : batch) look(errand.job);
        return renewal_patience(shortest, Lease::max().duration()) / static_cast<int>(servers);
    }

    void perform(std::unique_lock<std::mutex>& lock, Batch batch) {
        std::map<Node*, std::vector<Errand*>> by_node;
        for (Errand& errand : batch) {
            by_node[&topology_->master_of(errand.job.hold->key())].push_back(&errand);
        }
        const Clock::duration patience = patience_with_each(by_node.size(), batch);
        lock.unlock();
        for (auto& [node, errands] : by_node) exchange(*node, errands, patience);
        for (Errand& errand : batch) {
            if (errand.elsewhere) redirect(errand);
            settle(errand);
        }
        lock.lock();
        for (Errand& errand : batch) put_back(std::move(errand));
    }

    /// What an answered renewal means for its hold.
    void settle(const Errand& errand) {
        if (errand.job.kind == Job::Kind::bury) return;
        Hold& hold = *errand.job.hold;
        switch (errand.answer) {
            case RenewalAnswer::renewed:
                if (hold.confirm_in_time(errand.sent, errand.lease)) {
                    events_.renewed(hold);
                    break;
                }
                events_.lost(errand.job.hold);
                if (hold.in(Phase::lost)) bury(errand.job.hold, {Clock::duration::zero()});
                break;
            case RenewalAnswer::lost: events_.lost(errand.job.hold); break;
            case RenewalAnswer::unknown: hold.doubt(); break;
        }
    }

    /// With the mutex held.
    void put_back(Errand errand) {
        Job& job = errand.job;
        if (job.kind == Job::Kind::bury) {
            if (!errand.answered && Clock::now() < job.give_up_at && !closing_) {
                job.pauses.insert(job.pauses.begin(), bury_retry_pause);
            }
            if (!job.pauses.empty()) bury_next(std::move(job));
            return;
        }
        if (!enlisted_.contains(job.hold.get()) || errand.answer == RenewalAnswer::lost) return;
        const Lease lease = job.hold->terms().lease;
        const TimePoint due = errand.answer == RenewalAnswer::renewed
                                  ? renewal_due(errand.sent, lease)
                                  : renewal_retry_due(Clock::now(), lease);
        put(due, std::move(job));
    }

    /// Sends all errands of one server and reads the answers. A connection that died since the last
    /// batch is replaced once, without a word; scripts that the server forgot are sent whole.
    void exchange(Node& node, const std::vector<Errand*>& errands, Clock::duration patience) {
        std::optional<Connection>& link = links_[&node];
        if (link && !node.is_current(*link)) link.reset();
        for (const Errand* errand : errands) {
            const Lease lease = errand->job.hold->terms().lease;
            patience = std::min(patience, renewal_patience(lease, node.command_timeout()));
        }
        const Limit limit = Limit::in(patience);
        const bool kept = link.has_value();
        auto fault = send_all(node, link, errands, Wiring::Form::by_sha, limit);
        if (fault && fault->stale && kept) {
            fault = send_all(node, link, errands, Wiring::Form::by_sha, limit);
        }
        if (!fault) {
            std::vector<Errand*> unknown_script;
            std::copy_if(errands.begin(), errands.end(), std::back_inserter(unknown_script),
                         [](const Errand* errand) { return errand->noscript; });
            fault = send_all(node, link, unknown_script, Wiring::Form::whole, limit);
        }
        if (!fault) return;
        events_.failed(fault->error);
        topology_->failed(node, *fault, Limit::in(time_to_look_around));
    }

    /// Another server has become the master: this one is asked alone.
    void redirect(Errand& errand) {
        Node& node = topology_->master_of(errand.job.hold->key());
        const Limit limit =
            Limit::in(renewal_patience(errand.job.hold->terms().lease, node.command_timeout()));
        errand.sent = Clock::now();
        const Call call = errand.call();
        read_answer(errand, node.run(call, limit));
    }

    /// One pipeline: the fault where the connection broke in it.
    std::optional<Fault> send_all(Node& node, std::optional<Connection>& link,
                                  const std::vector<Errand*>& errands, Wiring::Form form,
                                  const Limit& limit) {
        if (errands.empty()) return std::nullopt;
        if (!link) {
            auto connection = node.connect(limit);
            if (!connection) return std::move(connection).error();
            link = *std::move(connection);
        }
        std::string bytes;
        Wiring wiring = node.wiring_for(*link);
        wiring.form = form;
        for (const Errand* errand : errands) bytes += errand->call().wire(wiring);
        const TimePoint sent = Clock::now();
        auto broken = [&link](Fault fault) {
            link.reset();
            return fault;
        };
        if (auto done = link->send(bytes, limit); !done) return broken(std::move(done).error());
        for (Errand* errand : errands) {
            auto reply = link->receive(limit);
            if (!reply && !link->alive()) return broken(std::move(reply).error());
            if (reply && !reply->view().integer()) return broken(unexpected_reply());
            errand->sent = sent;
            if (!reply) node.check_role(*link, reply.error());
            errand->elsewhere = !reply && redirection_of(reply.error());
            if (errand->elsewhere) {
                topology_->failed(node, reply.error(), limit);
            } else {
                read_answer(*errand, reply);
            }
        }
        return std::nullopt;
    }

    void read_answer(Errand& errand, const Expected<Reply, Fault>& reply) {
        if (reply) {
            const auto done = reply->view().integer();
            errand.answered = true;
            if (done == 1) errand.answer = RenewalAnswer::renewed;
            if (done == 0) errand.answer = RenewalAnswer::lost;
            return;
        }
        const Fault& fault = reply.error();
        errand.noscript = is_noscript(fault) && !errand.noscript;
        if (errand.noscript) return;
        errand.answered = !fault.transient;
        // Somebody's data where our key was: it is gone. Anything else may yet pass.
        if (fault.error.code == Errc::wrong_type) errand.answer = RenewalAnswer::lost;
        Error error = fault.error;
        error.key = errand.job.hold->key();
        events_.failed(error);
    }

    Topology* topology_;
    const Events events_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::unordered_set<const Hold*> enlisted_;
    Schedule<Job> renewals_;
    Schedule<Job> burials_;  // apart: one of a hold that is lost has to outlive its dismissal
    TimePoint wakes_at_ = TimePoint::max();  // the thread, if nobody wakes it
    bool running_ = false;                   // the thread takes what is put into the schedule
    bool closing_ = false;
    std::map<Node*, std::optional<Connection>> links_;  // of the thread
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
