# Fails where a header of core/ could read a clock, take a mutex, start or park a thread, or do I/O: what
# decides there has to run in a simulator.

cmake_minimum_required(VERSION 3.25)

set(forbidden_headers
    barrier condition_variable fstream future iostream latch mutex semaphore shared_mutex thread
    errno\\.h fcntl\\.h hiredis/ netdb\\.h poll\\.h pthread\\.h signal\\.h sys/ time\\.h unistd\\.h
    cerrno csignal ctime)
list(JOIN forbidden_headers "|" forbidden_headers)

file(GLOB files "${INCLUDE_DIR}/redlatch/core/*.hpp")
if(NOT files)
    message(FATAL_ERROR "No headers in ${INCLUDE_DIR}/redlatch/core")
endif()
set(faults 0)
foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    file(STRINGS "${file}" includes REGEX "^ *#include <(${forbidden_headers})")
    file(STRINGS "${file}" calls REGEX "now\\(\\)|sleep_(for|until)|this_thread")
    foreach(line IN LISTS includes calls)
        if(NOT line MATCHES "^ *//")
            message(SEND_ERROR "core/${name}: ${line}")
            math(EXPR faults "${faults} + 1")
        endif()
    endforeach()
endforeach()
if(faults)
    message(FATAL_ERROR "A machine gets the time and all answers as arguments: ${faults} lines do not")
endif()
