#pragma once

#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/redirection.hpp>
#include <redlatch/core/renewal.hpp>
#include <redlatch/core/silence.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/net/pipeline.hpp>
#include <redlatch/net/service_thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/topology/background_connect.hpp>
#include <redlatch/topology/topology.hpp>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Does what `Renewal` decides: one thread for all of a client's holds, and one connection per server, and one more for
/// each policy of the user's own. Thread-safe.
///
/// A connection stays where one command on it is not answered in time. It is given up at a fault,
/// after `command_timeout` without any answer, or when a new one could be made while it was silent.
class RenewalThread {
public:
    /// What the thread tells; called with no mutex held.
    struct Events {
        std::function<void(const std::shared_ptr<Hold>&, ServerKeeps)> lost;
        std::function<void(const Hold&)> renewed;
        std::function<void(const Error&)> failed;
    };

    RenewalThread(Topology& topology, Events events, const Renewal::Terms& terms)
        : topology_(&topology),
          events_(std::move(events)),
          command_timeout_(terms.command_timeout),
          renewal_(terms) {}
    RenewalThread(const RenewalThread&) = delete;
    RenewalThread& operator=(const RenewalThread&) = delete;
    ~RenewalThread() { close(); }

    // As `Renewal` has them:

    Result<void> enlist(Hold& hold) {
        const auto lock = thread_.lock();
        renewal_.enlist(hold);
        return start();
    }
    void arm(std::shared_ptr<Hold> hold, TimePoint sent, const RenewalEnd& end = {}) {
        const auto lock = thread_.lock();
        renewal_.arm(std::move(hold), sent, end);
        wake_in_time();
    }
    void disarm(Hold& hold) { renewal()->disarm(hold); }
    void dismiss_one(Hold& hold, std::uint64_t acquisition) {
        renewal()->dismiss_one(hold, acquisition);
    }
    void dismiss(Hold& hold) { renewal()->dismiss(hold); }

    /// False where the client has closed.
    bool clean_up(std::shared_ptr<Hold> hold, CleanUp what) {
        const auto lock = thread_.lock();
        if (!start()) return false;
        renewal_.clean_up(std::move(hold), what, Clock::now());
        wake_in_time();
        return true;
    }

    /// The hold of that token if its clean-up is to come or under way; else null.
    std::shared_ptr<Hold> cleaned_up(std::string_view token) {
        return renewal()->cleaned_up(token);
    }

    /// Any thread. Has it close what leads to servers that are no masters any more.
    void map_changed() {
        const auto lock = thread_.lock();
        if (!thread_.is_running()) return;
        map_changed_ = true;
        wake_.ring();
    }

    /// Cleans up what is left, and ends the thread. Takes at most the time for one command, however
    /// much there is.
    void close() {
        renewal()->close(Clock::now());
        thread_.begin_to_close();
        wake_.ring();
        thread_.close();
    }

private:
    using Try = Renewal::Try;

    /// The command of a try, at one server.
    struct Order {
        std::shared_ptr<Try> attempt;  // none for ASKING, which stands before a command
        bool once = false;             // the server is the key's master for this command only
        Command command{ReplyUse::awaited};
    };

    /// The way to one server.
    struct Link {
        Link(Node& at, const void* owner, MasterIndex number, Clock::duration command_timeout)
            : node(&at), own(owner), index(number), silence(command_timeout) {}

        Node* node;
        const void* own;  // as of `lua::users_own()`
        MasterIndex index;
        std::optional<Pipeline<Order>> pipe;
        Silence silence;
        std::vector<Order> waiting;  // for a connection
        BackgroundConnect connect;   // the next one

        TimePoint gone_at() const noexcept { return silence.gone_at(pipe->oldest()); }
    };

    /// The machine, and the mutex for as long as this lives.
    struct Locked {
        ServiceThread::Lock lock;
        Renewal* renewal;
        Renewal* operator->() const noexcept { return renewal; }
    };

    Locked renewal() { return {thread_.lock(), &renewal_}; }

    /// With the mutex held.
    Result<void> start() {
        if (thread_.is_running()) return {};
        if (thread_.is_closing()) return Unexpected{cancelled_fault(cancelled_by_close).error};
        if (wake_.open() && thread_.start()) return {};
        return Unexpected{Error{Errc::unavailable,
                                {},
                                {},
                                "the system has no thread, or no descriptor, for the renewal",
                                {}}};
    }

