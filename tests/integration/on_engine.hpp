#pragma once

#include <redlatch/service/engine.hpp>

#include <future>
#include <stdexcept>

namespace redlatch::test {

/// Runs `action` on the engine's thread, and returns when it has.
template <class Action>
void on_engine(detail::Engine& engine, Action action) {
    struct Task final : detail::EngineTask {
        explicit Task(Action& what) : action(&what) {}
        void run() noexcept override {
            (*action)();
            done.set_value();
        }
        Action* action;
        std::promise<void> done;
    } task{action};
    auto done = task.done.get_future();
    if (!engine.start() || !engine.post(task)) throw std::runtime_error{"no engine"};
    done.get();
}

}  // namespace redlatch::test
