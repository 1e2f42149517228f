# Compiles one of SOURCE's twins with COMPILER and the flags in the file OPTIONS (one on each line).
# TWIN=valid must compile; TWIN=refused must fail with an output that matches every `// expect:` line.

cmake_minimum_required(VERSION 3.25)

file(STRINGS "${OPTIONS}" options)
if(TWIN STREQUAL "refused")
    list(APPEND options -DREDLATCH_EXPECT_FAIL)
endif()

# LC_ALL: compilers translate their messages.
execute_process(
    COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C "${COMPILER}" ${options} "${SOURCE}"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)

if(TWIN STREQUAL "valid")
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "the valid twin does not compile:\n${output}")
    endif()
    return()
endif()

if(result EQUAL 0)
    message(FATAL_ERROR "the refused twin compiles")
endif()

file(STRINGS "${SOURCE}" lines REGEX "^ *// expect: ")
if(NOT lines)
    message(FATAL_ERROR "${SOURCE} has no line `// expect: <regular expression>`")
endif()
foreach(line IN LISTS lines)
    string(REGEX REPLACE "^ *// expect: " "" expected "${line}")
    if(NOT output MATCHES "${expected}")
        message(FATAL_ERROR "refused, but for another reason than `${expected}`:\n${output}")
    endif()
endforeach()
