# Copies of headers in which decisions can be made wrongly. They stand in front of the library's own headers, and are
# those but for `redlatch_mutant`, which says which mistake counts.
#
# FROM: the folder include. TO: the folder of the copies.

set(names "")
set(mutant_count 0)

# In `header`, where `context` stands once, the expression `right` is `wrong`.
function(mutate name header context right wrong)
    math(EXPR number "${mutant_count} + 1")
    if(NOT DEFINED text_${header})
        file(READ "${FROM}/redlatch/${header}" text_${header})
        string(REPLACE "#pragma once\n" "#pragma once\n\n#include <redlatch_mutant.hpp>\n"
            text_${header} "${text_${header}}")
        list(APPEND headers ${header})
    endif()
    string(FIND "${text_${header}}" "${context}" first)
    string(FIND "${text_${header}}" "${context}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "mutant ${name}: stands not once in ${header}: ${context}")
    endif()
    string(REPLACE "${right}" "(redlatch_mutant == ${number} ? (${wrong}) : (${right}))"
        changed "${context}")
    if(changed STREQUAL context)
        message(FATAL_ERROR "mutant ${name}: ${right} is not in: ${context}")
    endif()
    string(REPLACE "${context}" "${changed}" text_${header} "${text_${header}}")
    set(text_${header} "${text_${header}}" PARENT_SCOPE)
    set(headers "${headers}" PARENT_SCOPE)
    set(mutant_count ${number} PARENT_SCOPE)
    set(names "${names}    \"${name}\",\n" PARENT_SCOPE)
endfunction()

# The copies, and <redlatch_mutant.hpp>: an array `list` of the names, and behind it what `selection` says.
macro(write_mutants list selection)
    foreach(header IN LISTS headers)
        file(CONFIGURE OUTPUT "${TO}/redlatch/${header}" CONTENT "${text_${header}}" @ONLY)
    endforeach()
    file(CONFIGURE OUTPUT "${TO}/redlatch_mutant.hpp" @ONLY CONTENT "#pragma once

inline constexpr const char* ${list}[] = {
${names}};

/// Which of them is on, from 1; 0 for none.
${selection}
")
endmacro()
