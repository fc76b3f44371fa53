# kiln_module(name [MODULES below...] [DEPENDS libraries...] [SEPARATE]): the sources of src/NAME as an object library.
# kiln_unity leaves the module alone when it is SEPARATE.
add_library(kiln_flags INTERFACE)
target_compile_options(kiln_flags INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wno-sign-conversion)
if(NOT KILN_UNITY_BUILD)
  target_compile_options(kiln_flags INTERFACE -Wshadow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(kiln_flags INTERFACE -Wno-subobject-linkage) # takes a source that is joined to others for a header
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(kiln_flags INTERFACE -Wno-restrict) # false in std::string (GCC bug 105651)
endif()
if(KILN_SANITIZE)
  target_compile_options(kiln_flags INTERFACE -fsanitize=${KILN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(kiln_flags INTERFACE -fsanitize=${KILN_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # A driver's functions are called by Kiln's own declarations of them.
    target_compile_options(kiln_flags INTERFACE -fno-sanitize=function)
  endif()
endif()

# kiln_unity(target): the target's sources as translation units of about equal length and at most 28 sources, for builds that are made once: half
# of the time goes into headers. So names in anonymous namespaces must differ within a target.
function(kiln_unity target)
  if(KILN_UNITY_BUILD)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    list(LENGTH sources count)
    math(EXPR units "(${count} + 27) / 28")
    math(EXPR batch "(${count} + ${units} - 1) / ${units}")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  endif()
endfunction()

function(kiln_module name)
  cmake_parse_arguments(MODULE "SEPARATE" "" "MODULES;DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp" "${PROJECT_SOURCE_DIR}/src/${name}/*/*.cpp")
  add_library(kiln_${name} OBJECT ${sources})
  target_include_directories(kiln_${name} PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(kiln_${name} PRIVATE KILN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(kiln_${name} PRIVATE kiln_flags PUBLIC ${MODULE_DEPENDS})
  set_target_properties(kiln_${name} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  foreach(module IN LISTS MODULE_MODULES)
    target_link_libraries(kiln_${name} PUBLIC kiln_${module})
  endforeach()
  if(NOT MODULE_SEPARATE)
    kiln_unity(kiln_${name})
  endif()
endfunction()

# Module NAME has a client of Redis where hiredis was found; where not, src/NAME/redis/ is left out.
function(kiln_redis name)
  if(KILN_HAS_REDIS)
    target_link_libraries(kiln_${name} PUBLIC kiln_hiredis kiln_ssl ${CMAKE_DL_LIBS})
    target_compile_definitions(kiln_${name} PRIVATE KILN_REDIS)
  else()
    get_target_property(sources kiln_${name} SOURCES)
    list(FILTER sources INCLUDE REGEX "/src/${name}/redis/")
    set_source_files_properties(${sources} PROPERTIES HEADER_FILE_ONLY ON)
  endif()
endfunction()

# The templates become part of the library: a generated source in module NAME holds every file under templates/.
function(kiln_embed_templates module)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/templates/*.toml" "${PROJECT_SOURCE_DIR}/templates/*.cuh")
  set(generated "${PROJECT_BINARY_DIR}/generated/embedded_templates.cpp")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/templates -DOUTPUT=${generated} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
    COMMENT "Embedding templates/" VERBATIM)
  target_sources(kiln_${module} PRIVATE "${generated}")
  set_source_files_properties("${generated}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# cache/schema.sql becomes part of the library: module NAME's schema.cpp.in, with the text filled in when CMake runs.
function(kiln_embed_schema module)
  set(schema "${PROJECT_SOURCE_DIR}/cache/schema.sql")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${schema}")
  file(READ "${schema}" KILN_SCHEMA_SQL)
  configure_file("${PROJECT_SOURCE_DIR}/src/${module}/schema.cpp.in" "${PROJECT_BINARY_DIR}/generated/schema.cpp" @ONLY)
  target_sources(kiln_${module} PRIVATE "${PROJECT_BINARY_DIR}/generated/schema.cpp")
endfunction()

# What a worker and its owner are built of becomes part of both, in module NAME: MODULES are those of the worker.
function(kiln_identity name)
  set(folders src/worker include/kiln)
  foreach(module IN LISTS ARGN)
    list(APPEND folders src/${module})
  endforeach()
  list(TRANSFORM folders PREPEND "${PROJECT_SOURCE_DIR}/")
  list(TRANSFORM folders APPEND "/*.?pp")
  file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" ${folders} "${PROJECT_SOURCE_DIR}/templates/*.toml" "${PROJECT_SOURCE_DIR}/templates/*.cuh")
  list(SORT files)
  string(REPLACE ";" "\n" lines "${files}")
  set(list "${PROJECT_BINARY_DIR}/generated/identity.txt")
  file(CONFIGURE OUTPUT "${list}" CONTENT "${lines}\n" @ONLY)
  list(TRANSFORM files PREPEND "${PROJECT_SOURCE_DIR}/")
  set(generated "${PROJECT_BINARY_DIR}/generated/identity.cpp")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DLIST=${list}" "-DVERSION=${PROJECT_VERSION}" "-DOUTPUT=${generated}" -P
            "${PROJECT_SOURCE_DIR}/cmake/WriteIdentity.cmake"
    DEPENDS ${files} "${list}" "${PROJECT_SOURCE_DIR}/cmake/WriteIdentity.cmake"
    COMMENT "Naming the sources that a worker is made of" VERBATIM)
  target_sources(kiln_${name} PRIVATE "${generated}")
  set_source_files_properties("${generated}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# Where module NAME looks for an installed worker: as seen from the library, from a program, and as a full path.
function(kiln_worker_places name)
  cmake_path(ABSOLUTE_PATH KILN_INSTALL_WORKERDIR BASE_DIRECTORY "${CMAKE_INSTALL_PREFIX}" NORMALIZE OUTPUT_VARIABLE folder)
  file(RELATIVE_PATH from_library "${CMAKE_INSTALL_FULL_LIBDIR}" "${folder}")
  file(RELATIVE_PATH from_programs "${CMAKE_INSTALL_FULL_BINDIR}" "${folder}")
  target_compile_definitions(kiln_${name} PRIVATE KILN_WORKER_FROM_LIBRARY="${from_library}" KILN_WORKER_FROM_PROGRAMS="${from_programs}"
                                                  KILN_INSTALLED_WORKERS="${folder}")
endfunction()

# kiln_of_modules(target): the modules' objects and what they link, static or shared. The users of a static one find the same libraries again,
# through kilnConfig.cmake.
function(kiln_of_modules target)
  foreach(module IN LISTS KILN_MODULES)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:kiln_${module}>)
  endforeach()
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  if(KILN_HAS_REDIS AND KILN_STATIC_DEPENDENCIES)
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:kiln_hiredis> $<BUILD_INTERFACE:kiln_ssl> $<INSTALL_INTERFACE:PkgConfig::KILN_HIREDIS>
                                            $<INSTALL_INTERFACE:OpenSSL::SSL>)
  elseif(KILN_HAS_REDIS)
    target_link_libraries(${target} PRIVATE PkgConfig::KILN_HIREDIS OpenSSL::SSL)
  endif()
  if(KILN_STATIC_DEPENDENCIES)
    target_link_libraries(
      ${target} PRIVATE $<BUILD_INTERFACE:kiln_sqlite> $<BUILD_INTERFACE:kiln_crypto> $<BUILD_INTERFACE:kiln_zstd>
                        $<INSTALL_INTERFACE:fmt::fmt> $<INSTALL_INTERFACE:${KILN_SQLITE}> $<INSTALL_INTERFACE:OpenSSL::Crypto> $<INSTALL_INTERFACE:PkgConfig::KILN_ZSTD>)
  else()
    target_link_libraries(${target} PRIVATE fmt::fmt "${KILN_SQLITE}" OpenSSL::Crypto PkgConfig::KILN_ZSTD)
  endif()
  if(KILN_SANITIZE)
    target_link_options(${target} PRIVATE -fsanitize=${KILN_SANITIZE})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL SHARED_LIBRARY)
    # Besides the modules' hidden names, the script hides std templates, which the standard library marks as visible, and static dependencies.
    # Calls within the library stay within this copy of it, whatever else the process has loaded.
    set(script "${PROJECT_SOURCE_DIR}/cmake/exports.map")
    target_link_options(${target} PRIVATE "LINKER:--version-script=${script}" LINKER:-Bsymbolic)
    set_target_properties(${target} PROPERTIES LINK_DEPENDS "${script}")
  endif()
  target_include_directories(${target} INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX)
endfunction()

# kiln::kiln. What it links is its own affair. kiln_inside is for tests that see it from inside, and so is static.
function(kiln_library)
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kiln/*.h" "${PROJECT_SOURCE_DIR}/include/kiln/*.hpp")
  add_library(kiln)
  add_library(kiln::kiln ALIAS kiln)
  kiln_of_modules(kiln)
  target_sources(kiln PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  set_target_properties(kiln PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
  if(BUILD_SHARED_LIBS)
    add_library(kiln_inside STATIC EXCLUDE_FROM_ALL)
    kiln_of_modules(kiln_inside)
  else()
    add_library(kiln_inside ALIAS kiln)
    target_link_options(kiln INTERFACE "LINKER:--exclude-libs,libkiln.a") # a shared library that holds it exports its own names alone
  endif()
endfunction()

# kiln_build: a source of one function, written before each build, so that only it is compiled anew when the commit changes.
function(kiln_build_name)
  set(generated "${PROJECT_BINARY_DIR}/generated/build.cpp")
  add_custom_target(
    kiln_build_name
    COMMAND ${CMAKE_COMMAND} "-DSOURCE=${PROJECT_SOURCE_DIR}" "-DOUTPUT=${generated}" "-DGIVEN=${KILN_BUILD}" -P
            "${PROJECT_SOURCE_DIR}/cmake/WriteBuild.cmake"
    BYPRODUCTS "${generated}"
    VERBATIM)
  add_library(kiln_build STATIC "${generated}")
  target_include_directories(kiln_build PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(kiln_build PRIVATE kiln_flags)
  add_dependencies(kiln_build kiln_build_name)
endfunction()
