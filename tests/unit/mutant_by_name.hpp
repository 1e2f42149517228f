#pragma once

// Behind the array `link_mutants` in <redlatch_mutant.hpp>.

#include <cstdio>
#include <cstdlib>
#include <string_view>

/// The environment's REDLATCH_MUTANT. A name that is not there ends the program as if all were well, so that nobody
/// takes it for a mutant that was found.
inline const int redlatch_mutant = [] {
    const char* const wanted = std::getenv("REDLATCH_MUTANT");
    if (wanted == nullptr) return 0;
    int number = 0;
    for (const std::string_view name : link_mutants) {
        ++number;
        if (name == wanted) return number;
    }
    std::puts("unknown mutant");
    std::exit(0);
}();
