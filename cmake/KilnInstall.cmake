# Installing kiln::kiln so that find_package(kiln) and pkg-config give it back, static or shared. The build tree gives it to find_package too, but
# for one with static dependencies, which is made to be carried elsewhere. Components: `library` is what a program needs where it runs,
# `development` what it is built with, `command` the kiln command with what it reads.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Not among the users' programs: a worker of one version beside another's program would be found there.
set(KILN_INSTALL_WORKERDIR "${CMAKE_INSTALL_LIBDIR}/kiln-${PROJECT_VERSION_MAJOR}")

# Whether a package can name all that kiln links. A static one cannot where a larger project builds fmt, say, itself.
function(kiln_links_installed_libraries result)
  set(${result} TRUE PARENT_SCOPE)
  foreach(library fmt::fmt SQLite::SQLite3 OpenSSL::Crypto OpenSSL::SSL)
    get_target_property(installed ${library} IMPORTED)
    if(NOT installed AND NOT BUILD_SHARED_LIBS)
      set(${result} FALSE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

function(kiln_install)
  set(package "${CMAKE_INSTALL_LIBDIR}/cmake/kiln")
  install(
    TARGETS kiln
    EXPORT kilnTargets
    LIBRARY COMPONENT library NAMELINK_COMPONENT development
    ARCHIVE COMPONENT development
    FILE_SET HEADERS COMPONENT development)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT library)
  kiln_links_installed_libraries(has_package)
  if(NOT has_package)
    message(STATUS "Kiln has no package for find_package and pkg-config here, because this project builds libraries that Kiln links")
    return()
  endif()
  install(EXPORT kilnTargets NAMESPACE kiln:: DESTINATION "${package}" COMPONENT development)
  if(NOT KILN_STATIC_DEPENDENCIES)
    export(EXPORT kilnTargets NAMESPACE kiln:: FILE "${PROJECT_BINARY_DIR}/kilnTargets.cmake")
  endif()
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/kilnConfig.cmake.in" "${PROJECT_BINARY_DIR}/kilnConfig.cmake"
                                INSTALL_DESTINATION "${package}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/kilnConfig.cmake" "${PROJECT_BINARY_DIR}/kilnConfigVersion.cmake"
          DESTINATION "${package}" COMPONENT development)
  kiln_install_pkg_config("${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()

# kiln.pc finds its folders from where it lies, so that an install can be moved, except those that a configuration names by full paths. A static
# kiln passes on what it links.
function(kiln_install_pkg_config folder)
  if(IS_ABSOLUTE "${folder}")
    set(KILN_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  else()
    file(RELATIVE_PATH up "/${folder}" "/")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(KILN_PC_PREFIX "\${pcfiledir}/${up}")
  endif()
  set(KILN_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
  set(KILN_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
  set(KILN_PC_WORKERDIR "${KILN_INSTALL_WORKERDIR}")
  foreach(place KILN_PC_LIBDIR KILN_PC_INCLUDEDIR KILN_PC_WORKERDIR)
    cmake_path(ABSOLUTE_PATH ${place} BASE_DIRECTORY "\${prefix}")
  endforeach()
  if(BUILD_SHARED_LIBS)
    set(KILN_PC_REQUIRES "")
    set(KILN_PC_LIBS "-lkiln")
  else()
    set(KILN_PC_REQUIRES "fmt, sqlite3, libcrypto, libzstd")
    if(KILN_HAS_REDIS)
      string(APPEND KILN_PC_REQUIRES ", hiredis, libssl")
    endif()
    set(KILN_PC_LIBS "-lkiln -Wl,--exclude-libs,libkiln.a -pthread ${CMAKE_DL_LIBS}")
    list(TRANSFORM KILN_PC_LIBS REPLACE " ([a-z]+)$" " -l\\1")
    string(APPEND KILN_PC_LIBS " -lstdc++ -lm") # which a C compiler does not add
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/kiln.pc.in" "${PROJECT_BINARY_DIR}/kiln.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/kiln.pc" DESTINATION "${folder}" COMPONENT development)
endfunction()

# What the kiln command reads, its pages of the manual, made of its own help, and the documents.
function(kiln_install_command)
  set(data "${CMAKE_INSTALL_DATADIR}/kiln")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/templates" DESTINATION "${data}" COMPONENT command)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/cache/workloads" DESTINATION "${data}" COMPONENT command PATTERN README.md EXCLUDE)
  install(FILES "${PROJECT_SOURCE_DIR}/cache/workloads/README.md" DESTINATION "${data}" COMPONENT command)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT command FILES_MATCHING PATTERN "*.md")
  install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_SOURCE_DIR}/SECURITY.md"
          DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT command)
  # What the documents above name by paths of the sources.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/examples" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT command)
  foreach(folder templates cache cache/workloads src)
    install(FILES "${PROJECT_SOURCE_DIR}/${folder}/README.md" DESTINATION "${CMAKE_INSTALL_DOCDIR}/${folder}" COMPONENT command)
  endforeach()
  set(documents "${CMAKE_INSTALL_DOCDIR}")
  if(NOT IS_ABSOLUTE "${documents}")
    string(PREPEND documents "\${CMAKE_INSTALL_PREFIX}/")
  endif()
  install(CODE "execute_process(COMMAND \"${PROJECT_SOURCE_DIR}/cmake/drop-dead-links\" \"\$ENV{DESTDIR}${documents}\" COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT command)
  set(pages "${PROJECT_BINARY_DIR}/man")
  set(script "${PROJECT_SOURCE_DIR}/cmake/write-man-pages")
  add_custom_command(
    OUTPUT "${pages}/kiln.1"
    COMMAND "${script}" $<TARGET_FILE:kiln_cli> "${pages}" ${PROJECT_VERSION}
    DEPENDS kiln_cli "${script}"
    COMMENT "Writing the manual of the command's help" VERBATIM)
  add_custom_target(kiln_man_pages ALL DEPENDS "${pages}/kiln.1")
  install(DIRECTORY "${pages}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT command)
endfunction()
