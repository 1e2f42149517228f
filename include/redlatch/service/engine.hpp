#pragma once

#include <redlatch/core/intrusive_list.hpp>
#include <redlatch/core/timer_wheel.hpp>
#include <redlatch/net/background_call.hpp>
#include <redlatch/net/completion_batch.hpp>
#include <redlatch/net/link.hpp>
#include <redlatch/net/order.hpp>
#include <redlatch/net/service_thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>
#include <redlatch/recycled_memory.hpp>
#include <redlatch/service/order_route.hpp>
#include <redlatch/service/quorum_route.hpp>
#include <redlatch/topology/background_connect.hpp>
#include <redlatch/topology/topology.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <stop_token>
#include <utility>

namespace redlatch::inline v0::detail {

/// Something to do on the engine's thread. Its owner keeps it until it runs.
class EngineTask {
public:
    EngineTask() = default;
    EngineTask(const EngineTask&) = delete;
    EngineTask& operator=(const EngineTask&) = delete;

    /// May post it anew, or destroy it.
    virtual void run() noexcept = 0;

protected:
    virtual ~EngineTask() = default;

private:
    friend class Engine;
    EngineTask* next_ = nullptr;
    std::atomic<bool> posted_{false};
};

/// One thread that serves all asynchronous operations of a client: it runs their tasks and timers, and carries
/// out their orders over one link to each master, and over one more for each policy of the user's own. No
/// user's code runs there, and it never blocks but to wait for all of them at once.
class Engine final : private RouteServices {
public:
    Engine(Topology& topology, std::chrono::milliseconds command_timeout)
        : topology_(&topology), command_timeout_(command_timeout) {}
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() { close(); }

    /// Any thread. Starts it where it does not run; false where the system has no thread or descriptor to
    /// give, or after `close`.
    bool start() {
        if (running_.load(std::memory_order_acquire)) return true;
        const auto lock = thread_.lock();
        if (closing_ || !open() || !thread_.start()) return false;
        running_ = true;
        return true;
    }

    /// Any thread, once `start` has succeeded. Runs the task soon; allocates nothing. One that is posted
    /// already is not posted twice. False where it will not run, as the engine has ended.
    bool post(EngineTask& task) noexcept {
        if (task.posted_.exchange(true)) return true;
        EngineTask* first = posted_.load();
        do {
            if (first == end_of_posts()) {
                task.posted_ = false;
                return false;
            }
            task.next_ = first;
        } while (!posted_.compare_exchange_weak(first, &task));
        if (asleep_.load() && asleep_.exchange(false)) wake_.ring();
        return true;
    }

    /// Any thread. Has it find out that another server is the master.
    void master_moved() const noexcept {
        if (running_) wake_.ring();
    }

    /// Any thread. Has it close what leads to servers that are no masters any more.
    void map_changed() noexcept {
        map_changed_ = true;
        master_moved();
    }

    /// Tasks that were posted before still run; then every order fails with `Errc::cancelled`, and each timer
    /// that is set expires. Blocks until the thread has ended, which waits for nobody.
    void close() {
        running_ = false;
        closing_ = true;
        {
            const auto lock = thread_.lock();  // `start` may just be opening it
            wake_.ring();
        }
        thread_.close();
    }

    // On the engine's thread only:

    /// Has it carried out. It is answered at a later turn of the thread.
    void submit(std::shared_ptr<Order> order) {
        Order& submitted = *order;
        if (order->rank == CommandRank::release && links_.size() > 1) {
            for (EngineLink& one : links_) one.link.withdraw(order->token());
        }
        submitted.route_ = route_of(std::move(order));
        submitted.route_->begin();
    }

    /// `answered` will not come. True where it may be carried out all the same: then `answered_late`
    /// will tell.
    bool abandon(Order& order) noexcept {
        return order.route_ != nullptr && order.route_->abandon();
    }

