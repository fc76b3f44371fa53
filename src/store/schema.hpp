// What makes a database a .kiln file: cache/schema.sql and its predecessors in cache/versions/, embedded by the build.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::store {

inline constexpr std::uint32_t application_id = 0x4b494c4e;  // "KILN"
inline constexpr std::uint32_t schema_version = 2;           // PRAGMA user_version

/// Of this version; empty for a version that never was.
std::string_view schema_sql(std::uint32_t version = schema_version) noexcept;

}  // namespace kiln::store
