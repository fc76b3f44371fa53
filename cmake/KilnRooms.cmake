# kiln_room(name [ROOMS below...] [DEPENDS libraries...]): the sources of src/NAME as an object library.
add_library(kiln_flags INTERFACE)
target_compile_options(kiln_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(kiln_flags INTERFACE -Wno-restrict) # false in std::string (GCC bug 105651)
endif()
if(KILN_SANITIZE)
  target_compile_options(kiln_flags INTERFACE -fsanitize=${KILN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(kiln_flags INTERFACE -fsanitize=${KILN_SANITIZE})
endif()

function(kiln_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/*.cpp")
  add_library(kiln_${name} OBJECT ${sources})
  target_include_directories(kiln_${name} PUBLIC "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(kiln_${name} PRIVATE KILN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(kiln_${name} PRIVATE kiln_flags PUBLIC ${ROOM_DEPENDS})
  foreach(room IN LISTS ROOM_ROOMS)
    target_link_libraries(kiln_${name} PUBLIC kiln_${room})
  endforeach()
endfunction()

# The templates become part of the library: a generated source in room NAME holds every file under templates/.
function(kiln_embed_templates room)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/templates/*.toml" "${PROJECT_SOURCE_DIR}/templates/*.cuh")
  set(generated "${PROJECT_BINARY_DIR}/generated/embedded_templates.cpp")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}/templates -DOUTPUT=${generated} -P ${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake
    DEPENDS ${files} "${PROJECT_SOURCE_DIR}/cmake/EmbedFiles.cmake"
    COMMENT "Embedding templates/" VERBATIM)
  target_sources(kiln_${room} PRIVATE "${generated}")
endfunction()

# cache/schema.sql and cache/versions/ become part of the library: room NAME's schema.cpp.in, with the texts filled in when CMake runs.
function(kiln_embed_schema room)
  set(schema "${PROJECT_SOURCE_DIR}/cache/schema.sql")
  set(schema_1 "${PROJECT_SOURCE_DIR}/cache/versions/1.sql")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${schema}" "${schema_1}")
  file(READ "${schema}" KILN_SCHEMA_SQL)
  file(READ "${schema_1}" KILN_SCHEMA_SQL_1)
  configure_file("${PROJECT_SOURCE_DIR}/src/${room}/schema.cpp.in" "${PROJECT_BINARY_DIR}/generated/schema.cpp" @ONLY)
  target_sources(kiln_${room} PRIVATE "${PROJECT_BINARY_DIR}/generated/schema.cpp")
endfunction()

# kiln::kiln from the rooms' objects. What it links is its own affair; the users of a static one find the same libraries
# again, through kilnConfig.cmake.
function(kiln_library)
  cmake_parse_arguments(LIBRARY "" "" "ROOMS" ${ARGN})
  file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/kiln/*.hpp")
  add_library(kiln)
  add_library(kiln::kiln ALIAS kiln)
  foreach(room IN LISTS LIBRARY_ROOMS)
    target_sources(kiln PRIVATE $<TARGET_OBJECTS:kiln_${room}>)
  endforeach()
  target_sources(kiln PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  target_compile_features(kiln PUBLIC cxx_std_20)
  target_link_libraries(
    kiln
    PRIVATE $<BUILD_INTERFACE:kiln_flags> $<BUILD_INTERFACE:kiln_sqlite> $<BUILD_INTERFACE:kiln_crypto> $<BUILD_INTERFACE:kiln_zstd>
            $<BUILD_INTERFACE:kiln_fmt> $<INSTALL_INTERFACE:fmt::fmt> $<INSTALL_INTERFACE:SQLite::SQLite3> $<INSTALL_INTERFACE:OpenSSL::Crypto> $<INSTALL_INTERFACE:PkgConfig::KILN_ZSTD>
            Threads::Threads ${CMAKE_DL_LIBS})
  if(BUILD_SHARED_LIBS)
    target_link_options(kiln PRIVATE "LINKER:--exclude-libs,ALL") # static dependencies stay inside
  endif()
  set_target_properties(kiln PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                                        VERIFY_INTERFACE_HEADER_SETS ON LINKER_LANGUAGE CXX)
endfunction()
