#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renew.hpp>
#include <redlatch/core/vote_count.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/pipeline.hpp>
#include <redlatch/net/server_error.hpp>
#include <redlatch/net/thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/service/schedule.hpp>
#include <redlatch/topology/background_connect.hpp>
#include <redlatch/topology/topology.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Keeps watched holds alive: one thread for all of a client's, and one connection per server. It also
/// releases tokens whose acquisition may still come to life at the server ("burying" them).
/// Thread-safe.
///
/// Each command has its own patience. When that is over, the command counts as unanswered and its
/// hold is tried again; its answer may still come, and means what it says then. The connection
/// stays. It is given up at a fault, after `command_timeout` without any answer, or when a new one
/// could be made while it was silent.
class Renewal {
public:
    /// What the thread tells; called with no mutex held.
    struct Events {
        std::function<void(const std::shared_ptr<Hold>&, ServerKeeps)> lost;
        std::function<void(const Hold&)> renewed;
        std::function<void(const Error&)> failed;
    };

    Renewal(Topology& topology, Events events, std::chrono::milliseconds command_timeout)
        : topology_(&topology), events_(std::move(events)), command_timeout_(command_timeout) {}
    Renewal(const Renewal&) = delete;
    Renewal& operator=(const Renewal&) = delete;
    ~Renewal() { close(); }

    /// One more acquisition wants the hold to be renewed. Announced before it is asked for, so that
    /// it cannot be had and then not renewed.
    Result<void> enlist(Hold& hold) {
        const std::lock_guard lock{mutex_};
        ++hold.watchers;
        return start();
    }

    /// From now on renews a hold that was confirmed by a command sent at `sent`.
    void arm(std::shared_ptr<Hold> hold, TimePoint sent) {
        const std::lock_guard lock{mutex_};
        if (hold->watchers == 0) return;
        const TimePoint due = renewal_due(sent, hold->terms().lease);
        put(due, {Job::Kind::renew, std::move(hold)});
    }

    /// One of the acquisitions that `enlist` has announced is over.
    void dismiss_one(Hold& hold) {
        const std::lock_guard lock{mutex_};
        if (hold.watchers > 0) --hold.watchers;
        if (hold.watchers == 0) renewals_.remove(&hold);
    }

    /// Ends the renewal of a hold, before its release is sent. A renewal under way does no harm: the
    /// script finds the token gone, and the answer finds the hold no longer held.
    void dismiss(Hold& hold) {
        const std::lock_guard lock{mutex_};
        hold.watchers = 0;
        renewals_.remove(&hold);
    }

    /// Releases a dead token in the background, after each of `pauses`: a command that got no
    /// answer may be carried out late, even after a release that was sent on another connection.
    /// Also the way to leave the queue. False where the client has closed.
    bool release_at(std::shared_ptr<Hold> hold, std::vector<Clock::duration> pauses) {
        const std::lock_guard lock{mutex_};
        if (!start()) return false;
        // A key that comes to life late is gone by itself after this.
        const std::chrono::milliseconds ttl{hold->server_ttl(hold->terms().lease)};
        const auto gone_after = saturating_cast<Clock::duration>(ttl);
        const TimePoint give_up_at =
            saturating_add(saturating_add(Clock::now(), gone_after), gone_after);
        bury_next({Job::Kind::release_at, std::move(hold), std::move(pauses), give_up_at});
        return true;
    }

    /// Sends what there is to release_at now, whether due or not, and ends the thread. Takes at most
    /// twice the time for one command, however much there is. Nothing is renewed any more.
    void close() {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
        }
        wake_.ring();
        if (thread_.joinable()) thread_.join();
    }

