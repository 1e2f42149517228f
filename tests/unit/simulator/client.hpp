#pragma once

#include "checker.hpp"
#include "coverage.hpp"
#include "network.hpp"
#include <redlatch/async/late_answer.hpp>
#include <redlatch/core/clean_up.hpp>
#include <redlatch/core/cluster_redirection.hpp>
#include <redlatch/core/command.hpp>
#include <redlatch/core/grant.hpp>
#include <redlatch/core/hold.hpp>
#include <redlatch/core/lock_table.hpp>
#include <redlatch/core/loss.hpp>
#include <redlatch/core/master_reach.hpp>
#include <redlatch/core/quorum_call.hpp>
#include <redlatch/core/renewal.hpp>
#include <redlatch/core/sentinel_lookup.hpp>
#include <redlatch/core/sentinel_service.hpp>
#include <redlatch/core/silence.hpp>
#include <redlatch/core/slot_map.hpp>
#include <redlatch/core/slot_map_refresh.hpp>
#include <redlatch/net/exchange.hpp>
#include <redlatch/policy/lua.hpp>
#include <redlatch/policy/permits.hpp>
#include <redlatch/policy/reentrant.hpp>
#include <redlatch/policy/shared.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/service/contention.hpp>
#include <redlatch/service/hold_calls.hpp>
#include <redlatch/topology/quorum_reply.hpp>

#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

using detail::Call;
using detail::CleanUp;
using detail::Fault;
using detail::Hold;
using detail::LockTable;
using detail::Phase;
using detail::Reply;
using HoldPtr = std::shared_ptr<Hold>;

class Client;

/// What the parts of a schedule stand on.
struct World {
    const Plan* plan;
    Timeline* timeline;
    Trace* trace;
    Network* network;
    Checker* checker;
    const std::vector<std::unique_ptr<Client>>* clients;

    bool has(Mutant mutant) const { return plan->mutant == mutant; }
};

/// One that waits at the lock table: a thread that parks, or an operation without one. Lives as long as
/// the schedule.
class Sleeper : public LockTable::Waiter {
public:
    virtual ~Sleeper() = default;
    /// Wakes it, soon.
    virtual void ring() = 0;
};

/// A command that somebody waits for.
class Request {
public:
    /// Of several masters, how far it has got.
    using Done = std::function<void(Expected<Reply, Fault>, const detail::MasterSets&)>;
    /// Told of each of several masters that had not answered when the others had decided.
    using OnLate = std::function<void(bool answered)>;

    virtual ~Request() = default;
    /// Its sender waits no longer.
    virtual void cancel() = 0;
    /// From now on, that it is cancelled or out of time does not end its connection, and this is told of its answer.
    virtual void hear_late(std::function<void(const Reply&)>) {}
    /// Whether one of several masters may execute it before what the token has asked for.
    virtual bool may_overtake() const { return false; }

protected:
    static Fault cancelled() {
        return {.error = {Errc::cancelled, {}, {}, "cancelled", {}}, .transient = false};
    }
};

/// One command of a client to one master, until there is an answer or its time is over: what `Node` and
/// `Exchange` do.
class Asking final : public Request, public std::enable_shared_from_this<Asking> {
public:
    Asking(Client& client, HoldPtr hold, const Call& call, const Call& again, TimePoint answer_by,
           detail::ReplyUse use, Done done)
        : client_(&client),
          hold_(std::move(hold)),
          call_(call),
          again_(again),
          answer_by_(answer_by),
          command_(use),
          done_(std::move(done)) {}

    /// Without a connection, it makes one. `asking`: behind ASKING.
    void start(int place, std::shared_ptr<Connection> connection, bool asking = false);

    void cancel() override {
        if (!done_) return;
        Fault fault = cancelled();
        fault.maybe_executed = sent_any_;
        if (late_ && connection_ != nullptr) return abandon(std::move(fault));
        if (connection_ != nullptr) connection_->close();
        settle(Unexpected{std::move(fault)});
    }

    void hear_late(std::function<void(const Reply&)> late) override { late_ = std::move(late); }

    /// False where nothing was sent, and nothing will be.
    bool was_posted() const { return posted_; }

private:
    void connect();
    void use(std::shared_ptr<Connection> connection);
    void send();
    void arrived(std::uint64_t number, Arrived arrived);
    void count_replicas();
    void wait_for(std::int64_t replicas);
    void replicas_answered(std::uint64_t number, const Arrived& arrived,
                           const std::function<void(const Reply&)>& go_on);
    void deliver();
    void failed(detail::ConnectionFailure failure, Fault fault);
    void out_of_time();
    void abandon(Fault fault);
    void answered_late(const Arrived& arrived);
    void settle(Expected<Reply, Fault> reply) {
        if (done_) std::exchange(done_, nullptr)(std::move(reply), {});
    }

    Client* client_;
    HoldPtr hold_;  // the call borrows from it
    Call call_;
    Call again_;
    TimePoint answer_by_;
    detail::Command command_;
    Done done_;
    int place_ = 0;
    bool asking_ = false;
    std::shared_ptr<Connection> connection_{};
    TimePoint sent_{};
    std::optional<Reply> taken_{};  // while replicas are waited for
    std::function<void(const Reply&)> late_{};
    std::uint64_t sendings_ = 0;
    bool sent_any_ = false;
    bool posted_ = false;
};

inline Coverage::Machine& command_coverage() {
    static Coverage::Machine machine{"Command",
                                     {"deliver", "send", "reconnect", "redirect", "fail"}};
    return machine;
}

/// How one of several masters can be reached, as `Master` has it.
struct MasterLink {
    detail::MasterReach reach{};
    std::vector<std::function<void()>> waiting{};
    std::vector<std::weak_ptr<Connection>> made{};

    /// Of its connections, those that lie idle or are in use.
    std::ptrdiff_t connections() {
        std::erase_if(made, [](const std::weak_ptr<Connection>& one) {
            const auto connection = one.lock();
            return connection == nullptr || !connection->alive;
        });
        return std::ssize(made);
    }
};

/// What the renewal thread does: one connection to each master, on which the commands of tries are sent
/// without waiting for answers.
class RenewalDriver {
public:
    explicit RenewalDriver(Client& client, const detail::Renewal::Terms& terms)
        : client_(&client), renewal_(terms) {
        for (Link& link : links_) link.silence.emplace(terms.command_timeout);
    }

    detail::Renewal& machine() { return renewal_; }

    /// There may be something to do sooner than it knew.
    void wake_in_time();
    bool closed() const { return closed_; }

    /// How often its commands got no connection since it began to close.
    int failed_while_closing() const { return failed_while_closing_; }

private:
    using Renewal = detail::Renewal;
    using Try = Renewal::Try;

    /// The command of a try, at one master.
    struct Order {
        std::shared_ptr<Try> attempt;
        bool asking = false;
        detail::Command command{detail::ReplyUse::awaited};
        bool is_first = false;  // to be written over its connection
        std::uint64_t number = 0;
        TimePoint written_at{};
    };
    struct Link {
        std::shared_ptr<Connection> connection{};
        std::optional<detail::Silence> silence{};
        std::vector<Order> written{};
        std::vector<Order> waiting{};
        bool connecting = false;
        bool is_watched = false;

