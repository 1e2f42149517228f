# Every public header, bottom layer first. What is missing here is not installed and not checked for
# being self-contained; the test `static.header_list` finds it.
set(REDLATCH_HEADERS
    include/redlatch/version.hpp
)
