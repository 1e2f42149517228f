# For those who work on redlatch itself. Nothing here is installed or seen by a user's targets.

# Warnings, in a target of their own: tests, examples and benchmarks link it, the library does not.
add_library(redlatch_developer INTERFACE)
target_compile_options(redlatch_developer INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)
# g++ 12 sees an overlapping memcpy in `"text" + std::string` from -O2 on (GCC bug 105651).
target_compile_options(redlatch_developer INTERFACE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

# The tests are more than a hundred programs: where lld is there, each is linked in a quarter of the time.
find_program(REDLATCH_LLD ld.lld)
mark_as_advanced(REDLATCH_LLD)
if(REDLATCH_LLD)
    target_link_options(redlatch_developer INTERFACE -fuse-ld=lld)
endif()

target_link_libraries(redlatch_compiled PRIVATE redlatch_developer)

# What is read here; installed are all.
set(checked_headers ${REDLATCH_HEADERS})
set(all_of_redlatch redlatch)
if(TARGET redlatch_tls)
    list(APPEND checked_headers ${REDLATCH_TLS_HEADERS})
    list(APPEND all_of_redlatch redlatch_tls)
endif()
if(TARGET redlatch_asio)
    list(APPEND checked_headers ${REDLATCH_ASIO_HEADERS})
    list(APPEND all_of_redlatch redlatch_asio)
endif()

# Each header alone in a translation unit, with the warnings above, as a part of the default build. (The
# header set of `redlatch` itself would be checked without them.) CMake's own switch turns it off.
if(NOT DEFINED CMAKE_VERIFY_INTERFACE_HEADER_SETS)
    set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)
endif()
if(CMAKE_VERIFY_INTERFACE_HEADER_SETS)
    add_library(redlatch_self_contained INTERFACE)
    target_link_libraries(redlatch_self_contained INTERFACE ${all_of_redlatch} redlatch_developer)
    target_sources(redlatch_self_contained INTERFACE
        FILE_SET HEADERS BASE_DIRS include FILES ${checked_headers})
    # Those that leave out definitions, without them.
    set(declared_headers ${checked_headers})
    list(FILTER declared_headers INCLUDE REGEX
        "/(result|client|held|lock_impl|lock|lock_guard|policy/(simple|reentrant|redisson_reentrant))\\.hpp$")
    add_library(redlatch_declared INTERFACE)
    target_compile_definitions(redlatch_declared INTERFACE REDLATCH_SEPARATE_COMPILATION)
    target_link_libraries(redlatch_declared INTERFACE ${all_of_redlatch} redlatch_developer)
    target_sources(redlatch_declared INTERFACE
        FILE_SET HEADERS BASE_DIRS include FILES ${declared_headers})
    # Nobody debugs them: a quarter of the time.
    foreach(alone IN ITEMS redlatch_self_contained redlatch_declared)
        target_compile_options(${alone} INTERFACE -g0)
    endforeach()
    add_custom_target(redlatch_verify_headers ALL)
    add_dependencies(redlatch_verify_headers all_verify_interface_header_sets)
endif()

# What clang-tidy reads with the preset `tidy`: all headers in one translation unit. One for each header
# would read the lower layers again and again.
set(includes "${checked_headers}")
list(REMOVE_ITEM includes include/redlatch/source.hpp)  # has to be the first
list(TRANSFORM includes REPLACE "^include/(.*)" "#include <\\1>\n")
list(JOIN includes "" includes)
file(CONFIGURE OUTPUT all_headers.cpp CONTENT "${includes}" @ONLY)
add_library(redlatch_tidy OBJECT EXCLUDE_FROM_ALL "${CMAKE_CURRENT_BINARY_DIR}/all_headers.cpp")
target_link_libraries(redlatch_tidy PRIVATE ${all_of_redlatch} redlatch_developer)

# Presets cannot ask whether a program is there.
find_program(REDLATCH_CCACHE ccache)
mark_as_advanced(REDLATCH_CCACHE)
if(REDLATCH_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${REDLATCH_CCACHE}")
    # Made before this was known.
    set_target_properties(redlatch_compiled PROPERTIES CXX_COMPILER_LAUNCHER "${REDLATCH_CCACHE}")
endif()
