# redlatch_header_chains(<list> <header>...): translation units that show that each header stands alone. The headers come
# bottom layer first; <list> gets the files.
#
# One unit for each header would read the lower layers again and again. A header that comes behind some of those that
# it includes anyway, directly or not, sees no more than it would alone. So one unit checks a chain of headers, of which
# each includes the one before: 62 units instead of 204.
function(redlatch_header_chains out)
    set(by_weight "")
    foreach(header IN LISTS ARGN)
        set(below_${header} "")
        file(STRINGS "${header}" lines REGEX "^ *# *include *<redlatch/.*hpp>")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^.*<(.*)>.*" "include/\\1" included "${line}")
            list(APPEND below_${header} ${included} ${below_${included}})
        endforeach()
        list(REMOVE_DUPLICATES below_${header})  # else as many as there are ways to a header
        list(LENGTH below_${header} weight)
        math(EXPR weight "1000 + ${weight}")  # all of one length, to be sorted
        list(APPEND by_weight "${weight} ${header}")
    endforeach()
    list(SORT by_weight)
    list(TRANSFORM by_weight REPLACE "^[0-9]+ " "")

    # The heaviest ones are the first to get a place in the unit of another header: of the lightest that includes it and
    # has none before itself yet.
    set(last_of_chains "")
    set(heaviest_first ${by_weight})
    list(REVERSE heaviest_first)
    foreach(header IN LISTS heaviest_first)
        set(is_last TRUE)
        foreach(candidate IN LISTS by_weight)
            if(NOT DEFINED before_${candidate} AND header IN_LIST below_${candidate})
                set(before_${candidate} "${header}")
                set(is_last FALSE)
                break()
            endif()
        endforeach()
        if(is_last)
            list(APPEND last_of_chains "${header}")
        endif()
    endforeach()

    set(units "")
    foreach(last IN LISTS last_of_chains)
        string(REGEX REPLACE "[^a-z0-9_]" "_" unit "${last}")
        set(unit "${CMAKE_CURRENT_BINARY_DIR}/header_chains/${unit}.cpp")
        set(includes "")
        set(header "${last}")
        while(header)
            string(PREPEND includes "#include \"${header}\"\n")
            set(header "${before_${header}}")
        endwhile()
        file(CONFIGURE OUTPUT "${unit}" CONTENT "${includes}" @ONLY)
        list(APPEND units "${unit}")
    endforeach()
    set(${out} "${units}" PARENT_SCOPE)
endfunction()
