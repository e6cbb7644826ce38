# mpt::warnings carries the warning flags, -Werror only where the preset asks, and the sanitizers.
add_library(mpt_warnings INTERFACE)
add_library(mpt::warnings ALIAS mpt_warnings)
# GCC 12 reports string concatenation as overlapping memcpy (gcc bug 105651), hence -Wno-restrict.
target_compile_options(mpt_warnings INTERFACE -Wall -Wextra
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
# Sources that are compiled together count as headers, where members of local types are suspect.
if(MPT_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(mpt_warnings INTERFACE -Wno-subobject-linkage)
endif()
# With precompiled headers it takes strings for larger or smaller than they are.
if(MPT_PRECOMPILE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(mpt_warnings INTERFACE -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
# Messages name places in the tree, not on the machine that built it.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(MPT_WERROR)
  target_compile_options(mpt_warnings INTERFACE -Werror)
endif()
if(MPT_SANITIZE)
  # -fno-sanitize-recover: a finding fails the test instead of scrolling by.
  add_compile_options(-fsanitize=${MPT_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MPT_SANITIZE})
endif()
