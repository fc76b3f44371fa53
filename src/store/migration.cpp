#include "store/migration.hpp"

#include <fmt/core.h>

#include "store/schema.hpp"
#include "store/seal.hpp"

namespace kiln::store {

const Format& present_format() noexcept {
  static const Format format{schema_version, schema_sql(), {}};
  return format;
}

std::uint32_t version_of(Connection& connection) {
  Query query = connection.query("PRAGMA user_version");
  return query.step() ? static_cast<std::uint32_t>(query.integer(0)) : 0;
}

void migrate(Connection& connection, const Format& format) {
  std::uint32_t version = version_of(connection);
  if (version == format.version) return;
  remove_manifest(connection);
  for (; version != format.version; ++version) format.steps[version - format.oldest()].run(connection);
  connection.execute(fmt::format("PRAGMA user_version = {}", version));
}

}  // namespace kiln::store