        TimePoint gone_at() const {
            return silence->gone_at(written.empty() ? TimePoint::max()
                                                    : written.front().written_at);
        }
    };

    void run();
    std::vector<detail::MasterIndex> masters();
    void post(int master, Order order);
    void perform_actions();
    void perform(const Renewal::Send& send);
    void perform(const Renewal::Renewed& renewed);
    void perform(const Renewal::Lost& lost);
    void perform(const Renewal::Silent& silent);
    void connect(int master, const std::optional<Fault>& after = {});
    void look_around(const Fault& fault);
    void take_up(int master, TimePoint begun, std::shared_ptr<Connection> made);
    Call call_of(const Try& attempt) const;
    void write(int master, Order order);
    void write_again(int master, Order order);
    void arrived(int master, const std::shared_ptr<Connection>& connection, std::uint64_t number,
                 Arrived arrived);
    void take(int master, Order order, const ModelRedis::Value& value);
    bool redirect(int master, const Order& order, const Fault& fault);
    static std::vector<Order> take_unanswered(Link& link);
    void break_off(int master, const Fault& fault);
    void write_later(Link& link, Order order);
    void unanswered(int master, const Order& order);
    void look_for_silence(int master);

    static Fault connection_ended(bool maybe_executed) {
        return {.error = {Errc::unavailable, {}, {}, "the connection has ended", {}},
                .maybe_executed = maybe_executed,
                .disconnected = true};
    }
    static Fault no_answer() {
        return {.error = {Errc::unavailable, {}, {}, "no answer in time", {}},
                .maybe_executed = true};
    }

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"Renewal",
                                         {"Send", "Renewed", "Lost", "Silent", "nothing"}};
        return machine;
    }

    static Coverage::Machine& redirections() {
        static Coverage::Machine machine{"Renewal", {"sent on", "given up"}};
        return machine;
    }
    static Coverage::Machine& replacements() {
        static Coverage::Machine machine{"Silence", {"old one gives way", "old one stays"}};
        return machine;
    }
    static constexpr milliseconds time_to_look_around{200};

    Client* client_;
    Renewal renewal_;
    std::array<Link, most_masters> links_{};
    std::uint64_t writings_ = 0;
    TimePoint wakes_at_ = TimePoint::max();
    const char* event_ = "due";
    int failed_while_closing_ = 0;
    bool closed_ = false;
};

/// Of a Cluster, the map as its client has it: carries out what the machines of the map say, as `Cluster` does.
class ClusterMap {
public:
    explicit ClusterMap(Client& client) : client_(&client) {}

    struct Master {
        int node;
        bool is_certain;  ///< no need to ask for the map first
    };
    /// Of the slot that matters.
    Master master() const {
        const auto number = map_.master_of(slot());
        if (!number) return {anybody_, false};
        return {node_at(map_.masters()[*number]), true};
    }
    Master master_for_new_command() {
        const bool suspect = refreshes_.take_suspicion();
        const Master known = master();
        return {known.node, known.is_certain && !suspect};
    }
    void suspect() { refreshes_.suspect(); }

    /// Calls `settled` once the map has been asked for, or need not be, or at `until`.
    void refresh(TimePoint until, std::function<void()> settled);

    /// A fault may say that the slot has moved for good.
    void note_move(const Fault& fault) {
        const auto to = detail::redirection_of(fault);
        if (to && !to->once) map_.moved(to->slot, {to->host, to->port});
    }
    void failed(const Fault& fault, TimePoint until) {
        note_move(fault);
        if (!detail::puts_map_in_doubt(fault)) return;
        suspect();
        refresh(until, [] {});
    }

private:
    using Turn = detail::SlotMapRefresh::Turn;
    using Outcome = detail::SlotMapRefresh::Outcome;

    static unsigned slot() {
        static const unsigned slot = detail::slot_of(Names::get().of(0)->lock);
        return slot;
    }
    /// What a node tells that takes `master` for the master of the slot.
    static std::optional<detail::SlotMap> told(int master, int by);

    struct Waiter {
        TimePoint until;
        std::function<void()> settled;
    };

    void take(const char* event, Turn turn, Waiter waiter);
    void ask_next(const std::shared_ptr<detail::SlotMapInquiry>& inquiry,
                  const std::function<void()>& settled);
    void end(Outcome outcome, const std::function<void()>& settled);

    static Coverage::Machine& turns() {
        static Coverage::Machine machine{"SlotMapRefresh", {"ask", "wait", "skip"}};
        return machine;
    }
    static Coverage::Machine& inquiries() {
        static Coverage::Machine machine{"SlotMapInquiry",
                                         {"learned", "nobody_knows", "cut_short"}};
        return machine;
    }

    Client* client_;
    detail::SlotMap map_{};
    detail::SlotMapRefresh refreshes_{};
    std::optional<detail::ServerAddress> informant_{};
    detail::ServerAddress asked_first_{};
    int anybody_ = 0;
    std::vector<std::shared_ptr<Waiter>> waiting_{};
};

/// A connection to the master that Sentinels name: carries out what `SentinelLookup` says, as `SentinelDialer`
/// does.
class Dialling : public std::enable_shared_from_this<Dialling> {
public:
    using Wanted = std::function<bool()>;
    using Done = std::function<void(Expected<std::shared_ptr<Connection>, Fault>)>;

    /// `wanted`: whether somebody still waits for it.
    Dialling(Client& client, TimePoint deadline, Wanted wanted, Done done);
    void start();

private:
    using Lookup = detail::SentinelLookup;

    void act(const char* event, Lookup::Action action);
    void carry_out(const Lookup::Ask& ask);
    void carry_out(const Lookup::TryMaster& attempt);
    void carry_out(const Lookup::GiveUp& end);
    void connect(const detail::ServerAddress& master);

    static Coverage::Machine& coverage() {
        static Coverage::Machine machine{"SentinelLookup", {"Ask", "TryMaster", "GiveUp"}};
        static_assert(Lookup::Action::size == 3);
        return machine;
    }

    Client* client_;
    Lookup lookup_;
    TimePoint deadline_;
    std::optional<detail::ServerAddress> known_;  // as the search began
    Wanted wanted_;
    Done done_;
    int asked_ = 0;
};

