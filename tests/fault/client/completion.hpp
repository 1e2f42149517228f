#pragma once

#include "../history/recorder.hpp"
#include "event_loop.hpp"
#include <redlatch/redlatch.hpp>

#include <atomic>
#include <coroutine>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

namespace redlatch::test::fault {

/// Awaits an asynchronous call, as an awaitable or with a callback, and sees where and how often it completes.
template <class T>
class Completion {
public:
    using Callback = std::function<void(Result<T>)>;

    /// `call`: what is written down where it completes again. `on_loop`: that is where it is to complete;
    /// otherwise on a thread of the client's.
    Completion(const Event& call, Recorder& recorder, const EventLoop& loop, bool on_loop)
        : state_{std::make_shared<State>(call, recorder)}, loop_{&loop}, on_loop_{on_loop} {}

    void of(AsyncResult<T> result) { awaitable_.emplace(std::move(result)); }
    void of(std::function<void(Callback)> start) { start_ = std::move(start); }

    [[nodiscard]] bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiting) {
        // The coroutine may have gone on elsewhere, and this be destroyed, before it has started.
        const auto state = state_;
        const auto start = std::move(start_);
        state->waiting = waiting;
        state->starting = std::this_thread::get_id();
        if (awaitable_) {
            awaitable_->await_suspend(waiting);
        } else {
            start([state](Result<T> result) { state->complete(std::move(result)); });
        }
        state->starting = std::thread::id{};
    }
    Result<T> await_resume() {
        is_inside_ = state_->starting == std::this_thread::get_id();
        is_elsewhere_ = loop_->is_here() != on_loop_;
        Result<T> result =
            awaitable_ ? awaitable_->await_resume() : *std::exchange(state_->result, std::nullopt);
        if constexpr (std::is_same_v<T, Held>) is_over_ = result && !result->held();
        return result;
    }

    /// For the completion's event.
    void note(Event& call) const {
        if (is_inside_) call.counts["inside"] = 1;
        if (is_elsewhere_) call.counts["elsewhere"] = 1;
        if (is_over_) call.counts["over"] = 1;
    }

private:
    struct State {
        State(const Event& event, Recorder& to) : call{event}, recorder{&to} {}

        void complete(Result<T> outcome) {
            if (is_over.exchange(true)) return complain();
            result.emplace(std::move(outcome));
            waiting.resume();
        }
        void complain() {
            Event again = call;
            again.at = now();
            again.stage = Stage::fail;
            again.outcome = "again";
            recorder->write(again);
        }

        Event call;
        Recorder* recorder;
        std::coroutine_handle<> waiting{};
        std::atomic<std::thread::id> starting{};
        std::atomic<bool> is_over{false};
        std::optional<Result<T>> result{};
    };

    std::shared_ptr<State> state_;
    const EventLoop* loop_;
    bool on_loop_;
    std::optional<AsyncResult<T>> awaitable_{};
    std::function<void(Callback)> start_{};
    bool is_inside_ = false;
    bool is_elsewhere_ = false;
    bool is_over_ = false;  // what it gives
};

}  // namespace redlatch::test::fault
