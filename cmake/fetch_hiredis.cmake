# Downloads and builds hiredis. Only with REDLATCH_FETCH_HIREDIS=ON: nobody's build goes to the network
# unasked.

include(FetchContent)

FetchContent_Declare(hiredis
    URL https://github.com/redis/hiredis/archive/refs/tags/v1.2.0.tar.gz
    URL_HASH SHA256=82ad632d31ee05da13b537c124f819eb88e18851d9cb0c30ae0552084811588c)

# hiredis declares a CMake so old that today's would overwrite these with its own defaults, or (from
# CMake 4 on) refuse it.
function(redlatch_fetch_hiredis)
    set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
    set(CMAKE_POLICY_VERSION_MINIMUM 3.5)
    set(DISABLE_TESTS ON)
    set(BUILD_SHARED_LIBS OFF)
    set(CMAKE_POSITION_INDEPENDENT_CODE ON)
    FetchContent_MakeAvailable(hiredis)
endfunction()
redlatch_fetch_hiredis()
FetchContent_GetProperties(hiredis)

# Sources lie flat in the archive, users write <hiredis/hiredis.h>: give the target that folder too.
set(hiredis_include_root "${CMAKE_CURRENT_BINARY_DIR}/hiredis-include")
file(MAKE_DIRECTORY "${hiredis_include_root}")
file(CREATE_LINK "${hiredis_SOURCE_DIR}" "${hiredis_include_root}/hiredis" SYMBOLIC)
target_include_directories(hiredis SYSTEM INTERFACE "$<BUILD_INTERFACE:${hiredis_include_root}>")
