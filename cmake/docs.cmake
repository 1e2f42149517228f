# The API reference by Doxygen, and with the documents as a site by MkDocs, in `site` of the build folder. A warning of
# either is an error.

find_package(Doxygen 1.9.4 REQUIRED)
find_program(REDLATCH_MKDOCS mkdocs REQUIRED)
mark_as_advanced(REDLATCH_MKDOCS)

set(pages "${CMAKE_CURRENT_BINARY_DIR}/pages")

# What users include. LockScripts, of which policies are made, needs net/script.hpp.
set(public_headers ${REDLATCH_HEADERS} ${REDLATCH_TLS_HEADERS} ${REDLATCH_ASIO_HEADERS})
list(FILTER public_headers INCLUDE REGEX "^include/redlatch/((policy/)?[a-z_]+|net/script)\\.hpp$")
list(FILTER public_headers EXCLUDE REGEX "/(lock_impl|lock_keys|lua)\\.hpp$")

set(DOXYGEN_OUTPUT_DIRECTORY "${pages}")
set(DOXYGEN_HTML_OUTPUT api)
set(DOXYGEN_QUIET YES)
set(DOXYGEN_WARN_AS_ERROR FAIL_ON_WARNINGS)
set(DOXYGEN_STRIP_FROM_PATH "${PROJECT_SOURCE_DIR}/include")
set(DOXYGEN_STRIP_FROM_INC_PATH "${PROJECT_SOURCE_DIR}/include")
set(DOXYGEN_JAVADOC_AUTOBRIEF YES)
set(DOXYGEN_BUILTIN_STL_SUPPORT YES)
set(DOXYGEN_DISTRIBUTE_GROUP_DOC YES)  # one comment for overloads between `@{` and `@}`
set(DOXYGEN_SORT_MEMBER_DOCS NO)
set(DOXYGEN_SHOW_FILES NO)
set(DOXYGEN_VERBATIM_HEADERS NO)
set(DOXYGEN_HAVE_DOT NO)
# Declarations only, and none of the library's own. Doxygen cannot read `namespace redlatch::inline v0`.
set(DOXYGEN_EXPAND_ONLY_PREDEF YES)
set(DOXYGEN_MACRO_EXPANSION YES)
set(DOXYGEN_SEARCH_INCLUDES NO)
set(DOXYGEN_PREDEFINED
    REDLATCH_SEPARATE_COMPILATION __linux__ __cplusplus=202002L __cpp_lib_jthread)
set(DOXYGEN_EXCLUDE_SYMBOLS "redlatch::detail" "redlatch::detail::*" "std::*")
set(DOXYGEN_INPUT_FILTER "sed s/redlatch::inline.v0/redlatch/")
doxygen_add_docs(redlatch_api ${public_headers} COMMENT "Generate the API reference with Doxygen")

# MkDocs reads a tree of links, so that a relative link leads to the same page in the repository and on the site.
foreach(page IN ITEMS README.md CHANGELOG.md CONTRIBUTING.md benchmarks/README.md docs examples include
        tests/fault/README.md)
    cmake_path(GET page PARENT_PATH folder)
    file(MAKE_DIRECTORY "${pages}/${folder}")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/${page}" "${pages}/${page}" SYMBOLIC)
endforeach()
configure_file(cmake/mkdocs.yml mkdocs.yml COPYONLY)
add_custom_target(redlatch_site ALL
    COMMAND "${REDLATCH_MKDOCS}" build --strict --clean
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
    COMMENT "Generate the site with MkDocs"
    VERBATIM)
add_dependencies(redlatch_site redlatch_api)
