# What redlatch needs at run time: hiredis and threads, and OpenSSL for TLS where that is wanted.

find_package(Threads REQUIRED)

# Our find module must be seen by this one call only, not by the project around us.
list(PREPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}")
find_package(Hiredis MODULE)
list(POP_FRONT CMAKE_MODULE_PATH)

if(NOT TARGET hiredis::hiredis AND REDLATCH_FETCH_HIREDIS)
    include("${CMAKE_CURRENT_LIST_DIR}/fetch_hiredis.cmake")
endif()

# Lines that begin with a space are printed as they stand.
if(NOT TARGET hiredis::hiredis)
    message(FATAL_ERROR
        " redlatch needs hiredis, the C client of Redis, and found none.\n"
        " Install it:\n"
        "   Debian, Ubuntu     apt install libhiredis-dev\n"
        "   Fedora             dnf install hiredis-devel\n"
        "   vcpkg              vcpkg install hiredis\n"
        "   Conan              requires hiredis/1.2.0\n"
        " or point CMAKE_PREFIX_PATH at an installed one,\n"
        " or let the build download it: -DREDLATCH_FETCH_HIREDIS=ON\n")
endif()

find_package(OpenSSL 1.1.1 QUIET COMPONENTS SSL)
