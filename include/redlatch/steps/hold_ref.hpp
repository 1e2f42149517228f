#pragma once

#include <redlatch/compilation.hpp>

#include <cstdint>
#include <memory>

namespace redlatch::inline v0::detail {

class Hold;

/// One acquisition that succeeded: the hold it belongs to, and its own number there.
struct HoldRef {
    std::shared_ptr<Hold> hold;
    std::uint64_t id = 0;
};

}  // namespace redlatch::inline v0::detail
