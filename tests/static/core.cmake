# Fails where a header of core/ could read a clock, take a mutex, start or park a thread, or do I/O: what
# decides there has to run in a simulator. It may include what is listed here and nothing else.

cmake_minimum_required(VERSION 3.25)

set(allowed_headers
    # the standard library's: values, containers, memory
    algorithm array atomic bit charconv chrono compare cstddef cstdint cstring functional iterator limits list map
    memory new optional span string string_view system_error type_traits unordered_map unordered_set utility
    vector
    stop_token  # a hold owns the token of its loss; the notifier fires it
    # the vocabulary, and what a policy is
    "redlatch/(clock|compilation|error|options|recycled_memory|result|types)[.]hpp"
    "redlatch/policy/(lock_keys|lock_policy)[.]hpp"
    "redlatch/core/[a-z_]+[.]hpp")
list(JOIN allowed_headers "|" allowed_headers)
set(forbidden_calls
    "now\\(\\)|sleep_(for|until)|this_thread|clock_gettime|gettimeofday|getpid|stop_callback|random_device")

file(GLOB_RECURSE files "${INCLUDE_DIR}/redlatch/core/*")
if(NOT files)
    message(FATAL_ERROR "No headers in ${INCLUDE_DIR}/redlatch/core")
endif()
set(faults 0)
foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    file(STRINGS "${file}" includes REGEX "^ *# *include")
    list(FILTER includes EXCLUDE REGEX "^#include <(${allowed_headers})>$")
    file(STRINGS "${file}" calls REGEX "${forbidden_calls}")
    list(FILTER calls EXCLUDE REGEX "^ *//")
    foreach(line IN LISTS includes calls)
        message(SEND_ERROR "core/${name}: ${line}")
        math(EXPR faults "${faults} + 1")
    endforeach()
endforeach()
if(faults)
    message(FATAL_ERROR "A machine gets the time and all answers as arguments: ${faults} lines do not")
endif()
