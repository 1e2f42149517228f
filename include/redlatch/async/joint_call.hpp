#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/executor.hpp>
#include <redlatch/result.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/types.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Runs at once what is posted: for a call inside another, which goes on where the outcome arises.
class InPlace final : public Executor {
public:
    /// Never destroyed: a client may be as static as this.
    static InPlace& executor() {
        static auto* const only = new InPlace;
        return *only;
    }
    void post(Task& task) noexcept override { task.run(); }
};

/// Starts a call inside another. The continuation runs on the engine's thread, or before this returns.
inline void start_inside(AsyncCall& call, std::unique_ptr<AsyncCall::Continuation> continuation) {
    call.complete_on(InPlace::executor());
    call.await(std::move(continuation));
    call.start();
}

/// What is worth telling of two outcomes.
inline Result<Release> worse(Result<Release> a, Result<Release> b) {
    if (!a || !b) return a ? std::move(b) : std::move(a);
    for (const Release outcome : {Release::expired, Release::not_held, Release::still_held}) {
        if (*a == outcome || *b == outcome) return outcome;
    }
    return Release::released;
}

inline Result<void> worse(Result<void> a, Result<void> b) {
    return a ? std::move(b) : std::move(a);
}

/// Several calls as one: it has completed when all have.
template <class T>
class JointCall final : public AsyncCallFor<T> {
public:
    using Parts = std::vector<std::shared_ptr<AsyncCallFor<T>>>;

    /// There is at least one part.
    JointCall(const Session& session, Parts parts)
        : parts_(std::move(parts)), left_(parts_.size() + 1) {
        this->complete_on_default(session.completions(), session.completion_threads());
    }

    Result<T> take() noexcept override {
        Result<T> outcome = parts_.front()->take();
        for (std::size_t i = 1; i < parts_.size(); ++i) {
            outcome = worse(std::move(outcome), parts_[i]->take());
        }
        return outcome;
    }

private:
    class PartCompleted final : public AsyncCall::Continuation {
    public:
        explicit PartCompleted(std::shared_ptr<JointCall> whole) : whole_(std::move(whole)) {}
        void resume(AsyncCall&) override { whole_->one_less(); }

    private:
        std::shared_ptr<JointCall> whole_;
    };

    void begin() noexcept override {
        const auto whole = std::static_pointer_cast<JointCall>(this->shared_from_this());
        for (const auto& part : parts_) {
            start_inside(*part, std::make_unique<PartCompleted>(whole));
        }
        one_less();
    }
    void cancel() noexcept override {}

    void one_less() noexcept {
        if (left_.fetch_sub(1) == 1) this->finish();
    }

    const Parts parts_;
    std::atomic<std::size_t> left_;  // that have not completed; one of them is the start
};

}  // namespace redlatch::inline v0::detail
