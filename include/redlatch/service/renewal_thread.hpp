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
    struct TryCommand {
        std::shared_ptr<Try> attempt;  // none for ASKING, which stands before a command
        bool once = false;             // the server is the key's master for this command only
        Command command{ReplyUse::awaited};
    };

    /// The way to one server.
    struct Route {
        Route(Node& at, const void* owner, MasterIndex number, Clock::duration command_timeout)
            : node(&at), own(owner), index(number), silence(command_timeout) {}

        Node* node;
        const void* own;  // as of `lua::users_own()`
        MasterIndex index;
        std::optional<Pipeline<TryCommand>> pipe;
        Silence silence;
        std::vector<TryCommand> waiting;  // for a connection
        BackgroundConnect connect;        // the next one

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
        routes_.clear();
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
        for (Route& route : routes_) {
            if (!route.pipe || !route.pipe->idle() || topology_->is_master(*route.node)) continue;
            route.pipe.reset();
            route.silence.disconnected();
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
            masters.push_back(route_to(*node, hold).index);
        }
        return masters;
    }

    Route& route_to(Node& node, const Hold& hold) {
        const void* const own = lua::users_own(hold.scripts());
        for (Route& route : routes_) {
            if (route.node == &node && route.own == own) return route;
        }
        return routes_.emplace_back(node, own, routes_.size(), command_timeout_);
    }

    void perform_actions() {
        const auto actions = renewal()->take_actions();
        for (const Renewal::Action& action : actions) {
            visit([this](const auto& what) { perform(what); }, action);
        }
    }

    void perform(const Renewal::Send& send) { post(routes_[send.master], {send.attempt}); }
    void perform(const Renewal::Renewed& renewed) { events_.renewed(*renewed.hold); }
    void perform(const Renewal::Lost& lost) { events_.lost(lost.hold, lost.server); }
    void perform(const Renewal::Silent& silent) {
        Route& route = routes_[silent.master];
        if (silent.is_told) tell(route, no_answer());
        look_for_replacement(route, silent.since);
    }

    void post(Route& route, TryCommand sent) {
        if (route.pipe && !route.node->is_current(route.pipe->connection())) {
            break_off(route, end_of_use("another server is the master"));
        } else if (route.pipe && route.pipe->idle() && !route.pipe->connection().is_in_step()) {
            break_off(route, end_of_use("an answer came that nobody had asked for"));
        }
        if (route.pipe) {
            write(route, std::move(sent));
        } else {
            route.waiting.push_back(std::move(sent));
            connect(route);
        }
    }

    void connect(Route& route, std::optional<Fault> after = {}) {
        if (!route.connect.under_way()) {
            route.connect.begin(*topology_, *route.node, std::move(after), wake_);
        }
    }

    /// For the first time over this connection.
    void write(Route& route, TryCommand sent) {
        sent.command.connected(traits_of(call_of(*sent.attempt), route.pipe->connection(),
                                         route.silence.is_reused(), route.node->key_access()));
        write_again(route, std::move(sent));
    }

    void write_again(Route& route, TryCommand sent) {
        if (!renewal()->send(*sent.attempt, route.index, Clock::now())) return;
        Pipeline<TryCommand>& pipe = *route.pipe;
        if (sent.once) pipe.add(Call::plain({"ASKING"}).wire(), TryCommand{});
        const Call call = call_of(*sent.attempt);
        const std::string bytes = call.wire(encode_options(sent.command.form(), pipe.connection()));
        pipe.add(bytes, std::move(sent));
    }

    static Call call_of(const Try& attempt) {
        const auto lease = attempt.lease();
        if (!lease) return release_call(attempt.hold());
        return extend_call(attempt.hold(), *lease, attempt.lock_alone());
    }

    /// Sends and reads as much as goes without waiting.
    void exchange() {
        // NOLINTNEXTLINE(modernize-loop-convert): a redirection may add a route
        for (std::size_t i = 0; i < routes_.size(); ++i) {
            Route& route = routes_[i];
            if (auto connected = route.connect.take()) take_up(route, *std::move(connected));
            flush(route);
            read(route);
            flush(route);
            if (route.pipe && Clock::now() >= route.gone_at()) break_off(route, no_answer());
        }
    }

    void flush(Route& route) {
        if (!route.pipe) return;
        if (auto done = route.pipe->flush(); !done) break_off(route, std::move(done).error());
    }

    void read(Route& route) {
        while (route.pipe) {
            auto answered = route.pipe->next_answer();
            if (!answered) return break_off(route, std::move(answered).error());
            if (!*answered) break;
            route.silence.answered(Clock::now(), route.pipe->idle());
            if ((*answered)->order.attempt) take(route, **std::move(answered));
        }
    }

    /// Of a connection that is of no use any more.
    static Fault end_of_use(std::string why) {
        Fault fault = io_fault(std::move(why));
        fault.disconnected = true;
        return fault;
    }

    static Fault no_answer() {
        Fault fault = unanswered_fault();
        fault.maybe_executed = true;
        return fault;
    }

    /// A connection was made, or could not be.
    void take_up(Route& route, BackgroundConnect::Outcome connected) {
        if (route.pipe) {
            if (!route.silence.gives_way(connected.has_value(), !route.pipe->idle(),
                                         route.connect.begun(), Clock::now())) {
                return;
            }
            for (TryCommand& sent : take_unanswered(route)) write_later(route, std::move(sent));
        }
        std::vector<TryCommand> waiting = std::exchange(route.waiting, {});
        std::erase_if(waiting, [](const TryCommand& sent) { return sent.attempt->is_over(); });
        if (connected) {
            route.pipe.emplace(*std::move(connected));
            route.silence.connected(Clock::now(), waiting.empty());
            for (TryCommand& sent : waiting) write(route, std::move(sent));
        } else if (!waiting.empty()) {
            tell(route, connected.error(), waiting.size(), waiting.front());
            for (const TryCommand& sent : waiting) not_sent(route, sent, connected.error());
        }
    }

    /// A server that lets nobody in for now says so: a refusal, as if it had read the command.
    void not_sent(const Route& route, const TryCommand& sent, const Fault& fault) {
        if (!fault.from_server || !fault.transient) return unanswered(route, sent);
        renewal()->refused(*sent.attempt, route.index, fault, Clock::now());
    }

    /// Ends the connection. Its commands, but for ASKING.
    static std::vector<TryCommand> take_unanswered(Route& route) {
        std::vector<TryCommand> tries = route.pipe->take_unanswered();
        route.pipe.reset();
        route.silence.disconnected();
        std::erase_if(tries, [](const TryCommand& sent) { return sent.attempt == nullptr; });
        return tries;
    }

    /// The connection is of no use any more. One that had died while it lay idle is replaced once,
    /// without a word.
    void break_off(Route& route, Fault fault) {
        bool failed = false;
        std::size_t news = 0;
        const TryCommand* one = nullptr;  // that is news
        std::vector<TryCommand> tries = take_unanswered(route);
        for (TryCommand& sent : tries) {
            if (sent.attempt->is_over()) sent.command.leave();
            const CommandStep step = sent.command.failed(failure_of(fault));
            if (step.next == CommandStep::Next::reconnect) {
                write_later(route, std::move(sent));
            } else {
                failed = true;
                if (!sent.attempt->is_over()) {
                    ++news;
                    one = &sent;
                }
                unanswered(route, sent);
            }
        }
        if (one != nullptr) tell(route, fault, news, *one);
        if (failed) connect(route, std::move(fault));
        if (!route.waiting.empty()) connect(route);
    }

    /// Once more, on the next connection.
    void write_later(Route& route, TryCommand sent) {
        renewal()->connection_replaced(*sent.attempt);
        route.waiting.push_back(std::move(sent));
    }

    void unanswered(const Route& route, const TryCommand& sent) {
        renewal()->unanswered(*sent.attempt, route.index, Clock::now());
    }

    void take(Route& route, Pipeline<TryCommand>::Answered answered) {
        TryCommand& sent = answered.order;
        const CommandStep step =
            sent.command.answered(kind_of(answered.reply, ReplyShape::integer));
        if (step.leave_server) route.node->leave(route.pipe->connection());
        if (step.next == CommandStep::Next::send) return write_again(route, std::move(sent));
        if (step.drop_connection) {
            unanswered(route, sent);
            return break_off(route, unexpected_reply());
        }
        if (!answered.reply)
            return take_error(route, step, sent, std::move(answered.reply).error());
        const auto answer = answered.reply->view().integer();
        const TimePoint now = Clock::now();
        const bool may_have_forgotten =
            topology_->rules_for(ReplyShape::integer)
                .may_have_forgotten(route.pipe->connection().started_by(), now);
        renewal()->answered(
            *sent.attempt, route.index, *answer,
            {.server = route.pipe->connection().server(), .may_have_forgotten = may_have_forgotten},
            now);
    }

    /// An error on a connection that goes on.
    void take_error(const Route& route, CommandStep step, const TryCommand& sent, Fault fault) {
        if (step.next == CommandStep::Next::redirect && topology_->voters() == 1) {
            if (redirect(route, sent, fault)) return;
            disagree(fault);
        }
        renewal()->refused(*sent.attempt, route.index, fault, Clock::now());
        Error error = std::move(fault).error;
        error.key = sent.attempt->hold().key();
        events_.failed(error);
    }

    /// Another server has what this one was asked for: from now on, or for one command.
    bool redirect(const Route& route, const TryCommand& sent, const Fault& fault) {
        const auto to = redirection_of(fault);
        if (!to) return false;
        if (!to->once) topology_->failed(*route.node, fault, Limit::in(Clock::duration::zero()));
        Node& node = to->once ? topology_->node_of(*to, *route.node)
                              : topology_->master_of(sent.attempt->hold().key());
        if (&node == route.node) return false;
        Route& next = route_to(node, sent.attempt->hold());
        if (!renewal()->redirect(*sent.attempt, route.index, next.index)) return false;
        post(next, {.attempt = sent.attempt, .once = to->once});
        return true;
    }

    void tell(const Route& route, const Fault& fault) {
        Error error = fault.error;
        if (error.node.empty()) error.node = route.node->name();
        events_.failed(error);
    }

    /// Of so many commands, each about one lock.
    void tell(const Route& route, Fault fault, std::size_t commands, const TryCommand& one) {
        if (commands == 1) {
            fault.error.key = one.attempt->hold().key();
        } else {
            fault.error.message =
                "for " + std::to_string(commands) + " commands: " + fault.error.message;
        }
        tell(route, fault);
    }

    void look_for_replacement(Route& route, TimePoint sent) {
        if (!route.pipe || !route.silence.wants_replacement(sent, Clock::now())) return;
        const bool several = topology_->voters() > 1;
        connect(route, several ? std::nullopt : std::optional{no_answer()});
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
        for (const Route& route : routes_) {
            if (!route.pipe || route.pipe->idle()) continue;
            entries.push_back(route.pipe->more_to_come());
            until = std::min(until, route.gone_at());
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
    std::deque<Route> routes_;
};

}  // namespace redlatch::inline v0::detail
