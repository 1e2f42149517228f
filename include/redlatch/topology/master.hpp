#pragma once

#include <redlatch/core/quorum_call.hpp>
#include <redlatch/net/node.hpp>
#include <redlatch/net/service_thread.hpp>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
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

    /// Has a connection made, and `wake` (an event descriptor, or -1) written to when there is news.
    ConnectStatus request(int wake) {
        const auto lock = thread_.lock();
        const bool idle = !connecting_ && !wanted_;
        if (thread_.is_closing()) {
            return {ConnectStatus::Kind::none, io_fault("the client was closed")};
        }
        if (!thread_.start([this] { run(); })) {
            return {ConnectStatus::Kind::none, io_fault("cannot start a thread to connect")};
        }
        if (idle && last_fault_ && Clock::now() < retry_at_) {
            return {ConnectStatus::Kind::none, *last_fault_};
        }
        if (idle && node_.has_room()) {
            wanted_ = true;
            wanted_since_ = Clock::now();
            thread_.wake();
        }
        const bool known = std::find(waiting_.begin(), waiting_.end(), wake) != waiting_.end();
        if (wake >= 0 && !known) waiting_.push_back(wake);
        if (last_fault_) return {ConnectStatus::Kind::doubtful, *last_fault_};
        return {ConnectStatus::Kind::coming, {}, wanted_since_};
    }

    /// `wake` is not written to any more.
    void forget(int wake) {
        const auto lock = thread_.lock();
        std::erase(waiting_, wake);
    }

    /// Whether the last command, or attempt to connect, failed.
    bool is_doubtful() {
        const auto lock = thread_.lock();
        return last_fault_.has_value();
    }

    /// A command to it met a fault: it has to be reached anew before it is asked again.
    void failed(const Fault& fault) {
        if (fault.error.code != Errc::unavailable) return;
        {
            const auto lock = thread_.lock();
            const bool known = last_fault_.has_value();
            last_fault_ = fault;
            last_fault_->maybe_executed = false;
            if (known) return;
            retry_at_ = TimePoint::min();
        }
        node_.drop_idle();
    }

    /// Nothing is connected any more. Returns at once.
    void begin_to_close() {
        stop_.request_stop();
        thread_.begin_to_close();
    }

    /// Ends the thread, whatever it is at, and closes all connections that lie idle.
    void close() {
        begin_to_close();
        thread_.close();
        node_.drop_idle();
    }

private:
    /// A server that is not there is asked for no more often than that.
    static constexpr std::chrono::milliseconds retry_pause{100};

    void run() {
        auto lock = thread_.lock();
        for (;;) {
            thread_.wait(lock, [this] { return wanted_; });
            if (thread_.is_closing()) return;
            wanted_ = false;
            connecting_ = true;
            lock.unlock();
            auto connection = node_.connect({TimePoint::max(), stop_.get_token()});
            std::optional<Fault> fault;
            if (connection) {
                node_.admit(*std::move(connection));
            } else {
                fault = std::move(connection).error();
            }
            lock.lock();
            connecting_ = false;
            last_fault_ = std::move(fault);
            retry_at_ = saturating_add(Clock::now(), retry_pause);
            for (const int wake : std::exchange(waiting_, {})) tell(wake);
        }
    }

    static void tell(int wake) noexcept {
        const std::uint64_t one = 1;
        [[maybe_unused]] const ssize_t written = ::write(wake, &one, sizeof one);
    }

    Node node_;
    std::stop_source stop_;
    ServiceThread thread_{"redlatch conn"};
    // Guarded by its mutex:
    std::vector<int> waiting_;
    std::optional<Fault> last_fault_;
    TimePoint retry_at_ = TimePoint::min();
    TimePoint wanted_since_ = TimePoint::min();
    bool wanted_ = false;
    bool connecting_ = false;
};

}  // namespace redlatch::inline v0::detail
