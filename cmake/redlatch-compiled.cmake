# redlatch::compiled: the library, compiled once in the project that uses it, instead of in each of its files.
# Built only where something links it. A project uses this or redlatch::redlatch, for all of a program.
if(NOT TARGET redlatch_compiled)
    file(CONFIGURE OUTPUT redlatch_source.cpp CONTENT "#include <redlatch/source.hpp>\n" @ONLY)
    add_library(redlatch_compiled STATIC EXCLUDE_FROM_ALL
        "${CMAKE_CURRENT_BINARY_DIR}/redlatch_source.cpp")
    add_library(redlatch::compiled ALIAS redlatch_compiled)
    target_compile_definitions(redlatch_compiled PUBLIC REDLATCH_SEPARATE_COMPILATION)
    target_link_libraries(redlatch_compiled PUBLIC redlatch::redlatch)
    set_target_properties(redlatch_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
