# The files of package managers that are not at hand: what can be seen without them. The version is that of version.hpp.
#
#   cmake -D ROOT=… -D VERSION=… -P packaging.cmake

set(wrong "")

file(READ "${ROOT}/packaging/vcpkg/vcpkg.json" manifest)
string(JSON version GET "${manifest}" version)
if(NOT version STREQUAL VERSION)
    string(APPEND wrong "\nvcpkg.json is for ${version}")
endif()
# Each feature is asked for by the port.
file(READ "${ROOT}/packaging/vcpkg/portfile.cmake" port)
string(JSON count LENGTH "${manifest}" features)
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
    string(JSON feature MEMBER "${manifest}" features ${i})
    if(NOT port MATCHES "[ \n]${feature} +[A-Z_]+")
        string(APPEND wrong "\nportfile.cmake knows no feature ${feature}")
    endif()
endforeach()
# Each option that it sets is one of ours.
file(READ "${ROOT}/CMakeLists.txt" project)
string(REGEX MATCHALL "REDLATCH_[A-Z_]+" options "${port}")
list(REMOVE_DUPLICATES options)
foreach(option IN LISTS options)
    if(NOT project MATCHES "${option}")
        string(APPEND wrong "\nportfile.cmake sets ${option}, which is no option")
    endif()
endforeach()

file(STRINGS "${ROOT}/debian/changelog" first LIMIT_COUNT 1)
if(NOT first MATCHES "^redlatch \\(${VERSION}[-)]")
    string(APPEND wrong "\ndebian/changelog begins with: ${first}")
endif()

find_program(PYTHON NAMES python3)
if(PYTHON)
    execute_process(
        COMMAND "${PYTHON}" -c "import ast, sys; ast.parse(open(sys.argv[1]).read())"
            "${ROOT}/packaging/conan/conanfile.py"
        RESULT_VARIABLE result ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        string(APPEND wrong "\nconanfile.py: ${output}")
    endif()
endif()

if(NOT wrong STREQUAL "")
    message(FATAL_ERROR "packaging:${wrong}")
endif()
