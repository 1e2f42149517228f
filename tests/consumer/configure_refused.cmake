# Configures SOURCE in BINARY with OPTIONS. That must fail and print each of the texts in MESSAGE.

cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${BINARY}")
execute_process(
    COMMAND ${CMAKE_COMMAND} -S "${SOURCE}" -B "${BINARY}" ${OPTIONS}
    RESULT_VARIABLE result
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
if(result EQUAL 0)
    message(FATAL_ERROR "configured, but should have been refused:\n${output}")
endif()
foreach(text IN LISTS MESSAGE)
    string(FIND "${output}" "${text}" position)
    if(position EQUAL -1)
        message(FATAL_ERROR "refused without the words `${text}`:\n${output}")
    endif()
endforeach()
