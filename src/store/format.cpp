#include "store/format.hpp"

#include <fmt/core.h>
#include <sqlite3.h>

#include "store/seal.hpp"

namespace kiln::store {

const Format& present_format() noexcept {
  static const Format format{schema_version, schema_sql(), {}};
  return format;
}

std::uint32_t version_of(Connection& connection) {
  return static_cast<std::uint32_t>(connection.number("PRAGMA user_version"));
}

void migrate(Connection& connection, const Format& format) {
  std::uint32_t version = version_of(connection);
  if (version == format.version) return;
  if (version < format.oldest() || version > format.version)
    throw SqliteFailure(SQLITE_CORRUPT, fmt::format("its format became version {} while it was opened", version));
  remove_manifest(connection);
  for (; version != format.version; ++version) format.steps[version - format.oldest()].run(connection);
  connection.execute(fmt::format("PRAGMA user_version = {}", version));
}

}  // namespace kiln::store
