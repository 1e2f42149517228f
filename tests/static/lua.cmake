# Fails if luacheck finds anything in one of the library's scripts. Called with WRITE_SCRIPTS, a program that
# writes them as they are sent to a server, the FOLDER for them, and luacheck's CONFIG.

cmake_minimum_required(VERSION 3.25)

find_program(LUACHECK luacheck)
if(NOT LUACHECK)
    message(STATUS "static.lua: skipped, as there is no luacheck (Debian's package lua-check)")
    return()
endif()
file(REMOVE_RECURSE "${FOLDER}")
execute_process(COMMAND "${WRITE_SCRIPTS}" "${FOLDER}" COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE scripts "${FOLDER}/*.lua")
execute_process(COMMAND "${LUACHECK}" --no-color --config "${CONFIG}" --quiet ${scripts}
    RESULT_VARIABLE result)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "luacheck is not content with the scripts, which are in ${FOLDER}")
endif()