/// One client in a process of its own: its lock table, its connections, its renewal and its
/// subscription, and what they do together (`Session`).
class Client {
public:
    Client(const World& world, int number, const ProcessPlan& plan)
        : world_(&world),
          number_(number),
          plan_(&plan),
          noise_(plan.noise),
          host_(*world.timeline, plan.clock, plan.rate_ppm),
          table_(plan.noise),
          service_("service", static_cast<std::size_t>(std::max(world.plan->nodes.sentinels, 1))),
          renewal_(*this, {.several_masters = world.plan->masters > 1,
                           .command_timeout = world.plan->command_timeout,
                           .late_window = late_window()}) {}
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    const World& world() const { return *world_; }
    const ProcessPlan& plan() const { return *plan_; }
    int number() const { return number_; }
    Dice& noise() { return noise_; }
    Host& host() { return host_; }
    TimePoint now() const { return host_.clock(); }
    detail::Contention& contention() { return contention_; }
    RenewalDriver& renewal() { return renewal_; }
    milliseconds command_timeout() const { return world_->plan->command_timeout; }

    /// How long it takes until a thread that was woken runs.
    Moment start_up() { return noise_.span(0ns, world_->plan->latency / 4 + 1us); }

    // ---- The lock table

    /// Uses the lock table, and wakes whom that wakes.
    template <class Use>
    decltype(auto) with_table(Use use) {
        struct Wake {
            LockTable* table;
            ~Wake() {
                while (auto* const waiter = table->take_woken()) {
                    static_cast<Sleeper*>(waiter)->ring();
                }
            }
        } const wake{&table_};
        return use(table_);
    }
    const LockTable& table() const { return table_; }

    /// Ends an acquisition, and hands the lock to the next waiter here if that takes no command.
    template <class End>
    LockTable::Ending end_at_table(End end) {
        return with_table([&](LockTable& table) {
            LockTable::Ending ending = end(table);
            table.conclude(ending, now());
            return ending;
        });
    }

    // ---- Names

    detail::Token new_token(detail::LockOwner owner) {
        const auto thread = owner.thread();
        const std::string name =
            thread ? std::to_string(static_cast<std::uint64_t>(*thread)) : std::string{"hold"};
        return {client_id(number_) + ":m:" + name + ":" + std::to_string(++tokens_)};
    }
    std::uint64_t new_id() { return ++ids_; }

    /// Who comes to the lock table, in which order: a writer that may wait is looked for until it goes.
    void comes(const void* who, int lock, bool waits_to_write) {
        comers_[who] = {.number = ++arrived_, .lock = lock, .waits_to_write = waits_to_write};
    }
    void goes(const void* who) { comers_.erase(who); }
    std::uint64_t came_at(const void* who) const { return comers_.at(who).number; }
    std::vector<std::uint64_t> waiting_writers(int lock) const {
        std::vector<std::uint64_t> writers;
        for (const auto& [who, comer] : comers_) {
            if (comer.waits_to_write && comer.lock == lock) writers.push_back(comer.number);
        }
        return writers;
    }

    // ---- Connections

    /// Runs a call where its key is.
    std::shared_ptr<Request> ask(HoldPtr hold, const Call& call, const Call& again,
                                 TimePoint answer_by, Request::Done done,
                                 Request::OnLate on_late = {});
    /// Nobody waits for the answer. False where it was not sent, as on a connection that does not know
    /// the script.
    bool post(HoldPtr hold, const Call& call, TimePoint answer_by, Request::Done done) {
        const int place = place_of_master();
        auto connection = take_idle(place);
        if (connection == nullptr) return false;
        auto asking = std::make_shared<Asking>(*this, std::move(hold), call, call, answer_by,
                                               detail::ReplyUse::left, std::move(done));
        asking->start(place, std::move(connection));
        return asking->was_posted();
    }

    std::shared_ptr<Connection> take_idle(int place) {
        return take_idle(place, [](const Connection&) { return true; });
    }
    /// The last one that was given back and fits; null where none does.
    template <class Fits>
    std::shared_ptr<Connection> take_idle(int place, Fits fits) {
        auto& idle = idle_[static_cast<std::size_t>(place)];
        std::erase_if(idle, [this](const auto& connection) {
            return !connection->alive || !is_current(*connection);
        });
        const auto found =
            std::find_if(idle.rbegin(), idle.rend(), [&](const auto& one) { return fits(*one); });
        if (found == idle.rend()) return nullptr;
        auto connection = std::move(*found);
        idle.erase(std::next(found).base());
        connection->reused = !std::exchange(connection->fresh, false);
        const auto& known = service_.master();
        if (known) world_->checker->asks(connection->node, node_at(*known));
        return connection;
    }

    // ---- Of several masters, one

    MasterLink& link(int master) { return links_[static_cast<std::size_t>(master)]; }

    /// Has a connection made, and calls `wake` when there is news.
    detail::ConnectStatus request(int master, std::function<void()> wake) {
        MasterLink& there = link(master);
        const bool connected = there.reach.connects();
        if (there.reach.wants_room(has_room(there))) drop_idle(master);
        detail::ConnectStatus status = there.reach.request(connected || has_room(there), now());
        if (status.kind == detail::ConnectStatus::Kind::none) return status;
        if (!connected && there.reach.connects()) {
            host_.soon(2 * world_->network->latency(noise_), [this, master] { connect(master); });
        }
        there.waiting.push_back(std::move(wake));
        return status;
    }

    /// A command to it met a fault.
    void master_failed(int master, const Fault& fault) {
        if (link(master).reach.failed(fault)) drop_idle(master);
    }
    bool has_room(MasterLink& there) const {
        return there.connections() < world_->plan->max_connections;
    }
    void drop_idle(int master) {
        for (const auto& idle : std::exchange(idle_[static_cast<std::size_t>(master)], {})) {
            idle->close();
        }
    }
    void give_back(std::shared_ptr<Connection> connection) {
        const int place = world_->plan->has_sentinels() ? 0 : connection->place();
        idle_[static_cast<std::size_t>(place)].push_back(std::move(connection));
    }

    // ---- Of one that is one of several nodes

    ClusterMap& map() { return map_; }
    detail::SentinelService& service() { return service_; }

    /// As far as is known; of Sentinels', whoever it is.
    int place_of_master() const { return world_->plan->is_cluster() ? map_.master().node : 0; }

    /// A connection to the master, wherever that is, or to a node of a Cluster. Nothing happens any more once it is
    /// not wanted.
    void dial(int place, TimePoint deadline, Dialling::Wanted wanted, Dialling::Done done) {
        if (world_->plan->has_sentinels()) {
            return std::make_shared<Dialling>(*this, deadline, std::move(wanted), std::move(done))
                ->start();
        }
        const Moment way = 2 * world_->network->latency(noise_);
        host_.soon(way, [this, place, wanted = std::move(wanted), done = std::move(done)] {
            if (!wanted()) return;
            auto made = world_->network->connect(host_, noise_, place);
            if (made == nullptr) return done(Unexpected{refused()});
            done(std::move(made));
        });
    }
    static Fault refused() {
        return {.error = {Errc::unavailable, {}, {}, "connection refused", {}}};
    }

    /// Whether a new connection would lead to the same server, as far as is known.
    bool is_current(const Connection& connection) const { return connection.epoch == epoch_; }
    unsigned epoch() const { return epoch_; }

