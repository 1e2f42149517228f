#pragma once

#include <redlatch/net/process_id.hpp>

#include <cstdint>
#include <memory>

namespace redlatch::inline v0::detail {

class Hold;

/// One acquisition that succeeded: the hold it belongs to, and its own number there.
struct HoldRef {
    std::shared_ptr<Hold> hold{};
    std::uint64_t id = 0;
    ::pid_t process = ProcessId::of_this_process();

    /// Whether there is a hold, and it belongs to this process and not to the one that this was
    /// forked from.
    bool is_ours() const noexcept {
        return hold != nullptr && process == ProcessId::of_this_process();
    }
};

}  // namespace redlatch::inline v0::detail