    /// With the mutex held. Most holds are over before the thread would have to look at them: it is
    /// left asleep.
    void wake_in_time() {
        if (renewal_.next_due() >= wakes_at_) return;
        wakes_at_ = TimePoint::min();
        wake_.ring();
    }

    // From here on, what the thread does: with the mutex free, unless said otherwise.

    void run() {
        while (!is_closed()) {
            if (take_map_change()) leave_former_masters();
            begin_due();
            exchange();
            renewal()->pass_time(Clock::now());
            perform_actions();
            wait();
        }
        links_.clear();
    }

    bool is_closed() {
        const auto lock = thread_.lock();
        const bool closed = renewal_.is_closed(Clock::now());
        if (closed) thread_.end();
        return closed;
    }

    bool take_map_change() {
        const auto lock = thread_.lock();
        return std::exchange(map_changed_, false);
    }

    /// Where something is under way, the next map closes the connection.
    void leave_former_masters() {
        for (Link& link : links_) {
            if (!link.pipe || !link.pipe->idle() || topology_->is_master(*link.node)) continue;
            link.pipe.reset();
            link.silence.disconnected();
        }
    }

    void begin_due() {
        const auto due = renewal()->take_due(Clock::now());
        for (const auto& attempt : due) {
            std::vector<MasterIndex> masters = masters_of(attempt->hold());
            renewal()->begin(attempt, std::move(masters), Clock::now());
        }
        perform_actions();
    }

    std::vector<MasterIndex> masters_of(const Hold& hold) {
        std::vector<MasterIndex> masters;
        for (Node* const node : topology_->masters_of(hold.key())) {
            masters.push_back(link_to(*node, hold).index);
        }
        return masters;
    }

    Link& link_to(Node& node, const Hold& hold) {
        const void* const own = lua::users_own(hold.scripts());
        for (Link& link : links_) {
            if (link.node == &node && link.own == own) return link;
        }
        return links_.emplace_back(node, own, links_.size(), command_timeout_);
    }

    void perform_actions() {
        const auto actions = renewal()->take_actions();
        for (const Renewal::Action& action : actions) {
            visit([this](const auto& what) { perform(what); }, action);
        }
    }

    void perform(const Renewal::Send& send) { post(links_[send.master], {send.attempt}); }
    void perform(const Renewal::Renewed& renewed) { events_.renewed(*renewed.hold); }
    void perform(const Renewal::Lost& lost) { events_.lost(lost.hold, lost.server); }
    void perform(const Renewal::Silent& silent) {
        Link& link = links_[silent.master];
        if (silent.is_told) tell(link, no_answer());
        look_for_replacement(link, silent.since);
    }

    void post(Link& link, Order order) {
        if (link.pipe && !link.node->is_current(link.pipe->connection())) {
            Fault fault = io_fault("another server is the master");
            fault.disconnected = true;
            break_off(link, std::move(fault));
        }
        if (link.pipe) {
            write(link, std::move(order));
        } else {
            link.waiting.push_back(std::move(order));
            connect(link);
        }
    }

    void connect(Link& link, std::optional<Fault> after = {}) {
        if (!link.connect.under_way()) {
            link.connect.begin(*topology_, *link.node, std::move(after), wake_);
        }
    }

    /// For the first time over this connection.
    void write(Link& link, Order order) {
        order.command.connected(traits_of(call_of(*order.attempt), link.pipe->connection(),
                                          link.silence.is_reused(), link.node->key_access()));
        write_again(link, std::move(order));
    }

    void write_again(Link& link, Order order) {
        if (!renewal()->send(*order.attempt, link.index, Clock::now())) return;
        Pipeline<Order>& pipe = *link.pipe;
        if (order.once) pipe.add(Call::plain({"ASKING"}).wire(), Order{});
        const Call call = call_of(*order.attempt);
        const std::string bytes =
            call.wire(encode_options(order.command.form(), pipe.connection()));
        pipe.add(bytes, std::move(order));
    }

