# The libraries that Kiln builds on, from the system's packages.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(SQLite3 3.37 REQUIRED) # STRICT tables
find_package(OpenSSL 3 REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(KILN_ZSTD REQUIRED IMPORTED_TARGET libzstd)
find_path(KILN_TOML_INCLUDE_DIR toml++/toml.h REQUIRED)

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

# Header-only: nothing to carry along, and nothing that the users of a static kiln must find again.
add_library(kiln_toml INTERFACE)
target_include_directories(kiln_toml SYSTEM INTERFACE "${KILN_TOML_INCLUDE_DIR}")
target_compile_definitions(kiln_toml INTERFACE TOML_HEADER_ONLY=1)
