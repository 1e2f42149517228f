#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/async/in_place.hpp>
#include <redlatch/result.hpp>
#include <redlatch/service/session.hpp>
#include <redlatch/types.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

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
        for (const auto& part : parts_) {
            await_inside(*part, [this](AsyncCall&) { one_less(); });
        }
        this->complete_on_default(session.default_executors());
    }

    Result<T> take() noexcept override {
        Result<T> outcome = parts_.front()->take();
        for (std::size_t i = 1; i < parts_.size(); ++i) {
            outcome = worse(std::move(outcome), parts_[i]->take());
        }
        return outcome;
    }

private:
    void begin() noexcept override {
        for (const auto& part : parts_) part->start();
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