    static Call call_of(const Try& attempt) {
        const auto lease = attempt.lease();
        if (!lease) return release_call(attempt.hold());
        return extend_call(attempt.hold(), *lease, attempt.lock_alone());
    }

    /// Sends and reads as much as goes without waiting.
    void exchange() {
        // NOLINTNEXTLINE(modernize-loop-convert): a redirection may add a link
        for (std::size_t i = 0; i < links_.size(); ++i) {
            Link& link = links_[i];
            if (auto connected = link.connect.take()) take_up(link, *std::move(connected));
            flush(link);
            read(link);
            flush(link);
            if (link.pipe && Clock::now() >= link.gone_at()) break_off(link, no_answer());
        }
    }

    void flush(Link& link) {
        if (!link.pipe) return;
        if (auto done = link.pipe->flush(); !done) break_off(link, std::move(done).error());
    }

    void read(Link& link) {
        while (link.pipe) {
            auto answered = link.pipe->next_answer();
            if (!answered) return break_off(link, std::move(answered).error());
            if (!*answered) break;
            link.silence.answered(Clock::now(), link.pipe->idle());
            if ((*answered)->order.attempt) take(link, **std::move(answered));
        }
    }

    static Fault no_answer() {
        Fault fault = unanswered_fault();
        fault.maybe_executed = true;
        return fault;
    }

    /// A connection was made, or could not be.
    void take_up(Link& link, BackgroundConnect::Outcome connected) {
        if (link.pipe) {
            if (!link.silence.gives_way(connected.has_value(), !link.pipe->idle(),
                                        link.connect.begun(), Clock::now())) {
                return;
            }
            for (Order& order : take_unanswered(link)) write_later(link, std::move(order));
        }
        std::vector<Order> waiting = std::exchange(link.waiting, {});
        std::erase_if(waiting, [](const Order& order) { return order.attempt->is_over(); });
        if (connected) {
            link.pipe.emplace(*std::move(connected));
            link.silence.connected(Clock::now(), waiting.empty());
            for (Order& order : waiting) write(link, std::move(order));
        } else if (!waiting.empty()) {
            tell(link, connected.error(), waiting.size(), waiting.front());
            for (const Order& order : waiting) not_sent(link, order, connected.error());
        }
    }

    /// A server that lets nobody in for now says so: a refusal, as if it had read the command.
    void not_sent(const Link& link, const Order& order, const Fault& fault) {
        if (!fault.from_server || !fault.transient) return unanswered(link, order);
        renewal()->refused(*order.attempt, link.index, fault, Clock::now());
    }

    /// Ends the connection. Its commands, but for ASKING.
    static std::vector<Order> take_unanswered(Link& link) {
        std::vector<Order> orders = link.pipe->take_unanswered();
        link.pipe.reset();
        link.silence.disconnected();
        std::erase_if(orders, [](const Order& order) { return order.attempt == nullptr; });
        return orders;
    }

    /// The connection is of no use any more. One that had died while it lay idle is replaced once,
    /// without a word.
    void break_off(Link& link, Fault fault) {
        bool failed = false;
        std::size_t news = 0;
        const Order* one = nullptr;  // that is news
        std::vector<Order> orders = take_unanswered(link);
        for (Order& order : orders) {
            if (order.attempt->is_over()) order.command.leave();
            const CommandStep step = order.command.failed(failure_of(fault));
            if (step.next == CommandStep::Next::reconnect) {
                write_later(link, std::move(order));
            } else {
                failed = true;
                if (!order.attempt->is_over()) {
                    ++news;
                    one = &order;
                }
                unanswered(link, order);
            }
        }
        if (one != nullptr) tell(link, fault, news, *one);
        if (failed) connect(link, std::move(fault));
        if (!link.waiting.empty()) connect(link);
    }

    /// Once more, on the next connection.
    void write_later(Link& link, Order order) {
        renewal()->connection_replaced(*order.attempt);
        link.waiting.push_back(std::move(order));
    }

    void unanswered(const Link& link, const Order& order) {
        renewal()->unanswered(*order.attempt, link.index, Clock::now());
    }

