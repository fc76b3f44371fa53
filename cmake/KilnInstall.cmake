# Installing kiln::kiln so that find_package(kiln) gives it back, static or shared. The build tree gives it too, but for one with static
# dependencies, which is made to be carried elsewhere.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Not among the users' programs: a worker of one version beside another's program would be found there.
set(KILN_INSTALL_WORKERDIR "${CMAKE_INSTALL_LIBDIR}/kiln-${PROJECT_VERSION_MAJOR}")

function(kiln_install)
  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/kiln")
  install(
    TARGETS kiln
    EXPORT kilnTargets
    COMPONENT library
    FILE_SET HEADERS)
  install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION "${package}" COMPONENT library)
  if(NOT KILN_STATIC_DEPENDENCIES)
    export(EXPORT kilnTargets NAMESPACE kiln:: FILE "${PROJECT_BINARY_DIR}/kilnTargets.cmake")
  endif()
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake.in" "${PROJECT_BINARY_DIR}/kilnConfig.cmake"
                                INSTALL_DESTINATION "${package}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/kilnConfig.cmake" "${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake"
          DESTINATION "${package}" COMPONENT library)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT library)
endfunction()
