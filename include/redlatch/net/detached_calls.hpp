#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/limit.hpp>
#include <redlatch/net/socket.hpp>
#include <redlatch/net/thread.hpp>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace redlatch::inline v0::detail {

/// Calls that cannot be cancelled and may take for ever, each on a thread that is never joined and owns
/// all it needs. There is one for a name at a time: everybody who needs it meanwhile shares its result,
/// and nobody else does. Thread-safe.
class DetachedCalls {
public:
    /// What a call returns; null where it has failed.
    using Result = std::shared_ptr<const void>;
    /// Throws nothing.
    using Function = std::function<Result()>;

    /// `thread_name`: as `start_service_thread()` takes it. Borrowed.
    explicit DetachedCalls(const char* thread_name) noexcept : thread_name_(thread_name) {}

    /// What `call()` returns. `what` is for messages.
    Expected<Result, Fault> run(const std::string& name, Function call, std::string_view what,
                                const Limit& limit) {
        State& state = *state_;
        std::unique_lock lock{state.mutex};
        const std::shared_ptr<Pending> pending = join(name, std::move(call));
        if (pending == nullptr) {
            return Unexpected{io_fault(std::string{what} + ": cannot start a thread")};
        }
        while (!pending->returned) {
            if (limit.cancelled()) return Unexpected{cancelled_fault()};
            const Clock::duration left = limit.left();
            if (left == Clock::duration::zero()) {
                return Unexpected{io_fault(std::string{what} + ": no answer in time")};
            }
            state.answered.wait_for(lock, std::min<Clock::duration>(left, stop_check_interval));
        }
        return pending->result;
    }

private:
    struct Pending {
        bool returned = false;
        Result result{};
    };

    /// What the threads need too.
    struct State {
        std::mutex mutex;
        std::condition_variable answered;
        std::map<std::string, std::shared_ptr<Pending>> pending;
    };

    /// The call that is under way, or a new one; null without a thread to be had. With the mutex held,
    /// which the thread needs for its result.
    std::shared_ptr<Pending> join(const std::string& name, Function call) {
        const auto found = state_->pending.find(name);
        if (found != state_->pending.end()) return found->second;
        auto pending = std::make_shared<Pending>();
        std::thread thread = start_service_thread(
            thread_name_, [state = state_, pending, name, call = std::move(call)] {
                Result result = call();
                const std::lock_guard lock{state->mutex};
                pending->result = std::move(result);
                pending->returned = true;
                state->pending.erase(name);
                state->answered.notify_all();
            });
        if (!thread.joinable()) return nullptr;
        thread.detach();
        state_->pending.emplace(name, pending);
        return pending;
    }

    const char* const thread_name_;
    const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace redlatch::inline v0::detail
