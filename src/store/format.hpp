// The format of a .kiln file: cache/schema.sql, embedded by the build, and the steps that migrate files of earlier
// versions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "store/sqlite.hpp"

namespace kiln::store {

inline constexpr std::uint32_t application_id = 0x4b494c4e;  // "KILN"
inline constexpr std::uint32_t schema_version = 3;           // PRAGMA user_version

std::string_view schema_sql() noexcept;

/// Migrates a file from one version to the next: tables, rows and digests. Its tables were compared with `schema`
/// before. Rows whose digest fails go to the quarantine table.
struct MigrationStep {
  std::string_view schema;  // of the version that the step begins with
  void (*run)(Connection& connection);
};

/// The present version, and the steps that lead from earlier versions to it.
struct Format {
  std::uint32_t version;
  std::string_view schema;
  std::span<const MigrationStep> steps;  // the last one ends at `version`
  /// Returns the oldest version that can be read.
  [[nodiscard]] std::uint32_t oldest() const noexcept { return version - static_cast<std::uint32_t>(steps.size()); }
  /// Precondition: oldest() <= of <= version.
  [[nodiscard]] std::string_view schema_of(std::uint32_t of) const noexcept {
    return of == version ? schema : steps[of - oldest()].schema;
  }
};
/// Has no steps: no file of a version before 3 was ever shipped.
const Format& present_format() noexcept;

std::uint32_t version_of(Connection& connection);
/// Runs the steps that the file needs. Precondition: a write transaction is open. Removes the seal, which covers the
/// version. Throws SqliteFailure, damaged, for a version that no step begins with: the file can be overwritten after it
/// was checked.
void migrate(Connection& connection, const Format& format);

}  // namespace kiln::store
