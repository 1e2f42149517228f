#include "support/lock_table_view.hpp"

#include <redlatch/redlatch.hpp>
#include <redlatch/service/shared_client.hpp>

namespace redlatch::test {
namespace {

auto& locks_of(const Client& client) {
    return detail::Access::shared(client)->session().locks();
}

}  // namespace

std::size_t known_locks(const Client& client) {
    return locks_of(client).size();
}

bool end_in_memory(const Client& client, const std::string& name) {
    const auto hold = locks_of(client).current(name);
    return hold != nullptr && hold->advance(detail::Phase::held, detail::Phase::released);
}

}  // namespace redlatch::test
