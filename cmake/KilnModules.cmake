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
  foreach(module IN LISTS MODULE_MODULES)
    target_link_libraries(kiln_${name} PUBLIC kiln_${module})
  endforeach()
  if(NOT MODULE_SEPARATE)
    kiln_unity(kiln_${name})
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

# kiln::kiln from the modules' objects. What it links is its own affair; the users of a static one find the same libraries
# again, through kilnConfig.cmake.
function(kiln_library)
  cmake_parse_arguments(LIBRARY "" "" "MODULES" ${ARGN})
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kiln/*.hpp")
  add_library(kiln)
  add_library(kiln::kiln ALIAS kiln)
  foreach(module IN LISTS LIBRARY_MODULES)
    target_sources(kiln PRIVATE $<TARGET_OBJECTS:kiln_${module}>)
  endforeach()
  target_sources(kiln PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  target_compile_features(kiln PUBLIC cxx_std_20)
  target_link_libraries(kiln PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  if(KILN_STATIC_DEPENDENCIES)
    target_link_libraries(
      kiln PRIVATE $<BUILD_INTERFACE:kiln_sqlite> $<BUILD_INTERFACE:kiln_crypto> $<BUILD_INTERFACE:kiln_zstd>
                   $<INSTALL_INTERFACE:fmt::fmt> $<INSTALL_INTERFACE:SQLite::SQLite3> $<INSTALL_INTERFACE:OpenSSL::Crypto> $<INSTALL_INTERFACE:PkgConfig::KILN_ZSTD>)
  else()
    target_link_libraries(kiln PRIVATE fmt::fmt SQLite::SQLite3 OpenSSL::Crypto PkgConfig::KILN_ZSTD)
  endif()
  if(KILN_SANITIZE)
    target_link_options(kiln PRIVATE -fsanitize=${KILN_SANITIZE})
  endif()
  if(BUILD_SHARED_LIBS)
    target_link_options(kiln PRIVATE "LINKER:--exclude-libs,ALL") # static dependencies stay inside
  endif()
  set_target_properties(kiln PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                        VERIFY_INTERFACE_HEADER_SETS ON LINKER_LANGUAGE CXX)
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
