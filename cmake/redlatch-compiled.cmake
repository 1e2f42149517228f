# redlatch::compiled: the library, compiled once in the project that uses it, instead of in each of its files,
# with the flags of the directory where this is read first. Built only where something links it. A program
# uses this or redlatch::redlatch, for all of its files.
get_property(_redlatch_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("CXX" IN_LIST _redlatch_languages AND NOT TARGET redlatch_compiled)
    set(_redlatch_source "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/redlatch_source.cpp")
    file(CONFIGURE OUTPUT "${_redlatch_source}" CONTENT "#include \"redlatch/source.hpp\"\n" @ONLY)
    add_library(redlatch_compiled STATIC EXCLUDE_FROM_ALL "${_redlatch_source}")
    add_library(redlatch::compiled ALIAS redlatch_compiled)
    target_compile_definitions(redlatch_compiled PUBLIC REDLATCH_SEPARATE_COMPILATION)
    target_link_libraries(redlatch_compiled PUBLIC redlatch::redlatch)
    set_target_properties(redlatch_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
    unset(_redlatch_source)
endif()
unset(_redlatch_languages)
