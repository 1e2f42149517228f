# The library, its CMake package and its pkg-config file. Nothing in it depends on the processor, so
# all of it goes to share/.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_DATADIR}/cmake/redlatch")
set(pkgconfig_dir "${CMAKE_INSTALL_DATADIR}/pkgconfig")

install(TARGETS redlatch EXPORT redlatch-targets INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY include/redlatch DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.hpp" PATTERN "*.lua")
install(EXPORT redlatch-targets NAMESPACE redlatch:: DESTINATION "${package_dir}")

# Before 1.0 a minor version may break its users, afterwards only a major one.
if(PROJECT_VERSION_MAJOR EQUAL 0)
    set(compatibility SameMinorVersion)
else()
    set(compatibility SameMajorVersion)
endif()
write_basic_package_version_file(redlatch-config-version.cmake
    COMPATIBILITY ${compatibility}
    ARCH_INDEPENDENT)
configure_package_config_file(cmake/redlatch-config.cmake.in redlatch-config.cmake
    INSTALL_DESTINATION "${package_dir}"
    NO_SET_AND_CHECK_MACRO)

# The .pc file finds its prefix from where it lies, so an installed tree can be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(pc_includedir "${CMAKE_INSTALL_INCLUDEDIR}")
else()
    set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
file(RELATIVE_PATH pc_prefix "${CMAKE_INSTALL_FULL_DATADIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
configure_file(cmake/redlatch.pc.in redlatch.pc @ONLY)

install(FILES
    "${PROJECT_BINARY_DIR}/redlatch-config.cmake"
    "${PROJECT_BINARY_DIR}/redlatch-config-version.cmake"
    cmake/FindHiredis.cmake
    cmake/redlatch-asio.cmake
    cmake/redlatch-compiled.cmake
    DESTINATION "${package_dir}")
install(FILES "${PROJECT_BINARY_DIR}/redlatch.pc" DESTINATION "${pkgconfig_dir}")
# It requires OpenSSL's .pc, and package managers refuse one that requires what is not there.
if(TARGET redlatch::tls)
    configure_file(cmake/redlatch-tls.pc.in redlatch-tls.pc @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/redlatch-tls.pc" DESTINATION "${pkgconfig_dir}")
endif()
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
