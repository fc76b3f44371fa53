// Files of earlier versions: the steps that bring them to the present one.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "store/sqlite.hpp"

namespace kiln::store {

/// Brings a file, whose tables were judged, from one version to the next: tables, rows and their digests. What does not hold goes to the
/// quarantine.
struct MigrationStep {
  std::string_view schema;  // of the version that it begins with
  void (*run)(Connection& connection);
};

/// What a file may look like: the present version, and those from which steps lead there.
struct Format {
  std::uint32_t version;
  std::string_view schema;
  std::span<const MigrationStep> steps;  // the last one ends at `version`
  /// The oldest version that is read.
  [[nodiscard]] std::uint32_t oldest() const noexcept { return version - static_cast<std::uint32_t>(steps.size()); }
  /// Precondition: `of` lies between oldest() and version.
  [[nodiscard]] std::string_view schema_of(std::uint32_t of) const noexcept {
    return of == version ? schema : steps[of - oldest()].schema;
  }
};
/// This Kiln's. It has no steps yet: no file of a version before 3 was ever shipped.
const Format& present_format() noexcept;

std::uint32_t version_of(Connection& connection);
/// In the caller's write transaction, so that all steps are done or none. A seal goes with the first one: it names the version.
void migrate(Connection& connection, const Format& format);

}  // namespace kiln::store
