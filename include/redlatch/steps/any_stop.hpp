#pragma once

#include <redlatch/compilation.hpp>

#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// Asks a source to stop: as a callback on another token.
struct RequestStop {
    std::stop_source source;
    void operator()() const noexcept { static_cast<void>(std::stop_source{source}.request_stop()); }
};

/// Stops when one of several tokens does.
class AnyStop {
public:
    void add(std::stop_token token) {
        if (!token.stop_possible()) return;
        callbacks_.push_back(std::make_unique<Callback>(std::move(token), RequestStop{source_}));
    }
    void request_stop() const noexcept { RequestStop{source_}(); }
    std::stop_token token() const { return source_.get_token(); }

private:
    using Callback = std::stop_callback<RequestStop>;

    std::stop_source source_;
    std::vector<std::unique_ptr<Callback>> callbacks_;
};

}  // namespace redlatch::inline v0::detail
