#pragma once

#include <redlatch/redlatch.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// What there may be under a name.
enum class Kind { simple, reentrant, shared, semaphore };

/// What there is.
struct Seen {
    Kind kind = Kind::simple;
    std::vector<redlatch::Holder> holders;         ///< nobody where it is free
    std::uint64_t count = 0;                       ///< holds, holders, or permits taken
    std::optional<std::uint64_t> permits;          ///< of a semaphore, where that was set
    std::optional<std::chrono::milliseconds> ttl;  ///< until the last one's end, if there is one
    std::uint64_t waiters = 0;
};

/// Asks for one kind after the other, until it is that.
redlatch::Result<Seen> look_at(redlatch::Client& client, const std::string& name);

/// Takes it away from one of the holders, and from nobody else; where that one's token is empty, from whoever has it.
redlatch::Result<redlatch::Forced> take_from(redlatch::Client& client, const std::string& name,
                                             Kind kind, const std::string& owner);

}  // namespace tool
