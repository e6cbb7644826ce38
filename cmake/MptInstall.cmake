# cmake --install: programs, documents, manual pages, completion, the GPU and MPI modules, and the planning libraries for
# find_package(mpt). The three programs are enough: manual pages and modules are installed where they were built.
# cpack makes a Debian package of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS mpt-plan mpt-run mpt-profile RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(MPT_CUDA_FOUND)
  install(TARGETS mpt_cuda LIBRARY DESTINATION lib/mpt OPTIONAL)
endif()
if(MPT_MPI_FOUND)
  install(TARGETS mpt_mpi LIBRARY DESTINATION lib/mpt OPTIONAL)
endif()

find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_FOUND)
  set(manual ${CMAKE_BINARY_DIR}/manual)
  add_custom_command(
    OUTPUT ${manual}/man/man1/mpt-plan.1.gz
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/scripts/make_manual ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${manual}
    DEPENDS mpt-plan mpt-run mpt-profile ${CMAKE_SOURCE_DIR}/scripts/make_manual
    VERBATIM)
  add_custom_target(manual ALL DEPENDS ${manual}/man/man1/mpt-plan.1.gz)
  install(DIRECTORY ${manual}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
  install(DIRECTORY ${manual}/completions/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions OPTIONAL)
endif()
foreach(file README.md LICENSE NOTICE CHANGELOG.md)
  install(FILES ${CMAKE_SOURCE_DIR}/${file} DESTINATION ${CMAKE_INSTALL_DOCDIR})
endforeach()

# The documents that programs name, under the names that they give them.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "outputs" EXCLUDE PATTERN "pictures" EXCLUDE)

# The page, where scripts/page built it.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/build/site/ DESTINATION ${CMAKE_INSTALL_DATADIR}/mpt/page OPTIONAL)

# What plans: mpt::planner and what it is made of.
set(libraries base core models frameworks profiler_hardware reports planner)
foreach(library IN LISTS libraries)
  set_target_properties(mpt_${library} PROPERTIES EXPORT_NAME ${library})
  list(APPEND targets mpt_${library})
endforeach()
install(TARGETS ${targets} EXPORT mpt ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/mpt)
foreach(folder base core models frameworks profiler/hardware reports planner)
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mpt/${folder}
    FILES_MATCHING PATTERN "*.h" PATTERN "html" EXCLUDE PATTERN "results" EXCLUDE PATTERN "validation" EXCLUDE
    PATTERN "zoo" EXCLUDE PATTERN "catalog" EXCLUDE PATTERN "kernels" EXCLUDE)
endforeach()
foreach(library core models frameworks profiler_hardware reports planner)
  install(DIRECTORY ${CMAKE_BINARY_DIR}/include_roots/${library}/generated DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mpt)
endforeach()
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mpt)
install(EXPORT mpt NAMESPACE mpt:: FILE mptTargets.cmake DESTINATION ${package})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/mptConfig.cmake.in ${CMAKE_BINARY_DIR}/mptConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/mptConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/mptConfig.cmake ${CMAKE_BINARY_DIR}/mptConfigVersion.cmake DESTINATION ${package})

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME mpt)
set(CPACK_PACKAGE_CONTACT "MPT developers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Plans how to split the training of large models over many GPUs, and trains")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# Of Debian 12. The GPU module's libraries are NVIDIA's, the MPI module's are MPI's: programs say so when they are missing.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.36), libstdc++6 (>= 12), libgcc-s1, libfmt9, libyaml-cpp0.7, zlib1g")
if(OneDNN_FOUND)
  string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS ", libdnnl2")
endif()
set(CPACK_STRIP_FILES ON)
include(CPack)
