#include "any_lock.hpp"
#include "text.hpp"
#include "verbs.hpp"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace tool {

namespace {

/// `has_end`: else the key may be no lock at all.
bool user_agrees(const std::string& name, const std::string& owner, bool has_end) {
    std::fprintf(stderr, "'%s' is held by %s%s. Take it away? [y/N] ", printable(name).c_str(),
                 printable_owner(owner).c_str(),
                 has_end ? "" : ", without an end: it may be data, and no lock");
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "yes";
}

}  // namespace

int take_away(const Settings& settings) {
    if (!settings.yes && ::isatty(STDIN_FILENO) != 1) {
        complain(settings, "without a terminal to ask at, --yes has to be given");
        return settings.codes.of(Failure::usage);
    }
    const std::string& name = settings.names.front();
    redlatch::Client client = make_client(settings);
    const auto seen = look_at(client, name);
    if (!seen) return failed(settings, seen.error());
    if (seen->holders.empty()) {
        std::puts("free");
        return 0;
    }
    bool taken = false;
    const bool has_end = seen->ttl || seen->kind == Kind::shared || seen->kind == Kind::semaphore;
    for (const redlatch::Holder& holder : seen->holders) {
        if (!settings.yes && !user_agrees(name, holder.owner, has_end)) continue;
        taken = true;
        const auto forced = take_from(client, name, seen->kind, holder.owner);
        if (!forced) return failed(settings, forced.error());
        const bool removed = *forced == redlatch::Forced::removed;
        std::puts(removed ? ("taken from " + printable_owner(holder.owner)).c_str()
                          : "that holder had already let it go");
    }
    if (taken) return 0;
    complain(settings, "nothing was done");
    return settings.codes.of(Failure::busy);
}

}  // namespace tool
