# Runs one test of PROGRAM, named FILTER, which must pass; and once more with MUTANT, which it must find.

execute_process(COMMAND "${PROGRAM}" "--gtest_filter=${FILTER}"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(NOT result EQUAL 0 OR NOT output MATCHES "PASSED  . 1 test")
    message(FATAL_ERROR "without a mutant:\n${output}")
endif()

# A mutant may crash, and leave its folder behind.
set(parent /tmp)
if(DEFINED ENV{TMPDIR})
    set(parent "$ENV{TMPDIR}")
endif()
string(RANDOM LENGTH 8 name)
set(folder "${parent}/redlatch-${name}")
file(MAKE_DIRECTORY "${folder}")
set(ENV{TMPDIR} "${folder}")
set(ENV{REDLATCH_MUTANT} "${MUTANT}")
execute_process(COMMAND "${PROGRAM}" "--gtest_filter=${FILTER}"
    TIMEOUT 200
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
file(REMOVE_RECURSE "${folder}")
if(result EQUAL 0)
    message(FATAL_ERROR "${MUTANT} is not found:\n${output}")
endif()
