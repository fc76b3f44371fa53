#include <fmt/core.h>

#include "store/tables.hpp"

namespace kiln::store {
namespace {

struct Sealed {
  std::string_view source, digests, count;
};
constexpr Sealed sealed[] = {
    {"record", "SELECT digest FROM record ORDER BY key", "SELECT count(*) FROM record"},
    {"candidate",
     "SELECT candidate.digest FROM candidate JOIN record ON record.id = candidate.record ORDER BY record.key, position",
     "SELECT count(*) FROM candidate"},
    {"cubin", "SELECT digest FROM cubin ORDER BY key", "SELECT count(*) FROM cubin"},
};

std::int64_t count(Connection& connection, std::string_view sql) {
  Query query = connection.query(sql);
  return query.step() ? query.integer(0) : 0;
}

}  // namespace

void write_manifest(Connection& connection) {
  for (const Sealed& table : sealed) {
    spec::Hasher hasher;
    hasher.field(table.source);
    std::int64_t rows = 0;
    {
      Query query = connection.query(table.digests);
      for (; query.step(); ++rows) hasher.field(query.blob(0));
    }
    const auto digest = hasher.finish();
    connection.query("INSERT OR REPLACE INTO manifest (source, row_count, digest) VALUES (?, ?, ?)")
        .bind(table.source)
        .bind(rows)
        .bind(std::span<const std::byte>(digest))
        .run();
  }
}

void remove_manifest(Connection& connection) {
  connection.execute("DELETE FROM signature");
  connection.execute("DELETE FROM manifest");
}

std::string manifest_mismatch(Connection& connection) {
  for (const Sealed& table : sealed) {
    Query query = connection.query("SELECT row_count FROM manifest WHERE source = ?");
    if (!query.bind(table.source).step()) continue;
    const std::int64_t stated = query.integer(0);
    if (const auto found = count(connection, table.count); found != stated)
      return fmt::format("its manifest states {} {} rows and it holds {}", stated, table.source, found);
  }
  return {};
}

}  // namespace kiln::store
