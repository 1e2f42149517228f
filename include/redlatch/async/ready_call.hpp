#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/service/completion_threads.hpp>
#include <redlatch/service/shared_client.hpp>

#include <memory>
#include <utility>

namespace redlatch::inline v0::detail {

/// A call whose outcome is known when it is made.
template <class T>
class ReadyCall final : public AsyncCallFor<T> {
public:
    /// `client`: null where there is none, as for a `Held` without a hold.
    ReadyCall(const std::shared_ptr<SharedClient>& client, Result<T> outcome)
        : outcome_(std::move(outcome)) {
        if (client != nullptr) {
            this->complete_on_default(client->session().default_executors());
        } else {
            own_ = std::make_shared<CompletionThreads>();
            own_->close();
            this->complete_on_default({own_, own_});
        }
    }

    bool is_ready() const noexcept override { return own_ != nullptr && this->completes_on(own_); }

    Result<T> take() noexcept override { return std::move(outcome_); }

private:
    void begin() noexcept override { this->finish(); }
    void cancel() noexcept override {}

    Result<T> outcome_;
    std::shared_ptr<CompletionThreads> own_{};  // without a client; they end with this
};

}  // namespace redlatch::inline v0::detail
