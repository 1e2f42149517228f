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
# vcpkg takes the folder that its comment names for a port where that has these two files, and the name from vcpkg.json.
if(port MATCHES "vcpkg install ([^ ]+) --overlay-ports=([^ \n]+)\\. ")
    set(asked "${CMAKE_MATCH_1}")
    set(folder "${CMAKE_MATCH_2}")
    string(JSON name GET "${manifest}" name)
    if(NOT asked STREQUAL name OR NOT EXISTS "${ROOT}/${folder}/vcpkg.json"
            OR NOT EXISTS "${ROOT}/${folder}/portfile.cmake")
        string(APPEND wrong "\nportfile.cmake: ${folder} is no port of ${asked}")
    endif()
else()
    string(APPEND wrong "\nportfile.cmake does not say how vcpkg is called with it")
endif()

# Each option that the port and the recipe set is one of ours.
file(READ "${ROOT}/CMakeLists.txt" project)
foreach(file IN ITEMS vcpkg/portfile.cmake conan/conanfile.py)
    file(READ "${ROOT}/packaging/${file}" text)
    string(REGEX MATCHALL "REDLATCH_(BUILD|FETCH|CHECK|INSTALL)[A-Z_]*" options "${text}")
    if(NOT options)
        string(APPEND wrong "\n${file} sets no option")
    endif()
    foreach(option IN LISTS options)
        if(NOT project MATCHES "option\\(${option} ")
            string(APPEND wrong "\n${file} sets ${option}, which is no option")
        endif()
    endforeach()
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