    /// The server at its other end is a replica.
    void leave(const Connection& connection) {
        if (connection.epoch == epoch_ && world_->plan->has_sentinels()) begin_epoch();
    }
    /// The master is there, by the word of a Sentinel.
    void found(const detail::ServerAddress& master) { arrived(service_.arrive(master)); }
    /// By a search. False where that is outdated.
    bool found(const detail::ServerAddress& master, const detail::SentinelLookup& search) {
        const auto arrival = service_.arrive(master, search);
        arrived(arrival);
        return arrival != detail::SentinelService::Arrival::outdated;
    }
    /// A Sentinel tells of another master.
    void hear_of_master(const std::string& message) {
        if (closed_) return;
        if (const auto master = service_.switched(message)) found(*master);
    }

    /// When a command that is given up at `answer_by` must do nothing any more. The clocks' rates
    /// differ, and the server's may have been seen long ago.
    Moment too_late(TimePoint answer_by) const {
        const Moment end = host_.moment_of(std::max(answer_by, now()));
        return end + end / 50 + detail::late_margin + 1ms;
    }
    Clock::duration late_window() const { return command_timeout() + detail::late_margin; }

    // ---- Holds

    void dismiss(Hold& hold) {
        if (hold.renewed_by_watchdog) renewal_.machine().dismiss(hold);
    }

    void declare_lost(const HoldPtr& hold, detail::ServerKeeps server, bool closing = false) {
        if (hold->in(Phase::held)) world_->checker->lost(*hold, lock_of(*hold), closing);
        const bool was_removed = server == detail::ServerKeeps::removed;
        if (was_removed || closed_) world_->checker->has_no_delay(*hold);
        detail::lose(*this, hold, server);
    }
    void lose_removed(const HoldPtr& hold) {
        declare_lost(hold, detail::ServerKeeps::removed);
        clean_up(hold, {.at_once = true});
    }
    bool has_several_masters() const { return world_->plan->masters > 1; }
    /// As the product's topology has them.
    detail::QuorumRules quorum_rules(detail::ReplyShape answer) const {
        const Plan& plan = *world_->plan;
        if (!has_several_masters()) return {};
        return {detail::subject_of(answer), plan.node_timeout, plan.longest_ttl()};
    }
    static std::vector<HoldPtr> close_claim_of(const Hold& hold) {
        return detail::close_claim_of(hold);
    }
    void leave(Hold& hold) {
        table_.leave_claim(hold);
        dismiss(hold);
    }
    void tell_lost(const HoldPtr& hold) {
        with_table([&](LockTable& table) { table.lost(hold); });
        const Moment pause = world_->has(Mutant::loss_told_late) ? Moment{1s} : start_up();
        if (hold->loss_is_awaited()) host_.soon(pause, [hold] { hold->tell_lost(); });
    }

    void declare_lost(const std::vector<HoldPtr>& holds) {
        for (const auto& hold : holds) {
            if (hold->in(Phase::held)) declare_lost(hold, detail::ServerKeeps::nothing);
            world_->checker->needs_no_delay(*hold);  // as the server has the claim no more
        }
    }

    void clean_up(const HoldPtr& hold, CleanUp what) {
        if (!what.needed() || !detail::may_clean_up(*hold)) return;
        Moment pause = what.once_more ? Moment{late_window()} : 0ns;
        const TimePoint over = hold->left_until.value_or(
            detail::delay_over(now(), hold->terms().lock_delay, hold->terms().drift));
        if (what.is_delayed) pause = std::max<Moment>(pause, over - now());
        world_->checker->cleans_up(hold->token().bytes, what, world_->timeline->now() + pause);
        (*world_->trace)("cleans up ", tail(hold->token().bytes));
        if (!renewal_.closed()) {
            renewal_.machine().clean_up(hold, what, now());
            return renewal_.wake_in_time();
        }
        world_->checker->clean_up_failed();
        if (!detail::is_released_when_closed(*hold, what)) return;
        const Call call = detail::release_call(*hold, now());
        ask(hold, call, call, now() + command_timeout(), [](const auto&, const auto&) {});
    }

    void clean_up(detail::QueuePlace place) {
        const CleanUp what = detail::after_abandoned_try(true, place.unclear_try);
        const auto hold = std::make_shared<Hold>(std::move(place.terms), std::move(place.token),
                                                 detail::LockOwner{});
        hold->open_tries.longest = place.tries.longest;
        clean_up(hold, what);
    }

    /// Somebody wants to be told of a loss: by the end of the validity, whatever the server does.
    void watch_clock(const HoldPtr& hold) {
        if (!hold->watched_by_notifier.exchange(true)) watch_on(hold);
    }
    void watch_on(const HoldPtr& hold) {
        host_.later(host_.moment_of(hold->valid_until()), [this, hold] {
            if (!hold->in(Phase::held)) return;
            if (hold->valid(now())) return watch_on(hold);
            declare_lost(hold, detail::ServerKeeps::nothing);
        });
    }

    static detail::PolicyTraits traits_of(const Plan& plan) {
        if (plan.claims == Claims::shared) return detail::traits_of<Shared>();
        if (plan.claims == Claims::permits) return detail::traits_of<Permits>();
        return plan.on_hash ? detail::traits_of<Reentrant>() : detail::traits_of<Simple>();
    }

    static int lock_of(const Hold& hold) { return Names::get().lock_of(hold.key()); }

    // ---- The subscription

    bool can_subscribe() const { return !plan_->deaf; }
    bool listening() const { return listening_; }

    void subscribe() {
        if (plan_->deaf || closed_) return;
        const bool elsewhere = world_->plan->is_cluster() && listens_at_ != place_of_master();
        if (subscribed_ && !elsewhere) return;
        subscribed_ = true;
        listens_at_ = place_of_master();
        connected_ = listening_ = false;
        resubscribe(world_->network->latency(noise_));
    }
    int listens_at() const { return listens_at_; }

    /// From now on messages get lost; the client finds out, and so does the server, sometime before
    /// the client is back.
    void lose_subscription(Moment for_how_long) {
        if (!connected_) return;
        (*world_->trace)("subscription of ", number_, " is dead");
        connected_ = false;
        resubscribe(for_how_long + 1us);
        while_cut_off(for_how_long, [this] { listening_ = false; });
        while_cut_off(for_how_long, [this] { tell_server(false); });
        world_->checker->damaged(world_->timeline->now() + for_how_long);
    }
    bool connected() const { return connected_; }

    void hear(const std::string& message) {
        // Every node of a Cluster passes messages on.
        const bool from_master = !world_->plan->is_cluster() || listens_at_ == place_of_master();
        if (closed_ || !from_master) return;
        const auto grant = detail::parse_grant(message);
        if (!grant) world_->checker->fail("a message that is none: " + message);
        (*world_->trace)("hears of ", tail(grant->token), " lease ", grant->ttl.count());
        const bool delivered = with_table([&](LockTable& table) { return table.deliver(*grant); });
        table_coverage().took("deliver", delivered ? 0 : 1);
        if (delivered) return;
        world_->checker->granted_in_vain(grant->token);
        if (world_->has(Mutant::unknown_grant_ignored)) return;
        detail::release_unowned(*this, terms_of(*grant), {grant->token});
    }

