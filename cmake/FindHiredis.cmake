#[=======================================================================[.rst:
FindHiredis
-----------

Gives the imported target ``hiredis::hiredis``, whose include directory serves
``#include <hiredis/hiredis.h>``. Takes, in this order:

1. the target, if the project around has made it already;
2. hiredis' own CMake package, ``hiredis``, since 1.0. (Debian 12 has one called
   ``Hiredis``. It defines no target and stops the configuration with an error
   when it is asked for without a version, so it is left alone.);
3. header and library as pkg-config or the usual folders show them.
#]=======================================================================]

if(NOT TARGET hiredis::hiredis)
    find_package(hiredis CONFIG QUIET)
endif()

include(FindPackageHandleStandardArgs)

if(TARGET hiredis::hiredis)
    set(Hiredis_TARGET hiredis::hiredis)
    set(Hiredis_VERSION "${hiredis_VERSION}")
    find_package_handle_standard_args(Hiredis
        REQUIRED_VARS Hiredis_TARGET
        VERSION_VAR Hiredis_VERSION)
    return()
endif()

find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(PC_HIREDIS QUIET hiredis)
endif()

# pkg-config's flag points into the folder hiredis/, one level deeper than the include line needs.
set(Hiredis_INCLUDE_HINTS ${PC_HIREDIS_INCLUDEDIR})
foreach(Hiredis_HINT IN LISTS PC_HIREDIS_INCLUDEDIR PC_HIREDIS_INCLUDE_DIRS)
    get_filename_component(Hiredis_HINT "${Hiredis_HINT}" DIRECTORY)
    list(APPEND Hiredis_INCLUDE_HINTS "${Hiredis_HINT}")
endforeach()

find_path(Hiredis_INCLUDE_DIR hiredis/hiredis.h
    HINTS ${Hiredis_INCLUDE_HINTS})
# Beside the header first of all: structures differ between versions, so the two must not be mixed.
find_library(Hiredis_LIBRARY hiredis
    HINTS "${Hiredis_INCLUDE_DIR}/../lib" ${PC_HIREDIS_LIBDIR} ${PC_HIREDIS_LIBRARY_DIRS})
mark_as_advanced(Hiredis_INCLUDE_DIR Hiredis_LIBRARY)

set(Hiredis_VERSION "")
if(Hiredis_INCLUDE_DIR)
    file(STRINGS "${Hiredis_INCLUDE_DIR}/hiredis/hiredis.h" Hiredis_VERSION_LINES
        REGEX "^#define HIREDIS_(MAJOR|MINOR|PATCH) ")
    if(Hiredis_VERSION_LINES MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
        set(Hiredis_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
    unset(Hiredis_VERSION_LINES)
endif()

find_package_handle_standard_args(Hiredis
    REQUIRED_VARS Hiredis_LIBRARY Hiredis_INCLUDE_DIR
    VERSION_VAR Hiredis_VERSION
    REASON_FAILURE_MESSAGE
        "hiredis is packaged as libhiredis-dev, hiredis-devel, hiredis-dev or hiredis")

if(Hiredis_FOUND)
    add_library(hiredis::hiredis UNKNOWN IMPORTED)
    set_target_properties(hiredis::hiredis PROPERTIES
        IMPORTED_LOCATION "${Hiredis_LIBRARY}"
        INTERFACE_INCLUDE_DIRECTORIES "${Hiredis_INCLUDE_DIR}")
endif()
