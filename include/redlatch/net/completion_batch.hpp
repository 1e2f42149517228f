#pragma once

#include <redlatch/executor.hpp>

#include <memory>

namespace redlatch::inline v0::detail {

/// What has completed, on its way to its executor.
class Completion : public Executor::Task {
public:
    /// Posts it there, and those that are linked behind it.
    virtual void hand_over() noexcept = 0;

    /// With which others it may be handed over; null for none.
    virtual const Executor* executor() const noexcept { return nullptr; }

protected:
    ~Completion() = default;
};

/// Where completions are posted to, unless the caller has said that. `threads`: that run all they are
/// given.
struct DefaultExecutors {
    std::shared_ptr<Executor> executor;
    std::shared_ptr<Executor> threads;
};

/// The completions of one turn of the thread that has made this. It hands them over at the turn's end: an
/// executor takes all of them at once, and is woken once. If they were posted one by one, a loop would wake
/// for the first and contend for the next ones.
class CompletionBatch {
public:
    CompletionBatch() noexcept { open = this; }
    CompletionBatch(const CompletionBatch&) = delete;
    CompletionBatch& operator=(const CompletionBatch&) = delete;
    ~CompletionBatch() {
        open = nullptr;
        hand_over();
    }

    /// Null on a thread that has no turns.
    static CompletionBatch* of_this_thread() noexcept { return open; }

    void add(Completion& completion) noexcept { completions_.push(completion); }

    void hand_over() noexcept {
        while (!completions_.empty()) {
            TaskList chain;
            const Executor* const executor = next_executor();
            do {
                chain.push(*completions_.pop());
            } while (executor != nullptr && executor == next_executor());
            static_cast<Completion*>(chain.front())->hand_over();
        }
    }

private:
    /// Of the one in front; null where there is none.
    const Executor* next_executor() const noexcept {
        auto* const front = static_cast<const Completion*>(completions_.front());
        return front == nullptr ? nullptr : front->executor();
    }

    static inline thread_local CompletionBatch* open = nullptr;

    TaskList completions_{};
};

}  // namespace redlatch::inline v0::detail
