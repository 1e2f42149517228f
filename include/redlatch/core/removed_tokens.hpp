#pragma once

#include <redlatch/compilation.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::inline v0::detail {

/// Tokens that this process has removed at the server by force while no hold of its own went by them. An acquisition
/// whose answer is still under way may end with one of them: it has lost the lock by then. The last few are remembered.
class RemovedTokens {
public:
    void add(std::string_view token) {
        if (tokens_.size() == most) tokens_.erase(tokens_.begin());
        tokens_.emplace_back(token);
    }

    /// Whether it was removed. Forgets that.
    bool take(std::string_view token) noexcept {
        const auto found = std::find(tokens_.begin(), tokens_.end(), token);
        if (found == tokens_.end()) return false;
        tokens_.erase(found);
        return true;
    }

private:
    static constexpr std::size_t most = 256;

    std::vector<std::string> tokens_;  // the oldest first
};

}  // namespace redlatch::inline v0::detail
