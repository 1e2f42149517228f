#pragma once

// The one source of the version: the build files read it from here. The inline namespace
// `redlatch::v0` of every header carries the major number.

#define REDLATCH_VERSION_MAJOR 0
#define REDLATCH_VERSION_MINOR 1
#define REDLATCH_VERSION_PATCH 0
