#pragma once

#include <redlatch/async/operation.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace redlatch::inline v0::detail {

/// An operation of one command about a lock, which nobody can stop.
template <class T>
class CommandOperation : public AsyncCallFor<T>, protected Operation {
public:
    Result<T> take() noexcept final { return *std::move(outcome_); }

protected:
    CommandOperation(Session& session, std::shared_ptr<const LockKeys> keys)
        : Operation(session), session_(&session), keys_(std::move(keys)) {}

    TimePoint answer_by() const {
        return saturating_add(Clock::now(), session_->command_timeout());
    }

    void complete(Result<T> outcome) noexcept {
        outcome_.emplace(std::move(outcome));
        this->finish();
    }

    Session* const session_;

private:
    void begin() noexcept final {
        this->complete_on_default(session_->default_executors());
        if (!session_->engine().start()) return not_started();
        happens(started);
    }
    void cancel() noexcept final {}
    std::shared_ptr<const void> keep() const noexcept final { return this->shared_from_this(); }
    void not_started() noexcept final { complete(Unexpected{no_engine(*session_, keys_->lock)}); }
    void time_is_over() noexcept final {}

    const std::shared_ptr<const LockKeys> keys_;
    std::optional<Result<T>> outcome_{};
};

}  // namespace redlatch::inline v0::detail
