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
    redlatch::Client client = make_client(settings);
    const auto info =
        with_any_lock(client, settings.name, [](auto& lock) { return lock.inspect(); });
    if (!info) return failed(settings, info.error());
    if (!info->locked) {
        std::puts("free");
        return 0;
    }
    if (!settings.yes && !user_agrees(settings.name, info->owner)) {
        complain(settings, "nothing was done");
        return settings.codes.of(Failure::busy);
    }
    const auto forced = with_any_lock(
        client, settings.name, [&info](auto& lock) { return lock.force_unlock(info->owner); });
    if (!forced) return failed(settings, forced.error());
    const bool removed = *forced == redlatch::Forced::removed;
    std::puts(removed ? ("taken from " + printable(info->owner)).c_str()
                      : "that holder had already let it go");
    return 0;
}

}  // namespace tool
