#pragma once

// The definitions that REDLATCH_SEPARATE_COMPILATION leaves out elsewhere, for one source file of the
// program; see <redlatch/compilation.hpp>. Stands before any other include of the library there.

#if defined(REDLATCH_DEFINITIONS)
#error "<redlatch/source.hpp> must be the first of redlatch's headers in its file"
#endif
#if !defined(REDLATCH_SEPARATE_COMPILATION)
#define REDLATCH_SEPARATE_COMPILATION
#endif
#define REDLATCH_SOURCE

#include <redlatch/lock_set.hpp>
#include <redlatch/metrics.hpp>
#include <redlatch/redlatch.hpp>
