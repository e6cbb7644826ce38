# Writes a file only where it would change, so that what depends on it is not built again. file(CONFIGURE) does that, too, but takes
# the words between two @ for variables, as in dgx-h100:4@100Gb/s@5ms.
function(write_if_changed file text)
  if(EXISTS "${file}")
    file(READ "${file}" old)
    if("${old}" STREQUAL "${text}")
      return()
    endif()
  endif()
  file(WRITE "${file}" "${text}")
endfunction()
