#pragma once

#include <redlatch/executor.hpp>

namespace redlatch::inline v0::detail {

/// What has completed, on its way to its executor.
class Completion : public Executor::Task {
public:
    /// Posts it there.
    virtual void hand_over() noexcept = 0;

protected:
    ~Completion() = default;
};

/// What completes in one turn of the thread that has made this. Handed over at the turn's end: an executor that slept
/// is woken once for all of it, and finds all of it.
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
        while (Executor::Task* const task = completions_.pop()) {
            static_cast<Completion*>(task)->hand_over();
        }
    }

private:
    static inline thread_local CompletionBatch* open = nullptr;

    TaskList completions_;
};

}  // namespace redlatch::inline v0::detail
