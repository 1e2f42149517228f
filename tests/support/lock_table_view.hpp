// What a client of this process knows of its locks. In a file of its own, as it takes all of the library.
#pragma once

#include <redlatch/client.hpp>

#include <cstddef>
#include <string>

namespace redlatch::test {

/// How many names have an entry in the client's lock table.
std::size_t known_locks(const Client& client);

/// Ends the current hold of `name` as a release does that passes it on in memory: under its token, and without a
/// command. False where nothing is held.
bool end_in_memory(const Client& client, const std::string& name);

}  // namespace redlatch::test
