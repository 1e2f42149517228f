#pragma once

#include <redlatch/async/async_call.hpp>
#include <redlatch/executor.hpp>

#include <memory>
#include <utility>

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

/// A call goes on where one inside it completes: on the engine's thread, or while that one starts. It has
/// started itself by then, and so lives until it has completed.
template <class Then>
class GoOn final : public AsyncCall::Continuation {
public:
    explicit GoOn(Then then) : then_(std::move(then)) {}
    void resume(AsyncCall& call) override { then_(call); }

private:
    Then then_;
};

/// Has `then(call)` run in place where a call inside another one completes. To be called before that one starts: its
/// start then allocates nothing.
template <class Then>
void await_inside(AsyncCall& call, Then then) {
    call.complete_on(InPlace::executor());
    call.await(std::make_unique<GoOn<Then>>(std::move(then)));
}

}  // namespace redlatch::inline v0::detail