    /// Sets it anew where it is set. Expires at a later turn of the thread.
    void set_timer(EngineTimer& timer, TimePoint due) noexcept { wheel_.set(timer, due); }
    void clear_timer(EngineTimer& timer) noexcept { wheel_.clear(timer); }

private:
    /// A link, and what makes it work.
    class EngineLink final : public EngineTimer {
    public:
        EngineLink(Engine& engine, Node& node, Replicas replicas, const void* own)
            : engine_(&engine),
              replicas_(replicas),
              own_(own),
              link(node, engine.limits(), replicas) {}
        ~EngineLink() = default;
        EngineLink(const EngineLink&) = delete;
        EngineLink& operator=(const EngineLink&) = delete;

        void expired(TimePoint now) noexcept override { link.pass_time(now); }

        bool serves(const Node& node, Replicas replicas, const void* own) const noexcept {
            return &link.node() == &node && replicas_ == replicas && own_ == own;
        }

        /// Whether there is more to write.
        bool write() {
            if (auto made = connect_.take()) take_up(*std::move(made));
            const bool more = link.write();
            connect();
            watch();
            if (!is_set() && link.gone_at() != TimePoint::max()) {
                engine_->set_timer(*this, link.gone_at());
            }
            return more;
        }

        /// Has `epoll` tell what the link waits for. By a descriptor of its own, which is there until
        /// `epoll` has forgotten it: a forked child may keep the socket for ever.
        void watch() {
            const bool connected = link.is_connected();
            if (watched_.valid() && (!connected || link.number() != watched_number_)) forget();
            if (!connected) return;
            const auto events = static_cast<std::uint32_t>(link.awaits().events);
            epoll_event event{};
            event.events = events;
            event.data.ptr = this;
            if (!watched_.valid()) {
                watched_ = link.duplicate();
                if (!watched_.valid())
                    return link.break_off(io_fault("dup: " + system_message(errno)));
                watched_number_ = link.number();
                if (::epoll_ctl(poller(), EPOLL_CTL_ADD, watched_.get(), &event) != 0) {
                    watched_ = {};
                    return link.break_off(io_fault("epoll: " + system_message(errno)));
                }
            } else if (events != watched_events_) {
                ::epoll_ctl(poller(), EPOLL_CTL_MOD, watched_.get(), &event);
            }
            watched_events_ = events;
        }

        void end() {
            link.not_connected(cancelled_fault(cancelled_by_close));
            link.break_off(cancelled_fault(cancelled_by_close));
            watch();
        }

    private:
        void take_up(BackgroundConnect::Outcome made) {
            if (made) {
                link.connected(*std::move(made));
            } else {
                link.not_connected(made.error(), connect_.begun());
            }
        }

        void connect() {
            if (link.is_connected() || !link.has_unwritten() || connect_.under_way()) return;
            if (Clock::now() < connect_.next_at()) {
                return engine_->set_timer(*this, connect_.next_at());
            }
            connect_.begin(*engine_->topology_, link.node(), link.take_fault(), engine_->wake_);
        }

        void forget() {
            ::epoll_ctl(poller(), EPOLL_CTL_DEL, watched_.get(), nullptr);
            watched_ = {};
        }
        int poller() const noexcept { return engine_->poller_.get(); }

        Engine* engine_;
        const Replicas replicas_;
        const void* const own_;
        Descriptor watched_;
        unsigned watched_number_ = 0;
        std::uint32_t watched_events_ = 0;
        BackgroundConnect connect_;

    public:
        Link link;
    };

    using RoutePtr = std::unique_ptr<Order::Route>;

    RoutePtr route_of(std::shared_ptr<Order> order) {
        RouteServices& services = *this;
        if (topology_->voters() > 1) {
            return RoutePtr{new QuorumRoute{services, std::move(order)}};
        }
        if (topology_->redirects()) {
            return RoutePtr{new ClusterRoute{services, std::move(order)}};
        }
        return RoutePtr{new Recycled<SingleRoute>{services, std::move(order)}};
    }