    /// Somebody sleeps who contends with that token, or has gone on.
    void pauses(const Hold& hold) {
        const auto [pause, begins] = pausing_.try_emplace(hold.token().bytes);
        if (begins) pause->second = {hold.key(), ++pauses_};
    }
    void goes_on(const Hold& hold) { pausing_.erase(hold.token().bytes); }

    /// A try of this process that was given up was answered.
    void hear_late(const Hold& asked, detail::AbandonedTry given_up, const Reply& reply) {
        auto grant = detail::late_grant(asked, given_up, reply);
        if (!grant || closed_) return;
        (*world_->trace)("hears late of ", tail(grant->token));
        expect_end_of_pause(grant->token);
        if (world_->has(Mutant::late_answer_unheard)) return;
        if (world_->has(Mutant::late_answer_counted_from_arrival)) grant->answers->sent = now();
        if (world_->has(Mutant::late_answer_to_anyone)) misdirect(*grant);
        const bool delivered = with_table([&](LockTable& table) { return table.deliver(*grant); });
        table_coverage().took("deliver late", delivered ? 0 : 1);
        if (delivered || contending_.contains(grant->token)) return;
        world_->checker->answered_in_vain(grant->token);
        if (world_->has(Mutant::late_answer_of_nobody_ignored)) return;
        detail::release_unowned(*this, asked.terms(), asked.token());
    }
    HoldPtr cleaned_up(std::string_view token) { return renewal_.machine().cleaned_up(token); }

    /// Somebody asks with that token, and with another one from now on, or none.
    void contends(std::string& with, std::string now) {
        contending_.erase(std::exchange(with, std::move(now)));
        if (!with.empty()) contending_.insert(with);
    }

    /// Whoever sleeps with the token is woken now.
    void expect_end_of_pause(const std::string& token) {
        const auto pause = pausing_.find(token);
        if (pause == pausing_.end()) return;
        host_.soon(Moment{world_->plan->latency} + 1ms,
                   [this, token, number = pause->second.number] {
                       const auto later = pausing_.find(token);
                       if (closed_ || later == pausing_.end() || later->second.number != number)
                           return;
                       world_->checker->fail("waits for a lock that its token has got");
                   });
    }

    void misdirect(detail::Grant& grant) const {
        for (const auto& [token, pause] : pausing_) {
            if (pause.key != grant.key) continue;
            grant.token = token;
            grant.answers->number = std::numeric_limits<std::uint64_t>::max();
        }
    }

    // ---- Its end

    void crash() {
        (*world_->trace)("process ", number_, " crashes");
        host_.crash();
        // Its machine may be gone as well; then the server takes a while to notice.
        const Moment notice = noise_.pick<Moment>({0ns, 1s, 100s});
        world_->timeline->at(world_->timeline->now() + notice, [this] { tell_server(false); });
    }

    /// As `~Client` does it.
    void close() {
        if (std::exchange(closed_, true)) return;
        (*world_->trace)("client ", number_, " closes");
        world_->checker->closes(number_);
        auto remains = with_table([](LockTable& table) { return table.close(); });
        for (const auto& hold : remains.holds) {
            declare_lost(hold, detail::ServerKeeps::lock, true);
        }
        for (auto& place : remains.places) clean_up(std::move(place));
        renewal_.machine().close(now());
        renewal_.wake_in_time();
        host_.soon(2 * Moment{command_timeout()},
                   [this, since = world_->timeline->now(), held = std::move(remains.holds)] {
                       if (host_.frozen_until() > since) return;
                       if (!renewal_.closed()) world_->checker->fail("closing takes too long");
                       if (renewal_.failed_while_closing() > 1) return;
                       for (const auto& hold : held) {
                           world_->checker->has_closed(*hold, lock_of(*hold));
                       }
                   });
        connected_ = listening_ = false;
        ++connection_;
        tell_server(false);
        world_->checker->ended(world_->timeline->now());
    }
    bool closed() const { return closed_; }

    static Coverage::Machine& table_coverage() {
        static Coverage::Machine machine{"LockTable", {"yes", "no"}};
        return machine;
    }

private:
    detail::HoldTerms terms_of(const detail::Grant& grant) const {
        return {.keys = Names::get().of(Names::get().lock_of(grant.key)),
                .traits = traits_of(*world_->plan),
                .lease = grant.ttl,
                .drift = {},
                .lock_delay = {},
                .max_hold = {},
                .claim = {.weight = grant.weight}};
    }

    void connect(int master) {
        MasterLink& there = link(master);
        auto made = world_->network->connect(host_, noise_, master);
        there.reach.connected(made == nullptr ? std::optional{refused()} : std::nullopt, now());
        if (made != nullptr) {
            made->fresh = true;
            there.made.push_back(made);
            give_back(std::move(made));
        }
        for (const auto& wake : std::exchange(there.waiting, {})) wake();
    }

    void begin_epoch() {
        ++epoch_;
        lose_subscription(1us);
    }

    static Coverage::Machine& arrivals() {
        static Coverage::Machine machine{"SentinelService", {"first", "same", "moved", "outdated"}};
        return machine;
    }
    void arrived(detail::SentinelService::Arrival arrival) {
        arrivals().took("arrive", static_cast<std::size_t>(arrival));
        if (arrival == detail::SentinelService::Arrival::moved) begin_epoch();
    }

    void tell_server(bool subscribed) {
        world_->network->server(0).set_subscribed(number_,
                                                  subscribed ? listens_at_ : Server::nobody);
    }

    void while_cut_off(Moment for_how_long, std::function<void()> task) {
        const Moment when = world_->timeline->now() + noise_.span(0ns, for_how_long);
        world_->timeline->at(when, [this, connection = connection_, task = std::move(task)] {
            if (connection == connection_) task();
        });
    }

    void resubscribe(Moment pause) {
        const int connection = ++connection_;
        host_.soon(pause, [this, connection] {
            if (connection != connection_) return;
            if (!world_->plan->has_nodes()) return subscribed(connection);
            dial(
                listens_at_, now() + command_timeout(),
                [this, connection] { return connection == connection_; },
                [this, connection](const auto& made) {
                    // Nobody needs it, or not there: who waits again begins anew.
                    const bool elsewhere =
                        world_->plan->is_cluster() && listens_at_ != place_of_master();
                    if (!made) subscribed_ = table_.size() != 0 && !elsewhere;
                    if (!subscribed_) return;
                    if (!made) return resubscribe(resubscribe_pause);
                    listens_at_ = (*made)->node;
                    subscribed(connection);
                });
        });
    }
    void subscribed(int connection) {
        connected_ = true;
        tell_server(true);
        host_.soon(2 * world_->network->latency(noise_), [this, connection] {
            if (connection != connection_) return;
            listening_ = true;
            with_table([this](LockTable& table) { table.recheck_all(now()); });
        });
    }

