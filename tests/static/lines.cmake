# next_line(<text variable> <line variable>): takes the first line off a text.
function(next_line text_variable line_variable)
    string(FIND "${${text_variable}}" "\n" end)
    string(SUBSTRING "${${text_variable}}" 0 ${end} line)
    math(EXPR end "${end} + 1")
    string(SUBSTRING "${${text_variable}}" ${end} -1 rest)
    set(${line_variable} "${line}" PARENT_SCOPE)
    set(${text_variable} "${rest}" PARENT_SCOPE)
endfunction()

# read_text(<file> <variable>): with a newline at the end, whether the file has one or not.
function(read_text file variable)
    file(READ "${file}" text)
    if(NOT text MATCHES "\n$")
        string(APPEND text "\n")
    endif()
    set(${variable} "${text}" PARENT_SCOPE)
endfunction()
