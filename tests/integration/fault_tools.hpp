#pragma once

#include "support/in_background.hpp"
#include "support/resources.hpp"
#include "support/wait.hpp"
#include <redlatch/redlatch.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What the tests of faults have in common.

namespace redlatch::test {

/// How much later than promised a call may return on a busy machine.
inline constexpr std::chrono::seconds slack{5};

/// What clients of these tests give one command, unless a test is about another time.
inline constexpr std::chrono::milliseconds command_timeout{400};

inline ClientOptions options_for(const std::string& uri,
                                 std::chrono::milliseconds timeout = command_timeout,
                                 std::shared_ptr<Observer> observer = nullptr) {
    ClientOptions options;
    options.uris = {Uri{uri}};
    options.connect_timeout = timeout;
    options.command_timeout = timeout;
    options.observer = std::move(observer);
    return options;
}

/// Remembers what it was told.
class Journal : public Observer {
public:
    void error(const Error& error) override {
        const std::lock_guard lock{mutex_};
        errors_.push_back(error);
    }
    void renewed(const Renewed&) override {
        const std::lock_guard lock{mutex_};
        ++renewals_;
    }
    void released(const Released& released) override {
        const std::lock_guard lock{mutex_};
        releases_.push_back(released.outcome);
    }
    void reconnected(const Reconnected&) override {
        const std::lock_guard lock{mutex_};
        ++reconnects_;
    }

    std::vector<Error> errors() {
        const std::lock_guard lock{mutex_};
        return errors_;
    }
    std::vector<Result<Release>> releases() {
        const std::lock_guard lock{mutex_};
        return releases_;
    }
    int renewals() {
        const std::lock_guard lock{mutex_};
        return renewals_;
    }
    int reconnects() {
        const std::lock_guard lock{mutex_};
        return reconnects_;
    }

private:
    std::mutex mutex_;
    std::vector<Error> errors_;
    std::vector<Result<Release>> releases_;
    int renewals_ = 0;
    int reconnects_ = 0;
};

/// The error that a call throws; nothing where it returns.
template <class Function>
std::optional<Error> thrown_by(Function&& function) {
    try {
        function();
        return std::nullopt;
    } catch (const LockError& error) {
        return error.error();
    }
}

inline testing::AssertionResult is_error(const std::optional<Error>& error, Errc code) {
    if (!error) return testing::AssertionFailure() << "no error at all";
    if (error->code == code) return testing::AssertionSuccess();
    return testing::AssertionFailure() << error->describe();
}

template <class T>
testing::AssertionResult fails_with(const Result<T>& result, Errc code) {
    if (result) return testing::AssertionFailure() << "it succeeded";
    return is_error(result.error(), code);
}

template <class T>
testing::AssertionResult succeeds(const Result<T>& result) {
    if (result) return testing::AssertionSuccess();
    return testing::AssertionFailure() << result.error().describe();
}

inline testing::AssertionResult is_outcome(const Result<Release>& result, Release outcome) {
    if (!result) return testing::AssertionFailure() << result.error().describe();
    if (*result == outcome) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "release outcome " << static_cast<int>(*result);
}

/// Whether the error's message, or one of its causes', contains `words`.
inline bool speaks_of(const Error& error, std::string_view words) {
    if (error.message.find(words) != std::string::npos) return true;
    for (const Error& cause : error.causes) {
        if (speaks_of(cause, words)) return true;
    }
    return false;
}

template <class T>
bool finishes(std::future<T>& future, std::chrono::milliseconds limit = generous_limit) {
    return future.wait_for(limit) == std::future_status::ready;
}

}  // namespace redlatch::test
