#pragma once

#include <redlatch/net/node.hpp>
#include <redlatch/net/service_thread.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
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
        const auto lock = thread_.lock();
        --posting_;
        if (sent) mark_pending(&node);
        if (asleep_) thread_.wake();
        return sent;
    }

    /// Answers are pending at `node`, to a command that somebody else has sent. Ignored at the end.
    void watch(Node& node) {
        const auto lock = thread_.lock();
        if (!start()) return;
        mark_pending(&node);
        if (asleep_) thread_.wake();
    }

    /// Sends nothing any more, receives the pending answers and ends the thread. Takes at most the time for
    /// one command.
    void close() { thread_.close(); }

private:
    /// How long an answer is left to other commands.
    static constexpr std::chrono::milliseconds longest_patience{20};

    bool begin_to_post() {
        const auto lock = thread_.lock();
        if (!start()) return false;
        ++posting_;
        return true;
    }

    /// With the mutex held.
    bool start() { return !thread_.is_closing() && thread_.start(); }

    /// With the mutex held.
    void mark_pending(Node* node) {
        if (std::find(pending_.begin(), pending_.end(), node) == pending_.end())
            pending_.push_back(node);
    }

    void run() {
        auto lock = thread_.lock();
        for (;;) {
            asleep_ = true;
            thread_.wait(lock, [this] { return !pending_.empty(); });
            thread_.wait_until(lock, [this] { return !pending_.empty() || posting_ == 0; });
            asleep_ = false;
            if (pending_.empty()) return;
            thread_.pause(lock, patience_);
            std::vector<Node*> nodes = std::exchange(pending_, {});
            const bool closing = thread_.is_closing();
            const TimePoint since = closing ? TimePoint::max() : Clock::now() - patience_;
            lock.unlock();
            std::erase_if(nodes, [since](Node* node) { return !node->drain(since); });
            lock.lock();
            for (Node* const node : nodes) mark_pending(node);
        }
    }

    const Clock::duration patience_;
    ServiceThread thread_{"redlatch drain", [this] { run(); }};
    // Guarded by its mutex:
    std::vector<Node*> pending_;  // nodes with answers to come
    std::size_t posting_ = 0;     // threads that are just sending
    bool asleep_ = false;         // the thread, until it is woken
};

}  // namespace redlatch::inline v0::detail
