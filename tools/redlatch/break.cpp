#include "any_lock.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <strings.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace tool {

namespace {

/// `has_end`: else the key may be no lock at all.
bool user_agrees(const std::string& name, const std::string& owner, bool has_end) {
    std::fprintf(stderr, "'%s' is held by %s%s. Take it away? [y/N] ", printable(name).c_str(),
                 printable_owner(owner).c_str(),
                 has_end ? "" : ", without an end: it may be data, and no lock");
    std::string answer;
    std::getline(std::cin, answer);
    return ::strcasecmp(answer.c_str(), "y") == 0 || ::strcasecmp(answer.c_str(), "yes") == 0;
}

/// How much of what is held that holder has.
std::uint64_t part_of(const redlatch::Holder& holder, Kind kind) {
    return kind == Kind::semaphore ? holder.weight : 1;
}

/// How much of it those have whom the server has named. It names two hundred at once.
std::uint64_t named(const Seen& seen) {
    std::uint64_t sum = 0;
    for (const redlatch::Holder& holder : seen.holders) sum += part_of(holder, seen.kind);
    return sum;
}

/// How much all of those have at whom one may have to look once more.
std::uint64_t all_that_is_held(const Seen& seen) {
    const bool has_many = seen.kind == Kind::semaphore || seen.kind == Kind::shared;
    return has_many ? seen.count : 0;
}

/// Leaves of those whom a further look has named as many as the first look has counted and not named. Who came
/// meanwhile mostly ends later than who was there before, and is named behind that one.
void leave_out_newcomers(Seen& seen, std::uint64_t left) {
    std::vector<redlatch::Holder> kept;
    for (redlatch::Holder& holder : seen.holders) {
        const std::uint64_t part = part_of(holder, seen.kind);
        if (part > left) continue;
        left -= part;
        kept.push_back(std::move(holder));
    }
    seen.holders = std::move(kept);
}

/// Takes it away from those who were named, where the user agrees. Whether it did, of anybody.
redlatch::Result<bool> take_from_named(const Settings& settings, redlatch::Client& client,
                                       const Seen& seen) {
    const std::string& name = settings.names.front();
    bool taken = false;
    const bool has_end = seen.ttl || seen.kind == Kind::shared || seen.kind == Kind::semaphore;
    for (const redlatch::Holder& holder : seen.holders) {
        if (!settings.yes && !user_agrees(name, holder.owner, has_end)) continue;
        taken = true;
        const auto forced = take_from(client, name, seen.kind, holder.owner);
        if (!forced) return redlatch::Unexpected{forced.error()};
        const bool removed = *forced == redlatch::Forced::removed;
        std::puts(removed ? ("taken from " + printable_owner(holder.owner)).c_str()
                          : "that holder had already let it go");
    }
    return taken;
}

}  // namespace

int take_away(const Settings& settings) {
    if (!settings.yes && ::isatty(STDIN_FILENO) != 1) {
        complain(settings, "without a terminal to ask at, --yes has to be given");
        return settings.codes.of(Failure::usage);
    }
    const std::string& name = settings.names.front();
    redlatch::Client client = make_client(settings);
    auto seen = look_at(client, name);
    if (!seen) return failed(settings, seen.error());
    if (seen->holders.empty()) {
        std::puts("free");
        return 0;
    }
    bool any_taken = false;
    for (std::uint64_t left = all_that_is_held(*seen); !seen->holders.empty();) {
        const auto taken = take_from_named(settings, client, *seen);
        if (!taken) return failed(settings, taken.error());
        any_taken = any_taken || *taken;
        if (left <= named(*seen)) break;
        left -= named(*seen);
        if (!settings.yes) {
            complain(settings, std::to_string(left) + " more are held, by others than these");
            return settings.codes.of(Failure::busy);
        }
        seen = look_at(client, name);
        if (!seen) return failed(settings, seen.error());
        leave_out_newcomers(*seen, left);
    }
    if (any_taken) return 0;
    complain(settings, "nothing was done");
    return settings.codes.of(Failure::busy);
}

}  // namespace tool
