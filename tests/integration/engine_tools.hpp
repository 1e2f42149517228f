#pragma once

#include "on_engine.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>
#include <redlatch/service/session.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Orders that a test gives to an engine, and what becomes of them.

namespace redlatch::test {

/// What an order was told.
struct Outcome {
    std::string value;  ///< of an answer, as text; empty for a fault
    detail::Fault fault{};
    detail::MasterSets masters{};
    detail::TimePoint sent{};
    std::int64_t replicas = 0;
    std::int64_t replicas_wanted = 0;

    bool answered() const { return !value.empty(); }
};

/// An order of a few words. Any thread may look at what it was told.
class TestOrder final : public detail::Order {
public:
    using Words = std::vector<std::string>;

    explicit TestOrder(Words words, std::string token = {})
        : words_(std::move(words)), token_(std::move(token)) {}
    TestOrder(const Script& script, Words words, std::string token = {})
        : words_(std::move(words)), token_(std::move(token)), script_(&script) {}

    detail::Call call(bool again) const override {
        if (again) asked_again = true;
        return plain_call().for_replicas(replicas);
    }

    detail::Call plain_call() const {
        if (script_ != nullptr) return {*script_, {words_.at(0)}, {}, shape};
        switch (words_.size()) {
            case 1: return detail::Call::plain({words_[0]}, shape);
            case 2: return detail::Call::plain({words_[0], words_[1]}, shape);
            default: return detail::Call::plain({words_[0], words_[1], words_[2]}, shape);
        }
    }
    std::string_view token() const noexcept override { return token_; }
    const void* own_link() const noexcept override { return own; }

    void answered(Expected<detail::Reply, detail::Fault>&& reply, const detail::MasterSets& masters,
                  detail::TimePoint sent) noexcept override {
        Outcome told = outcome_of(reply);
        if (reply) {
            told.replicas = reply->replicas;
            told.replicas_wanted = reply->replicas_wanted;
        }
        told.masters = masters;
        told.sent = sent;
        if (then) then();
        const std::lock_guard lock{mutex_};
        ++times_told_;
        outcome_ = std::move(told);
    }

    void answered_late(const Expected<detail::Reply, detail::Fault>& reply,
                       detail::TimePoint sent) noexcept override {
        Outcome told = outcome_of(reply);
        told.sent = sent;
        const std::lock_guard lock{mutex_};
        late_.push_back(std::move(told));
    }

    /// What it was told; waits for that.
    Outcome wait() {
        if (!eventually([this] { return is_told(); })) throw std::runtime_error{"no answer"};
        const std::lock_guard lock{mutex_};
        return *outcome_;
    }
    bool is_told() { return times_told() != 0; }
    int times_told() {
        const std::lock_guard lock{mutex_};
        return times_told_;
    }

    std::vector<Outcome> late() {
        const std::lock_guard lock{mutex_};
        return late_;
    }

    Replicas replicas = Replicas::none();
    const void* own = nullptr;  ///< as of `Order::own_link`
    detail::ReplyShape shape = detail::ReplyShape::any;
    std::function<void()> then{};  ///< on the engine's thread, when it is answered
    mutable std::atomic<bool> asked_again{false};

private:
    static Outcome outcome_of(const Expected<detail::Reply, detail::Fault>& reply) {
        if (!reply) return {.value = {}, .fault = reply.error()};
        const detail::ReplyView view = reply->view();
        if (view.is_nil()) return {.value = "nil"};
        if (const auto number = view.integer()) return {.value = std::to_string(*number)};
        return {.value = std::string{view.text()}};
    }

    const Words words_;
    const std::string token_;
    const Script* script_ = nullptr;
    std::mutex mutex_;
    int times_told_ = 0;
    std::optional<Outcome> outcome_;
    std::vector<Outcome> late_;
};

using OrderPtr = std::shared_ptr<TestOrder>;

/// An order whose answer is waited for by so long from now on.
inline OrderPtr order(TestOrder::Words words, std::chrono::milliseconds wait = generous_limit) {
    auto made = std::make_shared<TestOrder>(std::move(words));
    made->time = detail::saturating_add(Clock::now(), wait);
    return made;
}

inline OrderPtr order(const Script& script, std::string key) {
    auto made = std::make_shared<TestOrder>(script, TestOrder::Words{std::move(key)});
    made->time = detail::saturating_add(Clock::now(), generous_limit);
    return made;
}

}  // namespace redlatch::test
