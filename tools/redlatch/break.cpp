#include "any_lock.hpp"
#include "verbs.hpp"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

namespace tool {

namespace {

bool user_agrees(const std::string& name, const std::string& owner) {
    std::fprintf(stderr, "'%s' is held by %s. Take it away? [y/N] ", printable(name).c_str(),
                 printable(owner).c_str());
    std::string answer;
    std::getline(std::cin, answer);
    return answer == "y" || answer == "yes";
}

int failed(const Settings& settings, const redlatch::Error& error) {
    complain(settings, error.describe());
    return settings.codes.of(error);
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
    for (const redlatch::Holder& holder : seen->holders) {
        if (!settings.yes && !user_agrees(name, holder.owner)) continue;
        taken = true;
        const auto forced = take_from(client, name, seen->kind, holder.owner);
        if (!forced) return failed(settings, forced.error());
        const bool removed = *forced == redlatch::Forced::removed;
        std::puts(removed ? ("taken from " + printable(holder.owner)).c_str()
                          : "that holder had already let it go");
    }
    if (taken) return 0;
    complain(settings, "nothing was done");
    return settings.codes.of(Failure::busy);
}

}  // namespace tool
