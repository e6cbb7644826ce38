# oneDNN::oneDNN. Debian's own CMake package of it asks for OpenCL's headers, which nothing here needs. Its threads have
# to be those of OpenMP, or none: runtime/device/cpu/onednn_products.cpp sets their number.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
if(ONEDNN_INCLUDE_DIR)
  file(STRINGS ${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX REPLACE "[^;]* ([0-9]+)" "\\1" OneDNN_VERSION "${lines}")
  string(REPLACE ";" "." OneDNN_VERSION "${OneDNN_VERSION}")
  file(STRINGS ${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h OneDNN_THREADS
    REGEX "#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_(OMP|SEQ)")
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(OneDNN
  REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR OneDNN_THREADS VERSION_VAR OneDNN_VERSION)
if(OneDNN_FOUND AND NOT TARGET oneDNN::oneDNN)
  add_library(oneDNN::oneDNN UNKNOWN IMPORTED)
  set_target_properties(oneDNN::oneDNN PROPERTIES
    IMPORTED_LOCATION ${ONEDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
endif()
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)
