#pragma once

// Where the library is compiled. By default it is header-only: each source file compiles what it uses. A
// program with many such files can compile it once instead: all of them define
// REDLATCH_SEPARATE_COMPILATION, by which the headers become declarations, and exactly one includes
// <redlatch/source.hpp>. The CMake target redlatch::compiled does both. Types are the same either way.

#if !defined(REDLATCH_SEPARATE_COMPILATION)
#define REDLATCH_DEFINITIONS 1
#define REDLATCH_INLINE inline
#elif defined(REDLATCH_SOURCE)
#define REDLATCH_DEFINITIONS 1
#define REDLATCH_INLINE
#else
#define REDLATCH_DEFINITIONS 0
#endif
