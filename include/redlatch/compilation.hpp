#pragma once

// What the library cannot do without. Every header includes this one first. The include of a file that does
// not exist ends the compilation, so that the compiler says no more than this.

#if !defined(__linux__)
#error "redlatch runs on Linux only"
#include "see the error above"
#endif

#if __cplusplus < 202002L
#error "redlatch needs C++20: compile with -std=c++20 or newer"
#include "see the error above"
#endif

#include <version>

#if !defined(__cpp_lib_jthread)
#error \
    "redlatch needs std::stop_token, which this standard library lacks: libstdc++ has it from 11 on, libc++ from 20 on and from 18 on with -fexperimental-library"
#include "see the error above"
#endif

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
#define REDLATCH_INLINE
#endif
