# Every header in the file LISTED, alone in a file, is refused by COMPILER with the flags in the file OPTIONS
# (one on each line), and says MESSAGE and nothing else. A file is written in FOLDER.
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${LISTED}" headers)
file(STRINGS "${OPTIONS}" options)
set(failures "")
foreach(header IN LISTS headers)
    if(header MATCHES "/version\\.hpp$")
        continue()  # macros for everybody
    endif()
    file(WRITE "${FOLDER}/alone.cpp" "#include \"${header}\"\n")
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C "${COMPILER}" ${options} "${FOLDER}/alone.cpp"
        RESULT_VARIABLE result
        OUTPUT_VARIABLE output
        ERROR_VARIABLE output)
    string(REGEX MATCHALL "error: [^\n]*" errors "${output}")
    list(LENGTH errors count)
    list(POP_FRONT errors first)
    string(FIND "${first}" "${MESSAGE}" position)
    if(result EQUAL 0 OR NOT count EQUAL 2 OR position EQUAL -1)
        string(APPEND failures "\n${header}: ${result}, ${count} errors:\n${output}")
        break()  # the others say as much
    endif()
endforeach()
if(failures)
    message(FATAL_ERROR "not refused with `${MESSAGE}` alone:${failures}")
endif()
