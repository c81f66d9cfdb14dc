# What `cmake --install` puts in place: headers, libraries, programs, the CMake package `keel` and the pkg-config file.
# No installed file contains an absolute path, so the tree may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Headers come with the library that they describe.
install(DIRECTORY include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN nn EXCLUDE PATTERN mpi.h EXCLUDE
  PATTERN ring.h EXCLUDE)
if(KEEL_BUILD_RING)
  install(FILES include/keel/ring.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/keel)
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS keel EXPORT keel INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(KEEL_BUILD_NN)
  install(DIRECTORY include/keel/nn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/keel FILES_MATCHING PATTERN "*.h")
  install(TARGETS keel_nn_library EXPORT keel INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(KEEL_WITH_CUDA AND NOT KEEL_BUILD_CUDA STREQUAL "AUTO")
  install(TARGETS keel_cuda_library)
endif()
if(KEEL_WITH_MPI)
  install(FILES include/keel/mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/keel)
  install(TARGETS keel_mpi_library EXPORT keel INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
# The program's manual page and its completions, as it prints them.
function(keel_manual target page)
  install(CODE "
    file(MAKE_DIRECTORY \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1)
    execute_process(COMMAND \${CMAKE_COMMAND} -E env KEEL_COMMAND=keel $<TARGET_FILE:${target}> --man COMMAND_ERROR_IS_FATAL ANY
      OUTPUT_FILE \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man1/${page}.1)")
endfunction()
if(KEEL_BUILD_CLI)
  install(TARGETS keel_program)
  keel_manual(keel_program keel)
  install(CODE "
    set(folder \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    file(MAKE_DIRECTORY \${folder})
    execute_process(COMMAND $<TARGET_FILE:keel_program> --completion bash OUTPUT_FILE \${folder}/keel
      COMMAND_ERROR_IS_FATAL ANY)")
  if(KEEL_WITH_MPI)
    install(TARGETS keel_mpi_program)
  endif()
endif()
if(KEEL_BUILD_LAB)
  install(TARGETS keel_lab_program)
  keel_manual(keel_lab_program keel-lab)
endif()

install(EXPORT keel NAMESPACE keel:: FILE keelTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/keelConfig.cmake.in keelConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(keelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/keelConfig.cmake ${PROJECT_BINARY_DIR}/keelConfigVersion.cmake
  DESTINATION ${package_dir})

# Whoever links a static library also links its dependencies.
set(pc_private "")
if(NOT BUILD_SHARED_LIBS)
  install(FILES cmake/KeelHighway.cmake DESTINATION ${package_dir})
  set(pc_requires libhwy)
  if(KEEL_THREADS STREQUAL "TBB")
    string(APPEND pc_requires " tbb")
  endif()
  list(TRANSFORM CMAKE_CXX_IMPLICIT_LINK_LIBRARIES PREPEND "-l" OUTPUT_VARIABLE pc_libs)
  list(FILTER pc_libs INCLUDE REGEX "^-l(stdc\\+\\+|c\\+\\+|m)$")
  list(REMOVE_DUPLICATES pc_libs)
  list(JOIN pc_libs " " pc_libs)
  set(pc_private "Requires.private: ${pc_requires}\nLibs.private: ${pc_libs}\n")
endif()
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/keel.pc.in keel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/keel.pc DESTINATION ${pkgconfig_dir})
