#pragma once

#include <redlatch/net/node.hpp>
#include <redlatch/net/thread.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Sends commands whose answers nobody waits for, and receives those answers if no other command
/// comes by on the same connection soon. Its thread starts at the first use. Thread-safe.
class ReplyDrainer {
public:
    explicit ReplyDrainer(std::chrono::milliseconds command_timeout)
        : patience_(std::min<Clock::duration>(longest_patience, command_timeout / 2)) {}
    ReplyDrainer(const ReplyDrainer&) = delete;
    ReplyDrainer& operator=(const ReplyDrainer&) = delete;
    ~ReplyDrainer() { close(); }

    /// Sends `call`, for whose answer `callback` will be called. False where it was not sent, and
    /// better be sent by someone who waits.
    bool post(Node& node, const Call& call, ReplyCallback callback, const Limit& limit) {
        if (!begin_to_post()) return false;
        const bool sent = node.post(call, std::move(callback), limit);
        const std::lock_guard lock{mutex_};
        --posting_;
        if (sent) mark_pending(&node);
        if (asleep_) wake_.notify_one();
        return sent;
    }

    /// Answers are pending at `node`, to a command that somebody else has sent. Ignored at the end.
    void watch(Node& node) {
        const std::lock_guard lock{mutex_};
        if (closing_ || !start()) return;
        mark_pending(&node);
        if (asleep_) wake_.notify_one();
    }

    /// Sends nothing any more, receives the pending answers and ends the thread. Takes at most the time for
    /// one command.
    void close() {
        {
            const std::lock_guard lock{mutex_};
            closing_ = true;
        }
        wake_.notify_one();
        if (thread_.joinable()) thread_.join();
    }

private:
    /// How long an answer is left to other commands.
    static constexpr std::chrono::milliseconds longest_patience{20};

    bool begin_to_post() {
        const std::lock_guard lock{mutex_};
        if (closing_ || !start()) return false;
        ++posting_;
        return true;
    }

    /// With the mutex held.
    bool start() {
        if (running_) return true;
        thread_ = start_service_thread([this] { run(); });
        running_ = thread_.joinable();
        return running_;
    }

    /// With the mutex held.
    void mark_pending(Node* node) {
        if (std::find(pending_.begin(), pending_.end(), node) == pending_.end())
            pending_.push_back(node);
    }

    void run() {
        std::unique_lock lock{mutex_};
        for (;;) {
            asleep_ = true;
            wake_.wait(lock, [this] { return !pending_.empty() || (closing_ && posting_ == 0); });
            asleep_ = false;
            if (pending_.empty()) return;
            wake_.wait_for(lock, patience_, [this] { return closing_; });
            std::vector<Node*> nodes = std::exchange(pending_, {});
            const TimePoint since = closing_ ? TimePoint::max() : Clock::now() - patience_;
            lock.unlock();
            std::erase_if(nodes, [since](Node* node) { return !node->drain(since); });
            lock.lock();
            for (Node* const node : nodes) mark_pending(node);
        }
    }

    const Clock::duration patience_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<Node*> pending_;  // nodes with answers to come
    std::size_t posting_ = 0;     // threads that are just sending
    bool asleep_ = false;         // the thread, until it is woken
    bool running_ = false;
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace redlatch::inline v0::detail
