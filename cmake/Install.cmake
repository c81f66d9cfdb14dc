# What `cmake --install` puts in place: headers, libraries, programs, the CMake package `keel` and the pkg-config file.
# Nothing installed holds an absolute path, so the tree may be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/keel)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY include/keel DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS keel EXPORT keel INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(KEEL_BUILD_NN)
  install(TARGETS keel_nn_library EXPORT keel INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(KEEL_BUILD_PROGRAMS)
  install(TARGETS keel_program)
  if(KEEL_BUILD_NN)
    install(TARGETS keel_lab_program)
  endif()
endif()

install(EXPORT keel NAMESPACE keel:: FILE keelTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/keelConfig.cmake.in keelConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(keelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/keelConfig.cmake ${PROJECT_BINARY_DIR}/keelConfigVersion.cmake
  DESTINATION ${package_dir})

# A static library leaves its own dependencies to whoever links it.
set(pc_private "")
if(NOT BUILD_SHARED_LIBS)
  set(pc_private "Requires.private: libhwy tbb\nLibs.private: -lstdc++ -lm\n")
endif()
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix "${pc_prefix}")
configure_file(cmake/keel.pc.in keel.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/keel.pc DESTINATION ${pkgconfig_dir})
