# For those who work on redlatch itself. Nothing here is installed or seen by a user's targets.

if(CMAKE_VERSION VERSION_LESS 3.25)
    message(FATAL_ERROR
        " The tests, examples and benchmarks of redlatch need CMake 3.25. For the library alone set\n"
        " REDLATCH_BUILD_TESTS, REDLATCH_BUILD_EXAMPLES and REDLATCH_BUILD_BENCHMARKS to OFF.\n")
endif()

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

# Asio 1.22 finds no coroutines with clang and libstdc++, and is told of them. With AddressSanitizer clang 14 does not
# compile those of any Asio.
add_library(redlatch_asio_coroutines INTERFACE)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    set(redlatch_asio_has_coroutines ON)
elseif(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*address")
    set(redlatch_asio_has_coroutines OFF)
    target_compile_definitions(redlatch_asio_coroutines INTERFACE ASIO_DISABLE_CO_AWAIT BOOST_ASIO_DISABLE_CO_AWAIT)
else()
    set(redlatch_asio_has_coroutines ON)
    target_compile_definitions(redlatch_asio_coroutines INTERFACE ASIO_HAS_CO_AWAIT ASIO_HAS_STD_COROUTINE)
endif()

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

# source.hpp has to be the first one.
set(chained_headers ${checked_headers})
list(REMOVE_ITEM chained_headers include/redlatch/source.hpp)

# Each header has to stand alone, with the warnings above; a part of the default build.
option(REDLATCH_CHECK_HEADERS "Compile the headers alone, too (default: ON)" ON)
if(REDLATCH_CHECK_HEADERS)
    include(cmake/header_chains.cmake)
    redlatch_header_chains(units ${chained_headers})
    add_library(redlatch_self_contained OBJECT ${units})
    # Those that leave out definitions, without them.
    set(declared_headers ${chained_headers})
    list(FILTER declared_headers INCLUDE REGEX
        "/(result|client|held|lock_impl|lock|lock_guard|policy/(simple|reentrant|redisson_reentrant))\\.hpp$")
    set(units "")
    foreach(header IN LISTS declared_headers)
        string(REGEX REPLACE "[^a-z0-9_]" "_" unit "${header}")
        set(unit "${CMAKE_CURRENT_BINARY_DIR}/declared_headers/${unit}.cpp")
        file(CONFIGURE OUTPUT "${unit}" CONTENT "#include \"${header}\"\n" @ONLY)
        list(APPEND units "${unit}")
    endforeach()
    add_library(redlatch_declared OBJECT ${units})
    target_compile_definitions(redlatch_declared PRIVATE REDLATCH_SEPARATE_COMPILATION)
    # What projects switch on beside those above, for headers that are no system headers to them too.
    set(warnings_of_users -Wnon-virtual-dtor -Wold-style-cast -Wcast-align -Woverloaded-virtual -Wsign-conversion
        -Wdouble-promotion -Wformat=2 -Wextra-semi -Wmissing-declarations -Wredundant-decls -Wundef)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
        list(APPEND warnings_of_users
            -Wlogical-op -Wuseless-cast -Wduplicated-cond -Wduplicated-branches -Wsuggest-override)
    endif()
    # Nobody debugs them: a quarter of the time.
    foreach(alone IN ITEMS redlatch_self_contained redlatch_declared)
        target_include_directories(${alone} PRIVATE "${PROJECT_SOURCE_DIR}")
        target_link_libraries(${alone} PRIVATE ${all_of_redlatch} redlatch_developer)
        target_compile_options(${alone} PRIVATE -g0 ${warnings_of_users})
    endforeach()
endif()

# What clang-tidy reads with the preset `tidy`: all headers in one translation unit. One for each header
# would read the lower layers again and again.
set(includes "${chained_headers}")
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