    const World* world_;
    int number_;
    const ProcessPlan* plan_;
    Dice noise_;
    Host host_;
    LockTable table_;
    detail::Contention contention_{};
    static constexpr Moment resubscribe_pause = 100ms;

    std::array<std::vector<std::shared_ptr<Connection>>, most_masters> idle_{};
    std::array<MasterLink, most_masters> links_{};
    ClusterMap map_{*this};
    detail::SentinelService service_;
    unsigned epoch_ = 0;
    RenewalDriver renewal_;
    struct Pausing {
        std::string key;
        std::uint64_t number;
    };
    std::set<std::string> contending_{};        // the tokens of those who ask
    std::map<std::string, Pausing> pausing_{};  // by the token that they contend with
    std::uint64_t pauses_ = 0;
    std::uint64_t tokens_ = 0;
    std::uint64_t ids_ = 0;
    struct Comer {
        std::uint64_t number;
        int lock;
        bool waits_to_write;
    };
    std::map<const void*, Comer> comers_;
    std::uint64_t arrived_ = 0;
    bool subscribed_ = false;
    bool listening_ = false;
    bool connected_ = false;
    int listens_at_ = 0;
    int connection_ = 0;
    bool closed_ = false;
};

// ---- One command

inline std::size_t verb_of(Client& client, const Call& call, const Connection& connection) {
    if (!call.is_script()) return 0;
    const Server& server = client.world().network->server(connection.master);
    return static_cast<std::size_t>(server.scripts().find(call.script()->sha())->verb);
}

inline detail::CommandTraits traits_of(Client& client, const Call& call,
                                       const Connection& connection) {
    return {.is_script = call.is_script(),
            .can_omit_keys = call.can_omit_keys(),
            .reused = connection.reused,
            .script_known = connection.scripts.test(verb_of(client, call, connection))};
}

inline detail::EncodeOptions encode(const detail::Command& command, const Connection& connection,
                                    TimePoint sent, TimePoint answer_by) {
    detail::EncodeOptions options{.form = command.form()};
    options.server = *connection.server;
    options.server_deadline =
        connection.clock.server_deadline(sent, detail::saturating_sub(answer_by, sent));
    return options;
}

/// What an answer says, and what it tells of the connection.
inline Expected<Reply, Fault> decode(Client& client, const Call& call, Connection& connection,
                                     TimePoint sent, const ModelRedis::Value& value) {
    if (value.is_error()) {
        const auto meaning = detail::classify_server_error(value.text);
        Fault fault{.error = {meaning.code, {}, {}, value.text, {}},
                    .transient = meaning.transient};
        if (const auto time = detail::late_reply_time(fault)) {
            connection.clock.answered(sent, *time, client.now());
        }
        return Unexpected{std::move(fault)};
    }
    Reply reply{to_hiredis(value)};
    if (const auto time = reply.view().time(call.shape())) {
        connection.clock.answered(sent, *time, client.now());
    }
    if (call.is_script()) connection.scripts.set(verb_of(client, call, connection));
    reply.server = connection.server;
    return reply;
}

/// What to do after that. Completes what it says.
inline detail::CommandStep judge(detail::Command& command, Expected<Reply, Fault>& reply) {
    static constexpr std::array events{"value",  "misshapen",  "unknown_script", "late",
                                       "denied", "not_master", "redirected",     "error"};
    const auto kind = reply ? detail::ReplyKind::value : detail::kind_of(reply.error());
    const detail::CommandStep step = command.answered(kind);
    command_coverage().took(events[static_cast<std::size_t>(kind)],
                            static_cast<std::size_t>(step.next));
    if (reply) {
        reply->repeated = command.unclear();
    } else {
        reply.error().maybe_executed = command.unclear();
    }
    return step;
}

inline void Asking::start(int place, std::shared_ptr<Connection> connection, bool asking) {
    place_ = place;
    asking_ = asking;
    const Moment patience = client_->host().moment_of(answer_by_);
    client_->host().later(patience, [self = shared_from_this()] { self->out_of_time(); });
    if (connection != nullptr) return use(std::move(connection));
    connect();
}

/// Making a connection takes a round trip, or more.
inline void Asking::connect() {
    const auto self = shared_from_this();
    client_->dial(
        place_, answer_by_, [self] { return self->done_ != nullptr; },
        [self](Expected<std::shared_ptr<Connection>, Fault> made) {
            if (made) return self->use(*std::move(made));
            self->failed({}, std::move(made).error());
        });
}

inline void Asking::use(std::shared_ptr<Connection> connection) {
    connection_ = std::move(connection);
    const Call& call = command_.reconnected() ? again_ : call_;
    posted_ = command_.connected(traits_of(*client_, call, *connection_));
    if (!posted_) {
        client_->give_back(std::move(connection_));
        done_ = nullptr;
        return;
    }
    send();
}

inline void Asking::send() {
    Client& client = *client_;
    const Call& call = command_.reconnected() ? again_ : call_;
    sent_ = client.now();
    sent_any_ = true;
    ++sendings_;
    client.world().network->send(
        client.host(), client.noise(), connection_, call,
        encode(command_, *connection_, sent_, answer_by_), client.number(),
        client.too_late(answer_by_),
        [self = shared_from_this(), number = sendings_](Arrived what) {
            self->arrived(number, std::move(what));
        },
        asking_);
}

inline void Asking::arrived(std::uint64_t number, Arrived arrived) {
    if (number != sendings_) return;
    if (!done_) return answered_late(arrived);
    if (!arrived.value) {
        return failed({.disconnected = true, .maybe_executed = arrived.maybe_executed},
                      {.error = {Errc::unavailable, {}, {}, "the connection has ended", {}}});
    }
    const Call& call = command_.reconnected() ? again_ : call_;
    auto reply = decode(*client_, call, *connection_, sent_, *arrived.value);
    const detail::CommandStep step = judge(command_, reply);
    if (step.leave_server) client_->leave(*connection_);
    if (step.next == detail::CommandStep::Next::send) return send();
    if (reply && call.replicas() != Replicas::none() && reply->view().is_taken(call.shape())) {
        taken_ = *std::move(reply);
        if (call.replicas() == Replicas::all()) return count_replicas();
        return wait_for(call.replicas().count());
    }
    client_->give_back(std::move(connection_));
    settle(std::move(reply));
}

// What `Connection::wait_for` does.
inline void Asking::count_replicas() {
    Client& client = *client_;
    client.world().network->count_replicas(
        client.host(), client.noise(), connection_, hold_->token().bytes,
        [self = shared_from_this(), number = sendings_](const Arrived& arrived) {
            self->replicas_answered(number, arrived, [self](const Reply& reply) {
                self->wait_for(*reply.view().integer());
            });
        });
}

