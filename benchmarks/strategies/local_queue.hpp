#pragma once

#include "strategies/strategy.hpp"
#include "strategies/token.hpp"

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>

namespace redlatch::bench {

/// The token goes from thread to thread in the order in which they came, each woken by itself, and
/// stays in the process for up to 5 ms while somebody there wants it. Then it goes to the server, and
/// to the process that has waited longest.
class LocalQueue {
public:
    /// What one thread waits on.
    class Turn {
    public:
        void call() noexcept {
            called_.store(1, std::memory_order_release);
            called_.notify_one();
        }
        void wait() noexcept {
            called_.wait(0, std::memory_order_acquire);
            called_.store(0, std::memory_order_relaxed);
        }

    private:
        std::atomic<int> called_{0};
    };

    explicit LocalQueue(const Place& place) : token_(place) {}

    void lock(Turn& mine) {
        wait_for_turn(mine);
        if (here_) return;
        token_.take();
        here_ = true;
        since_ = std::chrono::steady_clock::now();
    }

    void unlock() {
        std::unique_lock lock{mutex_};
        if (waiting_.empty() || std::chrono::steady_clock::now() - since_ >= longest_stay) {
            lock.unlock();
            here_ = false;
            token_.put_back();
            lock.lock();
        }
        if (waiting_.empty()) {
            busy_ = false;
            return;
        }
        Turn* const next = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        next->call();
    }

private:
    static constexpr std::chrono::milliseconds longest_stay{5};

    void wait_for_turn(Turn& mine) {
        std::unique_lock lock{mutex_};
        if (!busy_) {
            busy_ = true;
            return;
        }
        waiting_.push_back(&mine);
        lock.unlock();
        mine.wait();
    }

    std::mutex mutex_;
    bool busy_ = false;  ///< it is somebody's turn
    std::deque<Turn*> waiting_;

    // For the one whose turn it is.
    Token token_;
    bool here_ = false;
    std::chrono::steady_clock::time_point since_{};
};

class LocalQueueContender final : public Contender {
public:
    explicit LocalQueueContender(LocalQueue& queue) : queue_(queue) {}
    void lock() override { queue_.lock(turn_); }
    void unlock() override { queue_.unlock(); }

private:
    LocalQueue& queue_;
    LocalQueue::Turn turn_;
};

class LocalQueueSide final : public Side {
public:
    explicit LocalQueueSide(const Place& place) : queue_(place) {}
    std::unique_ptr<Contender> contender(unsigned /*seed*/) override {
        return std::make_unique<LocalQueueContender>(queue_);
    }

private:
    LocalQueue queue_;
};

}  // namespace redlatch::bench
