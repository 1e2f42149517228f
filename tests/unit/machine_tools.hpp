#pragma once

#include <redlatch/core/fault.hpp>

#include <gtest/gtest.h>

#include <string>
#include <typeinfo>
#include <utility>

namespace redlatch::test {

/// A machine's action as the kind it has to be.
template <class Kind, class Action>
Kind as(const Action& action) {
    EXPECT_TRUE(holds_alternative<Kind>(action)) << "another kind: " << action.index();
    if (!holds_alternative<Kind>(action)) throw std::bad_cast{};
    return get<Kind>(action);
}

/// A command that certainly did not run.
inline detail::Fault refused(std::string message = "connect: refused") {
    return {.error = {Errc::unavailable, {}, {}, std::move(message), {}}};
}

/// A command that may have run.
inline detail::Fault silent(std::string message = "no answer in time") {
    detail::Fault fault = refused(std::move(message));
    fault.maybe_executed = true;
    return fault;
}

/// A command that will never succeed.
inline detail::Fault forbidden() {
    return {.error = {Errc::denied, {}, {}, "NOPERM", {}}, .transient = false};
}

}  // namespace redlatch::test