    // What routes need:

    Topology& topology() noexcept override { return *topology_; }
    TimerWheel& timers() noexcept override { return wheel_; }
    Link& link_to(Node& node, Replicas replicas, const void* own) override {
        is_busy_ = true;
        for (EngineLink& one : links_) {
            if (one.serves(node, replicas, own)) return one.link;
        }
        return links_.emplace_back(*this, node, replicas, own).link;
    }
    Fault no_answer() const override {
        return closing_ ? cancelled_fault(cancelled_by_close) : unanswered_fault();
    }
    void await_map(MapWaiter& waiter) override {
        is_busy_ = true;
        waiting_for_map_.push_back(waiter);
    }
    void forget(MapWaiter& waiter) noexcept override { waiting_for_map_.remove(waiter); }

    /// Has the topology asked for its map where somebody waits for that.
    void refresh_map() {
        if (refresh_.take()) settle_map();
        if (waiting_for_map_.empty() || refresh_.under_way()) return;
        const TimePoint until = saturating_add(Clock::now(), command_timeout_ / 2);
        refresh_.begin(
            [topology = topology_, until](const std::stop_token& stop) {
                topology->refresh({until, stop});
                return true;
            },
            wake_);
    }

    /// Those that wait again are told the next time.
    void settle_map() {
        std::size_t count = 0;
        waiting_for_map_.for_each([&count](MapWaiter&) { ++count; });
        for (; count != 0 && !waiting_for_map_.empty(); --count) {
            MapWaiter& waiter = *waiting_for_map_.front();
            waiting_for_map_.remove(waiter);
            waiter.map_settled();
        }
    }

    /// Where something is under way, the next map closes the connection.
    void leave_former_masters() {
        for (EngineLink& one : links_) {
            if (!topology_->is_master(one.link.node())) one.link.disconnect_if_idle();
        }
    }

    /// Stands for the list of posted tasks at the end.
    static EngineTask* end_of_posts() noexcept {
        static constexpr char mark{};
        return reinterpret_cast<EngineTask*>(const_cast<char*>(&mark));
    }

    CommandQueue::Limits limits() const noexcept { return {.command_timeout = command_timeout_}; }

    bool open() noexcept {
        if (poller_.valid()) return true;
        if (!wake_.open()) return false;
        Descriptor poller{::epoll_create1(EPOLL_CLOEXEC)};
        epoll_event event{};
        event.events = EPOLLIN | EPOLLET;  // each ring tells once, and need not be read
        if (::epoll_ctl(poller.get(), EPOLL_CTL_ADD, wake_.entry().fd, &event) != 0) return false;
        poller_ = std::move(poller);
        return true;
    }

    /// How many tasks run, and how many timers expire, before answers are looked for again. As many as a link writes
    /// before it wants an answer.
    static constexpr std::size_t most_of_a_turn = 1024;

    void run() {
        CompletionBatch completions;
        do {
            // An answer that comes later than this is not read yet, and no timer may say that it is missing.
            const TimePoint now = wait();
            run_posted(most_of_a_turn);
            wheel_.expire(now, most_of_a_turn, [now](TimerWheel::Timer& timer) {
                static_cast<EngineTimer&>(timer).expired(now);
            });
            refresh_map();
            if (map_changed_.exchange(false)) leave_former_masters();
            completions.hand_over();  // operations that go on here may have more to write
            write();
            completions.hand_over();
        } while (!closing_);
        end(completions);
    }

    /// Blocks until there is something to do; takes the answers that have come until then. Returns when that was.
    TimePoint wait() {
        read(timeout());
        const TimePoint now = Clock::now();
        // The process may have been stopped since `epoll_wait` looked, and answers may have come meanwhile.
        if (wheel_.next_due() <= saturating_add(now, std::chrono::milliseconds{1})) read(0);
        return now;
    }

