#pragma once

#include <functional>
#include <future>
#include <type_traits>
#include <utility>

namespace redlatch::test {

/// Runs a blocking call on a thread of its own. The future's destructor waits for it.
///
/// All that the standard library needs for that is instantiated once for a type of outcome, not once for a lambda: for
/// tests of many policies it was a third of the time to compile them.
template <class Function>
auto in_background(Function function) {
    using Returned = std::invoke_result_t<Function&>;
    return std::async(std::launch::async, std::function<Returned()>{std::move(function)});
}

}  // namespace redlatch::test
