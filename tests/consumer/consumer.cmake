# What both CMake consumers do with redlatch::redlatch once they have it.

add_executable(app ../app.cpp ../careless.cpp)
target_link_libraries(app PRIVATE redlatch::redlatch)

# Warnings become errors and none is switched on: one that reached us from redlatch would stop the build.
target_compile_options(app PRIVATE -Werror)

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
