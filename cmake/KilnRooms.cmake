# kiln_room(name [ROOMS below...] [DEPENDS libraries...]): the sources of src/NAME as an object library.
add_library(kiln_flags INTERFACE)
target_compile_options(kiln_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
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
    target_link_libraries(kiln_${name} PUBLIC $<TARGET_PROPERTY:kiln_${room},INTERFACE_LINK_LIBRARIES>)
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

# kiln::kiln from the rooms' objects.
function(kiln_library)
  cmake_parse_arguments(LIBRARY "" "" "ROOMS" ${ARGN})
  add_library(kiln)
  add_library(kiln::kiln ALIAS kiln)
  foreach(room IN LISTS LIBRARY_ROOMS)
    target_sources(kiln PRIVATE $<TARGET_OBJECTS:kiln_${room}>)
  endforeach()
  target_include_directories(kiln PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(kiln PUBLIC cxx_std_20)
  target_link_libraries(kiln PRIVATE kiln_flags kiln_sqlite kiln_crypto kiln_zstd Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(kiln PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()