private:
    struct Job {
        enum class Kind { renew, release_at };
        Kind kind;
        std::shared_ptr<Hold> hold;
        // Where buried:
        std::vector<Clock::duration> pauses{};  // those after the next release
        TimePoint give_up_at{};
        std::vector<Node*> left{};  // of several masters, those that have not answered; else empty
    };

    /// A job under way: its command, at one server or several, and what came of it.
    struct Errand {
        Job job;
        Lease lease;
        std::vector<Node*> silent;  // who has to be asked again
        VoteCount votes{silent.size()};
        int moves = 0;                      // how often another server was named
        bool settled = false;               // what the answers mean has been said
        bool concluded = false;             // the job goes on without it; late answers still count
        TimePoint sent = TimePoint::max();  // for the first time

        bool renews() const { return job.kind == Job::Kind::renew; }

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
            return renews() ? extend_call(*job.hold, lease) : release_call(*job.hold);
        }
    };

    /// An errand's command at one server.
    struct Order {
        std::shared_ptr<Errand> errand;
        Command command{ReplyUse::awaited};
    };

    /// The way to one server.
    struct Link {
        std::optional<Pipeline<Order>> pipe{};
        bool was_idle = false;         // the connection, before what is under way
        std::vector<Order> waiting{};  // for a connection
        BackgroundConnect connect{};   // the next one
        TimePoint replaceable_at = TimePoint::min();
    };

    static constexpr std::size_t largest_batch = 1000;
    static constexpr std::chrono::milliseconds bury_retry_pause{500};
    // Of several masters, one that is out of reach is connected to by another thread.
    static constexpr std::chrono::milliseconds quick_retry_pause{100};
    static constexpr int most_moves = 8;
    // A command for another server, for once, is waited for: all of one round together so long.
    static constexpr std::chrono::milliseconds time_to_redirect{50};

    /// With the mutex held.
    Result<void> start() {
        if (running_) return {};
        if (closing_)
            return Unexpected{Error{Errc::cancelled, {}, {}, "the client was closed", {}}};
        if (wake_.open()) thread_ = start_service_thread([this] { run(); });
        running_ = thread_.joinable();
        if (running_) return {};
        return Unexpected{Error{Errc::unavailable,
                                {},
                                {},
                                "the system has no thread, or no descriptor, for the renewal",
                                {}}};
    }

    /// With the mutex held.
    void put(TimePoint due, Job job) {
        const Hold* const hold = job.hold.get();
        if (job.kind == Job::Kind::release_at) {
            burials_.emplace(due, std::move(job));
        } else {
            renewals_.put(hold, due, std::move(job));
        }
        // Most holds are over before the thread would have to look at them: it is left asleep.
        if (due < wakes_at_) wake_.ring();
    }

    /// With the mutex held.
    void bury_next(Job job) {
        const TimePoint due = saturating_add(Clock::now(), job.pauses.front());
        job.pauses.erase(job.pauses.begin());
        put(due, std::move(job));
    }

    // From here on, what the thread does: with the mutex free, unless said otherwise.

    void run() {
        while (!is_closing()) {
            for (Job& job : take_due()) begin(std::move(job));
            exchange();
            give_up_overdue();
            put_back_concluded();
            wait();
        }
        bury_the_rest();
        links_.clear();
        overdue_at_.clear();
    }

    bool is_closing() {
        const std::lock_guard lock{mutex_};
        return closing_;
    }

    std::vector<Job> take_due() {
        const auto early = [](const Job& job) { return renewal_window(job.hold->terms().lease); };
        const std::lock_guard lock{mutex_};
        const TimePoint now = Clock::now();
        std::vector<Job> jobs =
            renewals_.take_early(now, widest_renewal_window, largest_batch, early);
        while (jobs.size() < largest_batch) {
            auto job = take_burial(now);
            if (!job) break;
            jobs.push_back(*std::move(job));
        }
        return jobs;
    }

    /// With the mutex held.
    std::optional<Job> take_burial(TimePoint due) {
        if (burials_.empty() || burials_.begin()->first > due) return std::nullopt;
        return std::move(burials_.extract(burials_.begin()).mapped());
    }

    void begin(Job job) {
        const TimePoint now = Clock::now();
        const Lease lease = renewal_lease(job.hold->terms().lease, now, job.hold->last_end());
        if (job.kind == Job::Kind::renew && (!job.hold->valid(now) || lease <= no_lease)) return;
        std::vector<Node*> nodes = nodes_for(job);
        const Clock::duration patience =
            renewal_patience(job.hold->terms().lease, command_timeout_);
        const auto errand = std::make_shared<Errand>(Errand{std::move(job), lease, nodes});
        if (!errand->renews()) ++burying_;
        if (nodes.empty()) return conclude(errand);
        overdue_at_.emplace(saturating_add(now, patience), errand);
        for (Node* const node : nodes) post(*node, {errand});
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

    void post(Node& node, Order order) {
        Link& link = links_[&node];
        if (link.pipe && !node.is_current(link.pipe->connection())) {
            Fault fault = io_fault("another server is the master");
            fault.disconnected = true;
            break_off(node, link, std::move(fault));
        }
        if (link.pipe) {
            write(node, link, std::move(order));
        } else {
            link.waiting.push_back(std::move(order));
            connect(node, link);
        }
    }

    void connect(Node& node, Link& link, std::optional<Fault> after = {}) {
        if (!link.connect.under_way()) {
            link.connect.begin(*topology_, node, std::move(after), wake_);
        }
    }

    void write(Node& node, Link& link, Order order, bool again = false) {
        Errand& errand = *order.errand;
        Pipeline<Order>& pipe = *link.pipe;
        const TimePoint now = Clock::now();
        // It may have waited for a connection.
        errand.lease = renewal_lease(errand.lease, now, errand.job.hold->last_end());
        if (errand.renews() && errand.lease <= no_lease) {
            return cast(order.errand, node, Vote::none, false);
        }
        errand.sent = std::min(errand.sent, now);
        const Call call = errand.call();
        if (!again) {
            order.command.connected(
                traits_of(call, pipe.connection(), link.was_idle, node.key_access()));
        }
        const std::string bytes = encode(call, order.command.form(), pipe.connection());
        pipe.add(bytes, std::move(order));
    }

    /// Sends and reads as much as goes without waiting.
    void exchange() {
        redirect_by_ = saturating_add(Clock::now(), time_to_redirect);
        for (auto& [node, link] : links_) {
            if (auto connected = link.connect.take()) take_up(*node, link, *std::move(connected));
            flush(*node, link);
            read(*node, link);
            flush(*node, link);
            const bool silent =
                link.pipe && !link.pipe->idle() && Clock::now() >= gone_at(*link.pipe);
            if (silent) break_off(*node, link, no_answer());
        }
    }

    void flush(Node& node, Link& link) {
        if (!link.pipe) return;
        if (auto done = link.pipe->flush(); !done) break_off(node, link, std::move(done).error());
    }

    void read(Node& node, Link& link) {
        while (link.pipe) {
            auto answered = link.pipe->next_answer();
            if (!answered) return break_off(node, link, std::move(answered).error());
            if (!*answered) break;
            take(node, link, **std::move(answered));
        }
        if (link.pipe && link.pipe->idle()) link.was_idle = true;
    }

    /// Also where answers trickle in, slower than commands are added.
    TimePoint gone_at(const Pipeline<Order>& pipe) const {
        return std::min(saturating_add(pipe.silent_since(), command_timeout_),
                        saturating_add(pipe.oldest(), 3 * Clock::duration{command_timeout_}));
    }

    static Fault no_answer() {
        Fault fault = io_fault("no answer in time");
        fault.maybe_executed = true;
        return fault;
    }

    /// A connection was made, or could not be.
    void take_up(Node& node, Link& link, BackgroundConnect::Outcome connected) {
        if (link.pipe) {
            link.replaceable_at = saturating_add(Clock::now(), command_timeout_);
            const bool silent = link.pipe->answered_at() < link.connect.begun();
            if (!connected || link.pipe->idle() || !silent) return;
            for (Order& order : link.pipe->take_unanswered())
                link.waiting.push_back(std::move(order));
            link.pipe.reset();
        }
        std::vector<Order> waiting = std::exchange(link.waiting, {});
        std::erase_if(waiting, [](const Order& order) { return order.errand->concluded; });
        if (connected) {
            link.pipe.emplace(*std::move(connected));
            link.was_idle = false;
            for (Order& order : waiting) write(node, link, std::move(order));
        } else if (!waiting.empty()) {
            tell(node, connected.error());
            for (const Order& order : waiting) cast(order.errand, node, Vote::none, true);
        }
    }

    /// The connection is of no use any more. One that had died while it lay idle is replaced once,
    /// without a word.
    void break_off(Node& node, Link& link, Fault fault) {
        std::vector<Order> unanswered = link.pipe->take_unanswered();
        link.pipe.reset();
        bool failed = false;
        bool news = false;
        for (Order& order : unanswered) {
            if (order.errand->concluded) order.command.leave();
            const CommandStep step = order.command.failed(failure_of(fault));
            if (step.next == CommandStep::Next::reconnect) {
                link.waiting.push_back(std::move(order));
            } else {
                failed = true;
                news = news || !order.errand->concluded;
                cast(order.errand, node, Vote::none, true);
            }
        }
        if (news) tell(node, fault);
        if (failed) connect(node, link, std::move(fault));
        if (!link.waiting.empty()) connect(node, link);
    }

    void take(Node& node, Link& link, Pipeline<Order>::Answered answered) {
        Order& order = answered.order;
        const CommandStep step =
            order.command.answered(kind_of(answered.reply, ReplyShape::integer));
        if (step.leave_server) node.leave(link.pipe->connection());
        if (step.next == CommandStep::Next::send) {
            return write(node, link, std::move(order), true);
        }
        if (step.drop_connection) {
            cast(order.errand, node, Vote::none, true);
            return break_off(node, link, unexpected_reply());
        }
        if (!answered.reply) {
            return take_error(node, step, std::move(order), std::move(answered.reply).error());
        }
        const auto done = answered.reply->view().integer();
        cast(order.errand, node,
             *done == 1   ? Vote::yes
             : *done == 0 ? Vote::no
                          : Vote::none,
             false);
    }

    /// An error on a connection that goes on.
    void take_error(Node& node, CommandStep step, Order order, Fault fault) {
        const bool moved = step.next == CommandStep::Next::redirect && topology_->voters() == 1;
        const auto to = moved ? redirection_of(fault) : std::nullopt;
        if (to && !order.errand->concluded && order.errand->moves++ < most_moves) {
            return redirect(node, std::move(order), *to, fault);
        }
        refused(order.errand, node, to ? unsettled(std::move(fault)) : fault);
    }

    /// The servers do not agree where the key is.
    static Fault unsettled(Fault redirection) {
        redirection.error.code = Errc::unavailable;
        redirection.transient = true;
        return redirection;
    }

    /// Another server has what this one was asked for: from now on, or for one command.
    void redirect(Node& node, Order order, const Redirection& to, const Fault& fault) {
        Errand& errand = *order.errand;
        if (!to.once) {
            topology_->failed(node, fault, Limit::in(Clock::duration::zero()));
            Node& next = topology_->master_of(errand.job.hold->key());
            if (&next == &node) return refused(order.errand, node, unsettled(fault));
            errand.silent = {&next};
            return post(next, {order.errand});
        }
        const Limit limit{redirect_by_};
        if (limit.over()) return cast(order.errand, node, Vote::none, true);
        const Call call = errand.call();
        QuorumProgress one;
        auto reply = topology_->run_on_masters(call, call, limit, one);
        if (!reply) return refused(order.errand, node, reply.error());
        const auto done = reply->view().integer();
        cast(order.errand, node, done == 1 ? Vote::yes : done == 0 ? Vote::no : Vote::none, false);
    }

    void refused(const std::shared_ptr<Errand>& errand, Node& node, const Fault& fault) {
        Error error = fault.error;
        error.key = errand->job.hold->key();
        // Somebody's data where our key was: it is gone. Anything else may yet pass.
        cast(errand, node, error.code == Errc::wrong_type ? Vote::no : Vote::none, fault.transient);
        events_.failed(error);
    }

    void tell(const Node& node, const Fault& fault) {
        Error error = fault.error;
        if (error.node.empty()) error.node = node.name();
        events_.failed(error);
    }

    /// `again`: it makes sense to ask that server once more.
    void cast(const std::shared_ptr<Errand>& errand, Node& node, Vote vote, bool again) {
        errand->votes.cast(vote);
        if (!again) std::erase(errand->silent, &node);
        if (!errand->settled && errand->votes.on_keeping() != Verdict::open) settle(*errand);
        const bool over = errand->votes.open() == 0 || (errand->renews() && errand->settled);
        if (over && !errand->concluded) conclude(errand);
    }

    /// What an answered renewal means for its hold.
    void settle(Errand& errand) {
        errand.settled = true;
        if (!errand.renews()) return;
        Hold& hold = *errand.job.hold;
        switch (errand.answer()) {
            case RenewalAnswer::renewed:
                if (hold.confirm_in_time(Clock::now(), errand.sent, errand.lease)) {
                    events_.renewed(hold);
                    break;
                }
                events_.lost(errand.job.hold, ServerKeeps::lock);
                break;
            case RenewalAnswer::lost: events_.lost(errand.job.hold, ServerKeeps::nothing); break;
            case RenewalAnswer::unknown:
                if (!errand.concluded) hold.doubt();
                break;
        }
    }

    void conclude(const std::shared_ptr<Errand>& errand) {
        errand->concluded = true;
        if (!errand->renews()) --burying_;
        concluded_.push_back(errand);
    }

    /// Each errand has its own patience, whatever others on the same connection have.
    void give_up_overdue() {
        const TimePoint now = Clock::now();
        std::vector<Node*> told;
        while (!overdue_at_.empty()) {
            const auto first = overdue_at_.begin();
            const std::shared_ptr<Errand> errand = first->second;
            if (!errand->concluded && first->first > now) return;
            overdue_at_.erase(first);
            if (errand->concluded) continue;
            if (errand->renews()) errand->job.hold->doubt();
            for (Node* const node : errand->silent) {
                if (std::find(told.begin(), told.end(), node) != told.end()) continue;
                told.push_back(node);
                tell(*node, no_answer());
                look_for_replacement(*node, links_[node], errand->sent, now);
            }
            conclude(errand);
        }
    }

    /// A connection on which nothing has come since `sent` may be dead, where a new one is not. The
    /// old one counts until there is a new one.
    void look_for_replacement(Node& node, Link& link, TimePoint sent, TimePoint now) {
        if (!link.pipe || link.pipe->answered_at() > sent || now < link.replaceable_at) return;
        const bool several = topology_->voters() > 1;
        connect(node, link, several ? std::nullopt : std::optional{no_answer()});
    }

    void put_back_concluded() {
        if (concluded_.empty()) return;
        const std::lock_guard lock{mutex_};
        for (const auto& errand : std::exchange(concluded_, {})) put_back(*errand);
    }

    /// With the mutex held.
    void put_back(const Errand& errand) {
        Job job = errand.job;
        if (!errand.renews()) {
            if (!errand.silent.empty() && Clock::now() < job.give_up_at && !closing_) {
                const bool several = topology_->voters() > 1;
                job.pauses.insert(job.pauses.begin(),
                                  several ? quick_retry_pause : bury_retry_pause);
                if (several) job.left = errand.silent;
            }
            if (!job.pauses.empty()) bury_next(std::move(job));
            return;
        }
        if (job.hold->watchers == 0 || errand.answer() == RenewalAnswer::lost) return;
        const Lease lease = job.hold->terms().lease;
        const TimePoint due = errand.answer() == RenewalAnswer::renewed
                                  ? renewal_due(errand.sent, lease)
                                  : renewal_retry_due(Clock::now(), lease);
        put(due, std::move(job));
    }

    /// Blocks until there is something to do.
    void wait() {
        TimePoint until = overdue_at_.empty() ? TimePoint::max() : overdue_at_.begin()->first;
        {
            const std::lock_guard lock{mutex_};
            if (closing_) return;
            until = std::min(until, renewals_.next_due());
            if (!burials_.empty()) until = std::min(until, burials_.begin()->first);
            wakes_at_ = until;
        }
        wait_until(until);
        const std::lock_guard lock{mutex_};
        wakes_at_ = TimePoint::min();
    }

    void wait_until(TimePoint until) {
        std::vector<pollfd> entries{wake_.entry()};
        for (auto& [node, link] : links_) {
            if (!link.pipe || link.pipe->idle()) continue;
            entries.push_back(link.pipe->more_to_come());
            until = std::min(until, gone_at(*link.pipe));
        }
        Limit limit{until};
        if (until != TimePoint::max()) limit = limit.within(longest_service_sleep);
        if (!wait_any(entries, limit)) std::this_thread::sleep_for(std::chrono::milliseconds{10});
        wake_.reset();
    }

    /// The client closes: everything that is left goes out at once, and all of it together has the
    /// time for one command.
    void bury_the_rest() {
        const Limit limit = Limit::in(command_timeout_);
        while (auto jobs = take_last(limit)) {
            for (Job& job : *jobs) begin(std::move(job));
            exchange();
            put_back_concluded();
            if (burying_ > 0 && jobs->size() < largest_batch) wait_until(limit.at);
        }
    }

    /// What is left to release_at; nothing at the end.
    std::optional<std::vector<Job>> take_last(const Limit& limit) {
        const std::lock_guard lock{mutex_};
        const bool done = burials_.empty() && burying_ == 0;
        running_ = !done && !limit.over();
        if (!running_) return std::nullopt;
        std::vector<Job> jobs;
        while (jobs.size() < largest_batch) {
            auto job = take_burial(TimePoint::max());
            if (!job) break;
            job->pauses.clear();
            jobs.push_back(*std::move(job));
        }
        return jobs;
    }

    static constexpr Lease no_lease{Clock::duration::zero()};

    Topology* topology_;
    const Events events_;
    const std::chrono::milliseconds command_timeout_;
    WakeDescriptor wake_;
    std::mutex mutex_;
    Schedule<Job> renewals_;
    // Apart: one of a hold that is lost outlives its dismissal. A hold may have several.
    std::multimap<TimePoint, Job> burials_;
    TimePoint wakes_at_ = TimePoint::min();  // the thread, if nobody wakes it
    bool running_ = false;                   // the thread takes what is put into the schedule
    bool closing_ = false;

    // Of the thread:
    std::map<Node*, Link> links_;
    std::multimap<TimePoint, std::shared_ptr<Errand>> overdue_at_;
    std::vector<std::shared_ptr<Errand>> concluded_;
    std::size_t burying_ = 0;  // releases under way
    TimePoint redirect_by_{};
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
