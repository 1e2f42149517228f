# An overlay port: vcpkg install redlatch --overlay-ports=packaging/vcpkg. It takes the source tree that it stands in.
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS features
    FEATURES
        tool REDLATCH_BUILD_TOOL
    INVERTED_FEATURES
        tls CMAKE_DISABLE_FIND_PACKAGE_OpenSSL)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${features}
        -DREDLATCH_BUILD_TESTS=OFF
        -DREDLATCH_BUILD_EXAMPLES=OFF
        -DREDLATCH_BUILD_BENCHMARKS=OFF
    MAYBE_UNUSED_VARIABLES CMAKE_DISABLE_FIND_PACKAGE_OpenSSL)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/redlatch)
vcpkg_fixup_pkgconfig()
if("tool" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES redlatch AUTO_CLEAN)
endif()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
