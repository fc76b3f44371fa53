# The libraries that Kiln builds on, from the system's packages.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(SQLite3 3.37 REQUIRED) # STRICT tables
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(KILN_ZSTD REQUIRED IMPORTED_TARGET libzstd)

# kiln_header_only(name header package [PATH_SUFFIXES folder]): nothing to carry along, and nothing that the users of a static kiln must find again.
function(kiln_header_only name header package)
  find_path(${name}_include_dir ${header} ${ARGN})
  if(NOT ${name}_include_dir)
    message(FATAL_ERROR "Kiln needs the header ${header}, which was not found. Install ${package}, or run scripts/install-dependencies.")
  endif()
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE "${${name}_include_dir}")
endfunction()
kiln_header_only(kiln_utf8cpp utf8.h libutfcpp-dev PATH_SUFFIXES utf8cpp)
kiln_header_only(kiln_toml toml++/toml.h libtomlplusplus-dev)
target_compile_definitions(kiln_toml INTERFACE TOML_HEADER_ONLY=1)

# kiln_dependency(name library-file include-dirs link-libraries...): one INTERFACE target, static when asked for.
function(kiln_dependency name file includes)
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE ${includes})
  if(KILN_STATIC_DEPENDENCIES)
    find_library(${name}_STATIC NAMES lib${file}.a REQUIRED)
    target_link_libraries(${name} INTERFACE ${${name}_STATIC} ${CMAKE_DL_LIBS} Threads::Threads m)
  else()
    target_link_libraries(${name} INTERFACE ${ARGN})
  endif()
endfunction()
kiln_dependency(kiln_sqlite sqlite3 "${SQLite3_INCLUDE_DIRS}" SQLite::SQLite3)
kiln_dependency(kiln_crypto crypto "${OPENSSL_INCLUDE_DIR}" OpenSSL::Crypto)
kiln_dependency(kiln_zstd zstd "${KILN_ZSTD_INCLUDE_DIRS}" PkgConfig::KILN_ZSTD)

# fmt compiled once is half of the compile time of most sources here; a carried binary holds it instead.
add_library(kiln_fmt INTERFACE)
if(KILN_STATIC_DEPENDENCIES)
  target_link_libraries(kiln_fmt INTERFACE fmt::fmt-header-only)
else()
  target_link_libraries(kiln_fmt INTERFACE fmt::fmt)
endif()
