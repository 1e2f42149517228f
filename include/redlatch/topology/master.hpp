#pragma once

#include <redlatch/core/master_reach.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/net/service_thread.hpp>
#include <redlatch/net/wake_descriptor.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// One of several independent masters. Connects in the background, so that one which is not there
/// keeps nobody from asking the others. Thread-safe.
class Master {
public:
    Master(std::unique_ptr<Dialer> dialer, const NodeUse& use,
           std::function<void(const std::string&)> on_reconnect)
        : node_(std::move(dialer), use, std::move(on_reconnect)) {}
    Master(const Master&) = delete;
    Master& operator=(const Master&) = delete;
    ~Master() { close(); }

    Node& node() noexcept { return node_; }

    /// Has a connection made, and `waiter` rung when there is news; null for nobody. Borrows it until `forget`.
    ConnectStatus request(const WakeDescriptor* waiter) {
        if (wants_room()) node_.drop_idle();
        const auto lock = thread_.lock();
        if (thread_.is_closing()) {
            return {ConnectStatus::Kind::none, cancelled_fault(cancelled_by_close)};
        }
        if (!thread_.start()) {
            return {ConnectStatus::Kind::none, io_fault("cannot start a thread to connect")};
        }
        const bool connected = reach_.connects();
        ConnectStatus status = reach_.request(connected || node_.has_room(), Clock::now());
        if (!connected && reach_.connects()) thread_.wake();
        if (status.kind == ConnectStatus::Kind::none) return status;
        const bool known = std::find(waiting_.begin(), waiting_.end(), waiter) != waiting_.end();
        if (waiter != nullptr && !known) waiting_.push_back(waiter);
        return status;
    }

    /// `waiter` is not rung any more.
    void forget(const WakeDescriptor& waiter) {
        const auto lock = thread_.lock();
        std::erase(waiting_, &waiter);
    }

    /// As `MasterReach` has it.
    bool is_doubtful() {
        const auto lock = thread_.lock();
        return reach_.is_doubtful();
    }

    /// A command to it met a fault.
    void failed(const Fault& fault) {
        auto lock = thread_.lock();
        const bool drops_idle = reach_.failed(fault);
        lock.unlock();
        if (drops_idle) node_.drop_idle();
    }

    /// Nothing is connected any more. Returns at once.
    void begin_to_close() {
        stop_.request_stop();
        thread_.begin_to_close();
    }

    /// Ends the thread, whatever it is at, and closes all connections that lie idle.
    void close() {
        stop_.request_stop();
        thread_.close();
        node_.drop_idle();
    }

private:
    bool wants_room() {
        const auto lock = thread_.lock();
        return reach_.wants_room(node_.has_room());
    }

    void run() {
        auto lock = thread_.lock();
        for (;;) {
            thread_.wait(lock, [this] { return reach_.connects(); });
            if (thread_.is_closing()) return;
            lock.unlock();
            auto connection = node_.connect({TimePoint::max(), stop_.get_token()});
            std::optional<Fault> fault;
            if (connection) {
                node_.admit(*std::move(connection));
            } else {
                fault = std::move(connection).error();
            }
            lock.lock();
            reach_.connected(std::move(fault), Clock::now());
            for (const WakeDescriptor* const waiter : std::exchange(waiting_, {})) waiter->ring();
        }
    }

    Node node_;
    std::stop_source stop_;
    ServiceThread thread_{"redlatch conn", [this] { run(); }};
    // Guarded by its mutex:
    std::vector<const WakeDescriptor*> waiting_;
    MasterReach reach_;
};

}  // namespace redlatch::inline v0::detail
