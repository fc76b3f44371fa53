# libkiln0, libkiln-dev and kiln as Debian packages, by `cpack`. The preset `deb` has the library shared and the folders as Debian has them.
set(KILN_PACKAGE_MAINTAINER "Unknown <root@localhost>" CACHE STRING "Who builds the packages, as a name and an address")

function(kiln_packages)
  set(soname ${PROJECT_VERSION_MAJOR})
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME kiln)
  set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
  set(CPACK_PACKAGE_CONTACT "${KILN_PACKAGE_MAINTAINER}")
  set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/packages")
  set(CPACK_PACKAGING_INSTALL_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_COMPONENTS_ALL library development command)
  set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/FinishPackages.cmake")

  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

  set(suggested "libcuda1, libnvrtc12 | cuda-nvrtc-13-0 | cuda-nvrtc-12-8")
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libkiln${soname})
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
  set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "${suggested}")
  set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "This package has the library that programs use, and the worker in which it
compiles and tunes. Launching needs the driver of a GPU. Compiling and tuning need NVRTC 12.0 or
newer, too. Both are opened when they are first used.")

  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libkiln-dev)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libkiln${soname} (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "This package has what programs in C99 and C++20 are built with: headers, and
files for CMake and pkg-config.")

  # The command holds the library. It runs the library's worker.
  set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME kiln)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION utils)
  set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "libkiln${soname} (= ${PROJECT_VERSION})")
  set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "${suggested}")
  set(CPACK_COMPONENT_COMMAND_DESCRIPTION "This package has the command that tunes, explains, checks and ships records and
machine code. It has records of the H100 and the H200, workloads of common
models, and the sources of the built-in ops.")
  include(CPack)
endfunction()