inline void Asking::wait_for(std::int64_t replicas) {
    Client& client = *client_;
    taken_->replicas_wanted = replicas;
    if (replicas == 0) return deliver();
    const auto left = std::chrono::floor<milliseconds>(answer_by_ - client.now());
    const milliseconds early = std::min<milliseconds>(left / 2, 120ms);
    client.world().network->wait(
        client.host(), client.noise(), connection_, client.number(), hold_->token().bytes, replicas,
        std::max(left - early, 1ms),
        [self = shared_from_this(), number = sendings_](const Arrived& arrived) {
            self->replicas_answered(number, arrived, [self](const Reply& reply) {
                self->taken_->replicas = *reply.view().integer();
                self->deliver();
            });
        });
}

inline void Asking::replicas_answered(std::uint64_t number, const Arrived& arrived,
                                      const std::function<void(const Reply&)>& go_on) {
    if (!done_ || number != sendings_) return;
    if (!arrived.value) {
        return failed({.disconnected = true, .maybe_executed = true},
                      {.error = {Errc::unavailable, {}, {}, "the connection has ended", {}}});
    }
    auto reply = decode(*client_, Call::plain({}), *connection_, sent_, *arrived.value);
    if (reply) return go_on(*reply);
    failed({.disconnected = false, .maybe_executed = true}, std::move(reply).error());
}

inline void Asking::deliver() {
    client_->give_back(std::move(connection_));
    settle(*std::exchange(taken_, std::nullopt));
}

inline void Asking::failed(detail::ConnectionFailure failure, Fault fault) {
    if (connection_ != nullptr) connection_->close();
    connection_ = nullptr;
    taken_.reset();
    ++sendings_;
    const detail::CommandStep step = command_.failed(failure);
    command_coverage().took("failed", static_cast<std::size_t>(step.next));
    if (step.next == detail::CommandStep::Next::reconnect) return connect();
    fault.maybe_executed = command_.unclear();
    settle(Unexpected{std::move(fault)});
}

inline void Asking::out_of_time() {
    if (!done_) return;
    // The lock is ours, and nobody knows which replicas have it.
    if (taken_ && taken_->replicas_wanted > 0) {
        connection_->close();
        return settle(*std::exchange(taken_, std::nullopt));
    }
    Fault fault{.error = {Errc::unavailable, {}, {}, "no answer in time", {}}};
    if (late_ && connection_ != nullptr) {
        fault.maybe_executed = true;
        return abandon(std::move(fault));
    }
    failed({.disconnected = false, .maybe_executed = connection_ != nullptr}, std::move(fault));
}

/// Its connection lives on for a while, as a link of the engine's does.
inline void Asking::abandon(Fault fault) {
    client_->host().soon(3 * Moment{client_->command_timeout()}, [self = shared_from_this()] {
        if (self->connection_ != nullptr) std::exchange(self->connection_, nullptr)->close();
    });
    settle(Unexpected{std::move(fault)});
}

inline void Asking::answered_late(const Arrived& arrived) {
    if (!late_ || connection_ == nullptr || !arrived.value) return;
    const Call& call = command_.reconnected() ? again_ : call_;
    const auto reply = decode(*client_, call, *connection_, sent_, *arrived.value);
    client_->give_back(std::exchange(connection_, nullptr));
    if (reply) late_(*reply);
}

// ---- Renewal

inline void RenewalDriver::wake_in_time() {
    if (closed_) return;
    const TimePoint due = renewal_.next_due();
    if (due >= wakes_at_) return;
    wakes_at_ = due;
    Host& host = client_->host();
    const Moment when =
        due == TimePoint::min() ? client_->world().timeline->now() : host.moment_of(due);
    if (when == Moment::max()) return;
    host.later(when + client_->start_up() / 4, [this, due] {
        if (wakes_at_ != due) return;
        wakes_at_ = TimePoint::max();
        run();
    });
}

inline void RenewalDriver::run() {
    if (closed_) return;
    const TimePoint now = client_->now();
    for (const auto& attempt : renewal_.take_due(now)) {
        event_ = attempt->lease() ? "renewal due" : "clean-up due";
        renewal_.begin(attempt, masters(), now);
        perform_actions();
    }
    event_ = "time has passed";
    renewal_.pass_time(now);
    perform_actions();
    if (renewal_.is_closed(now)) {
        closed_ = true;
        return;
    }
    wake_in_time();
}

inline std::vector<detail::MasterIndex> RenewalDriver::masters() {
    const Plan& plan = *client_->world().plan;
    if (plan.has_nodes()) return {static_cast<detail::MasterIndex>(client_->place_of_master())};
    std::vector<detail::MasterIndex> masters;
    for (int i = 0; i < plan.masters; ++i) masters.push_back(static_cast<detail::MasterIndex>(i));
    return masters;
}

inline void RenewalDriver::perform_actions() {
    const auto actions = renewal_.take_actions();
    if (actions.empty()) coverage().took(event_, 4);
    for (const Renewal::Action& action : actions) {
        coverage().took(event_, action.index());
        visit([this](const auto& what) { perform(what); }, action);
    }
}

inline void RenewalDriver::perform(const Renewal::Send& send) {
    post(static_cast<int>(send.master), {.attempt = send.attempt});
}

inline void RenewalDriver::post(int master, Order order) {
    Link& link = links_[static_cast<std::size_t>(master)];
    const bool current = link.connection != nullptr && client_->is_current(*link.connection);
    if (link.connection != nullptr && !(current && link.connection->alive)) {
        break_off(master, connection_ended(false));
    }
    if (link.connection != nullptr) return write(master, std::move(order));
    link.waiting.push_back(std::move(order));
    connect(master);
}

/// Another server has what this one was asked for.
inline bool RenewalDriver::redirect(int master, const Order& order, const Fault& fault) {
    const auto to = detail::redirection_of(fault);
    if (!to) return false;
    client_->map().note_move(fault);
    const int next = to->once ? node_at({to->host, to->port}) : client_->map().master().node;
    if (next == master) return false;
    const bool sent_on = renewal_.redirect(*order.attempt, static_cast<detail::MasterIndex>(master),
                                           static_cast<detail::MasterIndex>(next));
    redirections().took("redirect", sent_on ? 0 : 1);
    if (sent_on) post(next, {.attempt = order.attempt, .asking = to->once});
    return sent_on;
}

inline void RenewalDriver::perform(const Renewal::Renewed& renewed) {
    client_->world().checker->renewed(*renewed.hold);
    client_->world().checker->prolonged(
        *renewed.hold, Client::lock_of(*renewed.hold),
        links_[0].connection == nullptr ? nullptr : links_[0].connection->server, 0);
}

inline void RenewalDriver::perform(const Renewal::Lost& lost) {
    client_->declare_lost(lost.hold, lost.server);
}

inline void RenewalDriver::perform(const Renewal::Silent& silent) {
    Link& link = links_[silent.master];
    if (link.connection == nullptr ||
        !link.silence->wants_replacement(silent.since, client_->now())) {
        return;
    }
    connect(static_cast<int>(silent.master), no_answer());
}