    void take(Link& link, Pipeline<Order>::Answered answered) {
        Order& order = answered.order;
        const CommandStep step =
            order.command.answered(kind_of(answered.reply, ReplyShape::integer));
        if (step.leave_server) link.node->leave(link.pipe->connection());
        if (step.next == CommandStep::Next::send) return write_again(link, std::move(order));
        if (step.drop_connection) {
            unanswered(link, order);
            return break_off(link, unexpected_reply());
        }
        if (!answered.reply)
            return take_error(link, step, order, std::move(answered.reply).error());
        const auto answer = answered.reply->view().integer();
        const TimePoint now = Clock::now();
        const bool may_have_forgotten =
            topology_->rules_for(ReplyShape::integer)
                .may_have_forgotten(link.pipe->connection().started_by(), now);
        renewal()->answered(
            *order.attempt, link.index, *answer,
            {.server = link.pipe->connection().server(), .may_have_forgotten = may_have_forgotten},
            now);
    }

    /// An error on a connection that goes on.
    void take_error(const Link& link, CommandStep step, const Order& order, Fault fault) {
        if (step.next == CommandStep::Next::redirect && topology_->voters() == 1) {
            if (redirect(link, order, fault)) return;
            disagree(fault);
        }
        renewal()->refused(*order.attempt, link.index, fault, Clock::now());
        Error error = std::move(fault).error;
        error.key = order.attempt->hold().key();
        events_.failed(error);
    }

    /// Another server has what this one was asked for: from now on, or for one command.
    bool redirect(const Link& link, const Order& order, const Fault& fault) {
        const auto to = redirection_of(fault);
        if (!to) return false;
        if (!to->once) topology_->failed(*link.node, fault, Limit::in(Clock::duration::zero()));
        Node& node = to->once ? topology_->node_of(*to, *link.node)
                              : topology_->master_of(order.attempt->hold().key());
        if (&node == link.node) return false;
        Link& next = link_to(node, order.attempt->hold());
        if (!renewal()->redirect(*order.attempt, link.index, next.index)) return false;
        post(next, {.attempt = order.attempt, .once = to->once});
        return true;
    }

    void tell(const Link& link, const Fault& fault) {
        Error error = fault.error;
        if (error.node.empty()) error.node = link.node->name();
        events_.failed(error);
    }

    /// Of so many commands, each about one lock.
    void tell(const Link& link, Fault fault, std::size_t commands, const Order& one) {
        if (commands == 1) {
            fault.error.key = one.attempt->hold().key();
        } else {
            fault.error.message =
                "for " + std::to_string(commands) + " commands: " + fault.error.message;
        }
        tell(link, fault);
    }

    void look_for_replacement(Link& link, TimePoint sent) {
        if (!link.pipe || !link.silence.wants_replacement(sent, Clock::now())) return;
        const bool several = topology_->voters() > 1;
        connect(link, several ? std::nullopt : std::optional{no_answer()});
    }

    /// Blocks until there is something to do.
    void wait() {
        TimePoint until = TimePoint::max();
        {
            const auto lock = thread_.lock();
            if (renewal_.is_closed(Clock::now())) return;
            until = renewal_.next_due();
            wakes_at_ = until;
        }
        wait_until(until);
        const auto lock = thread_.lock();
        wakes_at_ = TimePoint::min();
    }

    void wait_until(TimePoint until) {
        std::vector<pollfd> entries{wake_.entry()};
        for (const Link& link : links_) {
            if (!link.pipe || link.pipe->idle()) continue;
            entries.push_back(link.pipe->more_to_come());
            until = std::min(until, link.gone_at());
        }
        Limit limit{until};
        if (until != TimePoint::max()) limit = limit.within(longest_service_sleep);
        if (!wait_any(entries, limit)) std::this_thread::sleep_for(std::chrono::milliseconds{10});
        wake_.reset();
    }

    Topology* topology_;
    const Events events_;
    const std::chrono::milliseconds command_timeout_;
    WakeDescriptor wake_;
    ServiceThread thread_{"redlatch renew", [this] { run(); }};
    // Guarded by the mutex:
    Renewal renewal_;
    TimePoint wakes_at_ = TimePoint::min();  // the thread, if nobody wakes it
    bool map_changed_ = false;               // since the thread looked
    // Of the thread:
    std::deque<Link> links_;
};

}  // namespace redlatch::inline v0::detail
