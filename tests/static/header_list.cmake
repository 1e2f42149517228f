# Fails if a header under include/ is not listed. (The other way round, a listed file that is not there, CMake
# itself refuses.)

cmake_minimum_required(VERSION 3.25)

file(GLOB_RECURSE present LIST_DIRECTORIES false "${INCLUDE_DIR}/*.hpp")
file(STRINGS "${LISTED}" listed)
list(REMOVE_ITEM present ${listed})
if(present)
    list(JOIN present "\n  " present)
    message(FATAL_ERROR "not listed in cmake/headers.cmake:\n  ${present}")
endif()
