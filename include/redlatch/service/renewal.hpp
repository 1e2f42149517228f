#pragma once

#include <redlatch/core/quorum.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renew.hpp>
#include <redlatch/net/thread.hpp>
#include <redlatch/service/hold.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/schedule.hpp>
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
        // Where buried:
        std::vector<Clock::duration> pauses{};  // those after the next release
        TimePoint give_up_at{};
        std::vector<Node*> left{};  // of several masters, those that have not answered; else empty
    };

    /// A job with the command for it and what came of that.
    struct Errand {
        Job job;
        Lease lease;
        Ballot votes{1};
        std::vector<Node*> silent{};        // who has to be asked again
        bool elsewhere = false;             // another server has to be asked
        bool settled = false;               // what the answers mean has been said
        TimePoint sent = TimePoint::max();  // for the first time

        RenewalAnswer answer() const {
            switch (votes.on_keeping()) {
                case Verdict::yes: return RenewalAnswer::renewed;
                case Verdict::no: return RenewalAnswer::lost;
                case Verdict::open:
                case Verdict::unknown: break;
            }
            return RenewalAnswer::unknown;
        }

        Call call() const {
            return job.kind == Job::Kind::bury ? release_call(*job.hold)
                                               : extend_call(*job.hold, lease);
        }
    };
    using Batch = std::vector<Errand>;

    /// The errands of one server, in the order in which they go out and the answers come back.
    struct Delivery {
        Node* node;
        std::vector<Errand*> errands{};
        std::optional<Connection>* link = nullptr;
        Limit limit{};
        bool was_kept = false;  // the connection lay idle before
        std::size_t answered = 0;
        std::vector<Errand*> unknown_script{};
        std::optional<Fault> fault{};

        bool under_way() const { return !fault && answered < errands.size(); }

        /// Those that have to go out once more.
        std::vector<Errand*> rest() const {
            const bool died_idle = fault && fault->stale && was_kept;
            if (fault && !died_idle) return {};
            std::vector<Errand*> all = unknown_script;
            if (died_idle) {
                const auto unanswered = errands.begin() + static_cast<std::ptrdiff_t>(answered);
                all.insert(all.end(), unanswered, errands.end());
            }
            return all;
        }
    };

    /// Renewals that are due this soon go out with those that are due now.
    static constexpr std::chrono::milliseconds batch_window{10};
    static constexpr std::size_t largest_batch = 1000;
    static constexpr std::chrono::milliseconds bury_retry_pause{500};
    // Of several masters, one that is out of reach is connected to by another thread.
    static constexpr std::chrono::milliseconds quick_retry_pause{100};
    static constexpr std::chrono::milliseconds time_to_look_around{200};

    /// With the mutex held.
    Result<void> start() {
        if (running_) return {};
        if (closing_)
            return Unexpected{Error{Errc::cancelled, {}, {}, "the client was closed", {}}};
        thread_ = start_service_thread([this] { run(); });
        running_ = thread_.joinable();
        if (running_) return {};
        return Unexpected{
            Error{Errc::unavailable, {}, {}, "the system has no thread for the renewal", {}}};
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

    void perform(std::unique_lock<std::mutex>& lock, Batch batch) {
        std::map<Node*, Delivery> by_node;
        for (Errand& errand : batch) {
            const std::vector<Node*> nodes = nodes_for(errand.job);
            errand.votes = Ballot{nodes.size()};
            for (Node* const node : nodes) {
                by_node.try_emplace(node, Delivery{node}).first->second.errands.push_back(&errand);
            }
        }
        const Clock::duration patience = patience_with(by_node.size(), batch);
        lock.unlock();
        deliver(by_node, patience);
        for (Errand& errand : batch) {
            if (errand.elsewhere) redirect(errand);
            if (!errand.settled) settle(errand);
        }
        lock.lock();
        for (Errand& errand : batch) put_back(std::move(errand));
    }

    /// A token is released only where somebody has asked with it.
    std::vector<Node*> nodes_for(Job& job) {
        if (!job.left.empty()) return std::exchange(job.left, {});
        std::vector<Node*> all = topology_->masters_of(job.hold->key());
        if (job.kind == Job::Kind::renew || all.size() == 1) return all;
        std::vector<Node*> some;
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (job.hold->may_be_at(i)) some.push_back(all[i]);
        }
        return some;
    }

    /// Of several servers, one that does not answer must not hold up the others' renewals for long.
    /// With the mutex held.
    Clock::duration patience_with(std::size_t servers, const Batch& batch) const {
        if (servers < 2 && links_.size() < 2) return Clock::duration::max();
        Lease shortest = Lease::max();
        const auto look = [&shortest](const Job& job) {
            shortest = std::min(shortest, job.hold->terms().lease);
        };
        renewals_.for_each(look);
        for (const Errand& errand : batch) look(errand.job);
        return renewal_patience(shortest, Lease::max().duration());
    }

    /// What an answered renewal means for its hold.
    void settle(Errand& errand) {
        errand.settled = true;
        if (errand.job.kind == Job::Kind::bury) return;
        Hold& hold = *errand.job.hold;
        switch (errand.answer()) {
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
            if (!errand.silent.empty() && Clock::now() < job.give_up_at && !closing_) {
                const bool several = topology_->voters() > 1;
                job.pauses.insert(job.pauses.begin(),
                                  several ? quick_retry_pause : bury_retry_pause);
                if (several) job.left = std::move(errand.silent);
            }
            if (!job.pauses.empty()) bury_next(std::move(job));
            return;
        }
        if (!enlisted_.contains(job.hold.get()) || errand.answer() == RenewalAnswer::lost) return;
        const Lease lease = job.hold->terms().lease;
        const TimePoint due = errand.answer() == RenewalAnswer::renewed
                                  ? renewal_due(errand.sent, lease)
                                  : renewal_retry_due(Clock::now(), lease);
        put(due, std::move(job));
    }

    /// Sends everything, and reads the answers as they come. A connection that died since the last batch
    /// is replaced once, without a word; scripts that the server forgot are sent whole.
    void deliver(std::map<Node*, Delivery>& by_node, Clock::duration patience) {
        std::vector<Delivery*> all;
        for (auto& [node, delivery] : by_node) {
            prepare(delivery, patience);
            all.push_back(&delivery);
        }
        // What takes time comes behind what does not.
        std::stable_partition(all.begin(), all.end(),
                              [](const Delivery* delivery) { return delivery->was_kept; });
        send(all, Wiring::Form::by_sha);
        receive(all);

        std::vector<Delivery*> again;
        for (Delivery* const delivery : all) {
            std::vector<Errand*> rest = delivery->rest();
            if (rest.empty()) {
                end(*delivery);
                continue;
            }
            *delivery = {delivery->node, std::move(rest), delivery->link, delivery->limit};
            again.push_back(delivery);
        }
        send(again, Wiring::Form::whole);
        receive(again);
        for (Delivery* const delivery : again) end(*delivery);
    }

    void prepare(Delivery& delivery, Clock::duration patience) {
        Node& node = *delivery.node;
        for (const Errand* errand : delivery.errands) {
            const Lease lease = errand->job.hold->terms().lease;
            patience = std::min(patience, renewal_patience(lease, node.command_timeout()));
        }
        delivery.limit = Limit::in(patience);
        delivery.link = &links_[&node];
        std::optional<Connection>& link = *delivery.link;
        if (link && !node.is_current(*link)) link.reset();
        delivery.was_kept = link.has_value();
    }

    /// To reach one takes no more than its share of the time, so that one that is out of reach leaves some to
    /// the others, and to the answers.
    void send(const std::vector<Delivery*>& deliveries, Wiring::Form form) {
        const bool alone = deliveries.size() == 1;
        auto left = static_cast<Clock::rep>(deliveries.size() + (alone ? 0 : 1));
        for (Delivery* const delivery : deliveries) {
            const Limit share = delivery->limit.within(delivery->limit.left() / left--);
            send(*delivery, form, share);
        }
    }

    void send(Delivery& delivery, Wiring::Form form, const Limit& share) {
        std::optional<Connection>& link = *delivery.link;
        if (!link) {
            auto connection = topology_->connect(*delivery.node, share);
            if (!connection) {
                delivery.fault = std::move(connection).error();
                return;
            }
            link = *std::move(connection);
        }
        std::string bytes;
        Wiring wiring = delivery.node->wiring_for(*link);
        wiring.form = form;
        for (const Errand* errand : delivery.errands) bytes += errand->call().wire(wiring);
        const TimePoint now = Clock::now();
        for (Errand* const errand : delivery.errands) errand->sent = std::min(errand->sent, now);
        if (auto sent = link->send(bytes, share); !sent) {
            break_off(delivery, std::move(sent).error());
        }
    }

    void receive(const std::vector<Delivery*>& deliveries) {
        for (;;) {
            std::vector<Delivery*> under_way;
            std::vector<pollfd> entries;
            Limit limit;
            for (Delivery* const delivery : deliveries) {
                if (!delivery->under_way()) continue;
                under_way.push_back(delivery);
                entries.push_back((*delivery->link)->more_to_come());
                limit.at = std::min(limit.at, delivery->limit.at);
            }
            if (under_way.empty()) return;
            const auto ready = wait_any(entries, limit);
            for (Delivery* const delivery : under_way) {
                read_what_is_there(*delivery);
                if (!delivery->under_way() || (ready && !delivery->limit.over())) continue;
                Fault fault = ready ? io_fault("no answer in time") : ready.error();
                fault.maybe_executed = true;
                break_off(*delivery, std::move(fault));
            }
        }
    }

    void read_what_is_there(Delivery& delivery) {
        Connection& link = **delivery.link;
        while (delivery.under_way()) {
            auto reply = link.receive_if_there();
            if (reply && !*reply) return;
            if (!reply && !link.alive()) {
                break_off(delivery, std::move(reply).error());
            } else if (reply && !(*reply)->view().integer()) {
                break_off(delivery, unexpected_reply());
            } else {
                Errand& errand = *delivery.errands[delivery.answered++];
                if (reply) {
                    take(errand, **reply);
                } else {
                    take(delivery, errand, reply.error());
                }
            }
        }
    }

    static void break_off(Delivery& delivery, Fault fault) {
        delivery.link->reset();
        if (fault.error.node.empty()) fault.error.node = delivery.node->name();
        delivery.fault = std::move(fault);
    }

    /// Whoever has not answered by now does so no more.
    void end(Delivery& delivery) {
        if (!delivery.fault) return;
        const Fault& fault = *delivery.fault;
        for (std::size_t i = delivery.answered; i < delivery.errands.size(); ++i) {
            give_up(delivery, *delivery.errands[i]);
        }
        for (Errand* const errand : delivery.unknown_script) give_up(delivery, *errand);
        events_.failed(fault.error);
        topology_->failed(*delivery.node, fault, Limit::in(time_to_look_around));
    }

    static void give_up(const Delivery& delivery, Errand& errand) {
        errand.votes.cast(Vote::none);
        errand.silent.push_back(delivery.node);
    }

    /// Another server has become the master: this one is asked alone.
    void redirect(Errand& errand) {
        Node& node = topology_->master_of(errand.job.hold->key());
        const Limit limit =
            Limit::in(renewal_patience(errand.job.hold->terms().lease, node.command_timeout()));
        errand.sent = Clock::now();
        const Call call = errand.call();
        const auto reply = node.run(call, limit);
        if (reply) {
            take(errand, *reply);
        } else {
            take(node, errand, reply.error());
        }
    }

    void take(Errand& errand, const Reply& reply) {
        const auto done = reply.view().integer();
        cast(errand, done == 1 ? Vote::yes : done == 0 ? Vote::no : Vote::none);
    }

    /// An error on a connection that goes on.
    void take(Delivery& delivery, Errand& errand, const Fault& fault) {
        delivery.node->check_role(**delivery.link, fault);
        if (is_noscript(fault)) {
            delivery.unknown_script.push_back(&errand);
        } else if (topology_->voters() == 1 && redirection_of(fault)) {
            errand.elsewhere = true;
            topology_->failed(*delivery.node, fault, delivery.limit);
        } else {
            take(*delivery.node, errand, fault);
        }
    }

    void take(Node& node, Errand& errand, const Fault& fault) {
        if (fault.transient) errand.silent.push_back(&node);
        // Somebody's data where our key was: it is gone. Anything else may yet pass.
        cast(errand, fault.error.code == Errc::wrong_type ? Vote::no : Vote::none);
        Error error = fault.error;
        error.key = errand.job.hold->key();
        events_.failed(error);
    }

    void cast(Errand& errand, Vote vote) {
        errand.votes.cast(vote);
        if (!errand.settled && errand.votes.on_keeping() != Verdict::open) settle(errand);
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
