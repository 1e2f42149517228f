#include "any_lock.hpp"

#include <utility>

namespace tool {

namespace {

using redlatch::Errc;
using redlatch::Forced;
using redlatch::Lock;
using redlatch::Reentrant;
using redlatch::Result;
using redlatch::Semaphore;
using redlatch::Shared;
using redlatch::Simple;
using redlatch::Unexpected;

template <class Policy>
Result<Seen> look_as(redlatch::Client& client, const std::string& name, Kind kind) {
    auto info = Lock<Policy>{client, name}.inspect();
    if (!info) return Unexpected{std::move(info).error()};
    Seen seen{.kind = kind,
              .holders = std::move(info->holders),
              .count = info->hold_count,
              .permits = {},
              .ttl = info->ttl,
              .waiters = info->waiters};
    if (info->locked && seen.holders.empty()) seen.holders.push_back({.owner = info->owner});
    return seen;
}

Result<Seen> look_as_semaphore(redlatch::Client& client, const std::string& name) try {
    constexpr auto unknown = Semaphore<>::max();
    auto info = Semaphore<>{client, name, unknown}.inspect();
    if (!info) return Unexpected{std::move(info).error()};
    Seen seen{.kind = Kind::semaphore,
              .holders = std::move(info->holders),
              .count = info->taken,
              .permits = info->permits,
              .ttl = {},
              .waiters = info->waiters};
    if (info->permits == static_cast<std::uint64_t>(unknown)) seen.permits.reset();
    return seen;
} catch (const redlatch::LockError& error) {
    return Unexpected{error.error()};
}

/// From `owner`, and from nobody else. A client of another kind may have left an empty token, which
/// `force_unlock(owner)` refuses: that is taken away as whatever is there.
template <class Policy>
Result<Forced> take_as(redlatch::Client& client, const std::string& name,
                       const std::string& owner) {
    Lock<Policy> lock{client, name};
    return owner.empty() ? lock.force_unlock() : lock.force_unlock(owner);
}

bool is_another_kind(const Result<Seen>& answer) {
    return !answer && answer.error().code == Errc::wrong_type;
}

}  // namespace

Result<Seen> look_at(redlatch::Client& client, const std::string& name) {
    const auto first = look_as<Simple>(client, name, Kind::simple);
    if (!is_another_kind(first)) return first;
    auto seen = look_as<Reentrant>(client, name, Kind::reentrant);
    if (is_another_kind(seen)) seen = look_as<Shared>(client, name, Kind::shared);
    if (is_another_kind(seen)) seen = look_as_semaphore(client, name);
    // Several masters share no permits.
    const bool is_none = !seen && seen.error().code == Errc::invalid_argument;
    return is_none || is_another_kind(seen) ? first : seen;
}

Result<Forced> take_from(redlatch::Client& client, const std::string& name, Kind kind,
                         const std::string& owner) {
    switch (kind) {
        case Kind::simple: return take_as<Simple>(client, name, owner);
        case Kind::reentrant: return take_as<Reentrant>(client, name, owner);
        case Kind::shared: return Lock<Shared>{client, name}.force_unlock(owner);
        case Kind::semaphore: break;
    }
    return Semaphore<>{client, name, Semaphore<>::max()}.force_release(owner);
}

}  // namespace tool
