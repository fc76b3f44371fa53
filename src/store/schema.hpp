// What makes a database a .kiln file: cache/schema.sql, embedded by the build.
#pragma once

#include <cstdint>
#include <string_view>

namespace kiln::store {

inline constexpr std::uint32_t application_id = 0x4b494c4e;  // "KILN"
inline constexpr std::uint32_t schema_version = 3;           // PRAGMA user_version

std::string_view schema_sql() noexcept;

}  // namespace kiln::store
