# The only way to make a target here.
#
# Each library exports one include root that holds a single symbolic link to its own folder, so that a
# library can include "planner/..." only if it links mpt::planner. With the repository root on the include
# path every include would resolve and the table in docs/architecture.md would be a wish.
include(${CMAKE_CURRENT_LIST_DIR}/write_if_changed.cmake)

# The headers of others that cost most, parsed once each for libraries, for programs with their command lines and
# for tests.
if(MPT_PRECOMPILE)
  set(MPT_COMMON_HEADERS <fmt/format.h> <nlohmann/json.hpp> <algorithm> <filesystem> <functional> <map> <memory>
      <optional> <string> <vector>)
  write_if_changed(${CMAKE_BINARY_DIR}/precompiled.cpp "")
  add_library(mpt_precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_precompile_headers(mpt_precompiled PRIVATE ${MPT_COMMON_HEADERS})
  add_library(mpt_precompiled_commands OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_precompile_headers(mpt_precompiled_commands PRIVATE ${MPT_COMMON_HEADERS} <CLI/CLI.hpp>)
endif()
# What makes whole builds fast. What sources that are compiled together all include and instantiate is compiled
# once; their unnamed namespaces are one, so names in them are unique within a target.
function(mpt_speed_up target headers_of)
  if(MPT_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${headers_of})
  endif()
  if(MPT_UNITY)
    set(batch ${MPT_UNITY_BATCH})
    if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests(/|$)")
      set(batch 6)  # cases of several files have the same names
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/fields.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/options.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/rows.cmake)

# Writes the C++ of the tables in a folder: fields of structs, options of programs, and rows of texts.
function(mpt_write_tables folder generated)
  foreach(kind fields options rows)
    file(GLOB_RECURSE tables CONFIGURE_DEPENDS ${folder}/*.${kind}.json)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tables})
    foreach(table IN LISTS tables)
      cmake_language(CALL mpt_write_${kind} ${table} ${generated})
    endforeach()
  endforeach()
endfunction()

# mpt_library(NAME FOLDER <folder> SOURCES ... LINKS ...): a static library mpt::NAME.
function(mpt_library name)
  cmake_parse_arguments(ARG "" "FOLDER" "SOURCES;LINKS" ${ARGN})
  set(root ${CMAKE_BINARY_DIR}/include_roots/${name})
  get_filename_component(parent ${ARG_FOLDER} DIRECTORY)
  file(MAKE_DIRECTORY ${root}/${parent})
  if(NOT EXISTS ${root}/${ARG_FOLDER})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${ARG_FOLDER} ${root}/${ARG_FOLDER} SYMBOLIC)
  endif()
  mpt_write_tables(${CMAKE_SOURCE_DIR}/${ARG_FOLDER} ${root}/generated)
  add_library(mpt_${name} STATIC ${ARG_SOURCES})
  add_library(mpt::${name} ALIAS mpt_${name})
  target_include_directories(mpt_${name} PUBLIC $<BUILD_INTERFACE:${root}> $<INSTALL_INTERFACE:include/mpt>)
  target_link_libraries(mpt_${name} PUBLIC ${ARG_LINKS} PRIVATE $<BUILD_INTERFACE:mpt::warnings>)
  # The planner answers the same on every machine: no contracted operations. Plain x86-64 and WebAssembly have none.
  if(NOT ARG_FOLDER MATCHES "^runtime" AND NOT EMSCRIPTEN AND
     (NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64" OR CMAKE_CXX_FLAGS MATCHES "-march|-mfma"))
    target_compile_options(mpt_${name} PRIVATE -ffp-contract=off)
  endif()
  if("CLI11::CLI11" IN_LIST ARG_LINKS)
    mpt_speed_up(mpt_${name} mpt_precompiled_commands)
  else()
    mpt_speed_up(mpt_${name} mpt_precompiled)
  endif()
endfunction()

# mpt_executable(NAME SOURCES ... LINKS ...): a program in bin/.
function(mpt_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} mpt::warnings)
  if("CLI11::CLI11" IN_LIST ARG_LINKS)
    mpt_speed_up(${name} mpt_precompiled_commands)
  endif()
endfunction()

# mpt_test(NAME LABEL <unit|conformance|cli|gpu|soak> SOURCES ... LINKS ...): a GoogleTest program.
# Each test case becomes a ctest case; a program without tests is an error.
function(mpt_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${MPT_TEST_INCLUDE_ROOT})
  # A test's own code need not be fast, but is compiled often.
  target_compile_options(${name} PRIVATE -O1)
  target_link_libraries(${name} PRIVATE ${ARG_LINKS} GTest::gtest_main mpt::warnings)
  mpt_speed_up(${name} mpt_precompiled_tests)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE
    MPT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" MPT_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT}
    SKIP_REGULAR_EXPRESSION "0 tests from 0 test suites ran")
endfunction()

# mpt_embed(OUTPUT <file.cpp> FUNCTION <name> NAMESPACE <ns> [FOLDERS] FILES ...): a source whose function returns the
# files' names and contents, so that programs need no data files beside them. FOLDERS: names are "folder/file".
function(mpt_embed)
  cmake_parse_arguments(ARG "FOLDERS" "OUTPUT;FUNCTION;NAMESPACE" "FILES" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY MPT_EMBEDDED ${ARG_FILES})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARG_FILES})
  string(REPLACE ";" "|" files "${ARG_FILES}")
  add_custom_command(
    OUTPUT ${ARG_OUTPUT}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${ARG_OUTPUT} -DFUNCTION=${ARG_FUNCTION} -DNAMESPACE=${ARG_NAMESPACE} -DFOLDERS=${ARG_FOLDERS}
            "-DFILES=${files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARG_FILES} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    VERBATIM)
  set_source_files_properties(${ARG_OUTPUT} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Writes version.cpp, when every file that is built in is known: data_digest() is of their names and contents.
function(mpt_write_version)
  get_property(files GLOBAL PROPERTY MPT_EMBEDDED)
  list(SORT files)
  foreach(file IN LISTS files)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
    file(SHA256 ${file} digest)
    string(APPEND all "${name} ${digest}\n")
  endforeach()
  string(SHA256 digest "${all}")
  string(SUBSTRING ${digest} 0 16 MPT_DATA_DIGEST)
  configure_file(${CMAKE_SOURCE_DIR}/base/version.cpp.in ${CMAKE_BINARY_DIR}/version.cpp @ONLY)
endfunction()