inline void RenewalDriver::connect(int master, const std::optional<Fault>& after) {
    Link& link = links_[static_cast<std::size_t>(master)];
    if (std::exchange(link.connecting, true)) return;
    if (after) look_around(*after);
    const TimePoint begun = client_->now();
    client_->dial(
        master, begun + client_->command_timeout(), [this] { return !closed_; },
        [this, master, begun](Expected<std::shared_ptr<Connection>, Fault> made) {
            if (!made) look_around(made.error());
            take_up(master, begun, made ? *std::move(made) : nullptr);
        });
}

/// The map of a Cluster may be wrong.
inline void RenewalDriver::look_around(const Fault& fault) {
    if (!client_->world().plan->is_cluster()) return;
    client_->map().failed(fault, client_->now() + time_to_look_around);
}

inline void RenewalDriver::take_up(int master, TimePoint begun, std::shared_ptr<Connection> made) {
    Link& link = links_[static_cast<std::size_t>(master)];
    const TimePoint now = client_->now();
    link.connecting = false;
    if (link.connection != nullptr) {
        const bool gives_way =
            link.silence->gives_way(made != nullptr, !link.written.empty(), begun, now);
        replacements().took("new connection", gives_way ? 0 : 1);
        if (!gives_way) {
            if (made != nullptr) made->close();
            return;
        }
        for (Order& order : take_unanswered(link)) write_later(link, std::move(order));
    }
    auto waiting = std::exchange(link.waiting, {});
    std::erase_if(waiting, [](const Order& order) { return order.attempt->is_over(); });
    if (made == nullptr) {
        event_ = "no connection";
        if (client_->closed()) ++failed_while_closing_;
        for (const Order& order : waiting) unanswered(master, order);
    } else {
        link.connection = std::move(made);
        link.silence->connected(now, waiting.empty());
        for (Order& order : waiting) write(master, std::move(order));
    }
    perform_actions();
    wake_in_time();
}

inline Call RenewalDriver::call_of(const Try& attempt) const {
    const auto lease = attempt.lease();
    if (!lease) return detail::release_call(attempt.hold(), client_->now());
    return detail::extend_call(attempt.hold(), *lease, attempt.lock_alone());
}

/// For the first time over this connection.
inline void RenewalDriver::write(int master, Order order) {
    Link& link = links_[static_cast<std::size_t>(master)];
    link.connection->reused = link.silence->is_reused();
    order.command.connected(traits_of(*client_, call_of(*order.attempt), *link.connection));
    order.is_first = true;
    write_again(master, std::move(order));
}

inline void RenewalDriver::write_again(int master, Order order) {
    Link& link = links_[static_cast<std::size_t>(master)];
    const Try& attempt = *order.attempt;
    if (!renewal_.send(*order.attempt, static_cast<std::size_t>(master), client_->now())) return;
    if (attempt.lease() && order.is_first) {
        client_->world().checker->prolongs(attempt.hold());
        client_->world().checker->renews(attempt.hold());
    }
    order.is_first = false;
    order.number = ++writings_;
    order.written_at = client_->now();
    const Call call = call_of(attempt);
    detail::EncodeOptions options{.form = order.command.form()};
    options.server = *link.connection->server;
    link.written.push_back(order);
    client_->world().network->send(
        client_->host(), client_->noise(), link.connection, call, options, client_->number(),
        Moment::max(),
        [this, master, connection = link.connection, number = order.number](Arrived what) {
            arrived(master, connection, number, std::move(what));
        },
        order.asking);
    look_for_silence(master);
}

inline void RenewalDriver::arrived(int master, const std::shared_ptr<Connection>& connection,
                                   std::uint64_t number, Arrived arrived) {
    Link& link = links_[static_cast<std::size_t>(master)];
    if (link.connection != connection || closed_) return;
    if (!arrived.value) return break_off(master, connection_ended(arrived.maybe_executed));
    const auto answered = std::ranges::find(link.written, number, &Order::number);
    Order order = std::move(*answered);
    link.written.erase(answered);
    link.silence->answered(client_->now(), link.written.empty());
    take(master, std::move(order), *arrived.value);
    perform_actions();
    run();
}

inline void RenewalDriver::take(int master, Order order, const ModelRedis::Value& value) {
    Connection& connection = *links_[static_cast<std::size_t>(master)].connection;
    auto reply = decode(*client_, call_of(*order.attempt), connection, order.written_at, value);
    const detail::CommandStep step = judge(order.command, reply);
    if (step.leave_server) client_->leave(connection);
    if (step.next == detail::CommandStep::Next::send) return write_again(master, std::move(order));
    const auto index = static_cast<std::size_t>(master);
    if (reply) {
        event_ = order.attempt->lease() ? "renewal answered" : "clean-up answered";
        const auto answer = reply->view().integer();
        const bool may_have_forgotten =
            client_->quorum_rules(detail::ReplyShape::integer)
                .may_have_forgotten(connection.started_by, client_->now());
        return renewal_.answered(*order.attempt, index, *answer,
                                 {.may_have_forgotten = may_have_forgotten}, client_->now());
    }
    Fault fault = std::move(reply).error();
    if (step.next == detail::CommandStep::Next::redirect) {
        if (redirect(master, order, fault)) return;
        detail::disagree(fault);
    }
    event_ = "refused";
    renewal_.refused(*order.attempt, index, fault, client_->now());
}

/// Ends the connection.
inline std::vector<RenewalDriver::Order> RenewalDriver::take_unanswered(Link& link) {
    std::exchange(link.connection, nullptr)->close();
    link.silence->disconnected();
    return std::exchange(link.written, {});
}

inline void RenewalDriver::break_off(int master, const Fault& fault) {
    Link& link = links_[static_cast<std::size_t>(master)];
    event_ = "connection ended";
    bool failed = false;
    for (Order& order : take_unanswered(link)) {
        if (order.attempt->is_over()) order.command.leave();
        const detail::CommandStep step = order.command.failed(detail::failure_of(fault));
        command_coverage().took("failed", static_cast<std::size_t>(step.next));
        if (step.next == detail::CommandStep::Next::reconnect) {
            write_later(link, std::move(order));
        } else {
            failed = true;
            unanswered(master, order);
        }
    }
    if (failed) connect(master, fault);
    if (!link.waiting.empty()) connect(master);
    perform_actions();
    run();
}

inline void RenewalDriver::write_later(Link& link, Order order) {
    renewal_.connection_replaced(*order.attempt);
    link.waiting.push_back(std::move(order));
}

inline void RenewalDriver::unanswered(int master, const Order& order) {
    renewal_.unanswered(*order.attempt, static_cast<std::size_t>(master), client_->now());
}

inline void RenewalDriver::look_for_silence(int master) {
    Link& link = links_[static_cast<std::size_t>(master)];
    if (std::exchange(link.is_watched, true)) return;
    Host& host = client_->host();
    host.later(host.moment_of(link.gone_at()), [this, master, &link] {
        link.is_watched = false;
        if (closed_ || link.written.empty()) return;
        if (client_->now() >= link.gone_at()) return break_off(master, no_answer());
        look_for_silence(master);
    });
}

}  // namespace redlatch::test::simulator
