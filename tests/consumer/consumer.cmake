# What both CMake consumers do with redlatch::redlatch and redlatch::compiled once they have them.

add_executable(app ../app.cpp ../careless.cpp)
target_link_libraries(app PRIVATE redlatch::redlatch)

# Warnings become errors and none is switched on: one that reached us from redlatch would stop the build.
target_compile_options(app PRIVATE -Werror)

# The same two files, which find the library in a third one.
add_executable(app_compiled ../app.cpp ../careless.cpp)
target_link_libraries(app_compiled PRIVATE redlatch::compiled)
target_compile_options(app_compiled PRIVATE -Werror)
add_custom_command(TARGET app_compiled POST_BUILD COMMAND app_compiled)

get_target_property(macros redlatch::compiled INTERFACE_COMPILE_DEFINITIONS)
get_target_property(built redlatch::compiled EXCLUDE_FROM_ALL)
if(NOT macros STREQUAL "REDLATCH_SEPARATE_COMPILATION" OR NOT built)
    message(FATAL_ERROR "redlatch::compiled defines ${macros}, and is left out of `all`: ${built}")
endif()
foreach(property IN ITEMS COMPILE_OPTIONS COMPILE_DEFINITIONS LINK_OPTIONS SOURCES PRECOMPILE_HEADERS)
    get_target_property(value redlatch::redlatch INTERFACE_${property})
    if(value)
        message(FATAL_ERROR "redlatch::redlatch puts on its users: ${property} ${value}")
    endif()
endforeach()
foreach(target IN ITEMS redlatch_developer redlatch_self_contained)
    if(TARGET ${target})
        message(FATAL_ERROR "redlatch leaves its own target ${target} in the user's project")
    endif()
endforeach()
if(CMAKE_MODULE_PATH OR CMAKE_CXX_FLAGS OR CMAKE_CXX_STANDARD OR CMAKE_CXX_COMPILER_LAUNCHER)
    message(FATAL_ERROR "redlatch has set a global variable of the user's project")
endif()