    /// Waits for so many milliseconds; takes the answers that have come.
    void read(int milliseconds) {
        std::array<epoll_event, 64> events{};  // g++ 11 warns otherwise, for no reason
        const int count =
            ::epoll_wait(poller_.get(), events.data(), int{events.size()}, milliseconds);
        asleep_ = false;
        for (int i = 0; i < count; ++i) {
            auto* const one =
                static_cast<EngineLink*>(events[static_cast<std::size_t>(i)].data.ptr);
            if (one != nullptr) one->link.read();
        }
    }

    /// How long to sleep, in milliseconds. The sleep stops with the machine, due times don't.
    int timeout() {
        if (is_busy_ || oldest_task_ != nullptr) return 0;
        asleep_ = true;
        if (posted_.load() != nullptr || closing_) return 0;
        const TimePoint due = wheel_.next_due();
        if (due == TimePoint::max()) return -1;
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(saturating_sub(due, Clock::now()));
        return static_cast<int>(
            std::clamp(left, std::chrono::milliseconds{0}, longest_service_sleep).count());
    }

    void run_posted(std::size_t most) {
        take_posted();
        for (; most != 0 && oldest_task_ != nullptr; --most) {
            EngineTask& task = *oldest_task_;
            oldest_task_ = task.next_;
            task.posted_ = false;
            task.run();
        }
    }

    /// Puts what was posted behind the tasks that are left of the last turn.
    void take_posted() {
        EngineTask* newest = posted_.exchange(nullptr);
        EngineTask* const last = newest;
        EngineTask* oldest = nullptr;
        while (newest != nullptr) {
            EngineTask* const next = std::exchange(newest->next_, oldest);
            oldest = std::exchange(newest, next);
        }
        if (oldest == nullptr) return;
        (oldest_task_ == nullptr ? oldest_task_ : last_task_->next_) = oldest;
        last_task_ = last;
    }

    void write() {
        is_busy_ = false;
        for (EngineLink& one : links_) {
            if (one.write()) is_busy_ = true;
        }
    }

    void end(CompletionBatch& completions) {
        EngineTask* none = nullptr;
        do {
            run_posted(std::numeric_limits<std::size_t>::max());
            settle_map();
            for (EngineLink& one : links_) one.end();
            completions.hand_over();
            wheel_.expire(TimePoint::max(), std::numeric_limits<std::size_t>::max(),
                          [](TimerWheel::Timer& timer) {
                              static_cast<EngineTimer&>(timer).expired(Clock::now());
                          });
            completions.hand_over();
            none = nullptr;
        } while (has_orders() || !posted_.compare_exchange_strong(none, end_of_posts()));
        links_.clear();
    }

    /// That no link has written.
    bool has_orders() const {
        return !waiting_for_map_.empty() ||
               std::any_of(links_.begin(), links_.end(),
                           [](const EngineLink& one) { return one.link.has_unwritten(); });
    }

    Topology* topology_;
    const std::chrono::milliseconds command_timeout_;
    Descriptor poller_;
    WakeDescriptor wake_;
    std::atomic<bool> running_{false};
    std::atomic<bool> closing_{false};
    std::atomic<bool> asleep_{false};
    std::atomic<bool> map_changed_{false};
    std::atomic<EngineTask*> posted_{nullptr};  // the newest first
    ServiceThread thread_{"redlatch engine", [this] { run(); }};
    // Of the thread:
    EngineTask* oldest_task_ = nullptr;  // of those that are left for the next turn
    EngineTask* last_task_ = nullptr;
    bool is_busy_ = false;  // the next turn comes at once
    TimerWheel wheel_{Clock::now()};
    std::list<EngineLink> links_;  // by node, replicas, owner
    IntrusiveList<MapWaiter> waiting_for_map_;
    BackgroundCall<bool> refresh_;
};

}  // namespace redlatch::inline v0::detail
