#include <limits>

#include "store/columns.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

manifest::Digest digest_of(const HistogramRow& row) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("histogram"))
      .field(std::string_view(row.op))
      .field(std::string_view(row.problem))
      .field(row.launches);
  return hasher.finish();
}

/// Returns 0 when the row is absent or its digest fails.
std::int64_t stored_launches(Connection& connection, const HistogramRow& row) {
  Query query = connection.query("SELECT launches, digest FROM histogram WHERE op = ? AND problem = ?");
  if (!query.bind(std::string_view(row.op)).bind(std::string_view(row.problem)).step()) return 0;
  const HistogramRow stored{row.op, row.problem, query.integer(0)};
  return same_bytes(query.blob(1), digest_of(stored)) ? stored.launches : 0;
}

Flaw flaw_at(const HistogramRow& row) {
  const auto remove = [row](Connection& connection) {
    connection.query("DELETE FROM histogram WHERE op = ? AND problem = ? AND launches = ?")
        .bind(std::string_view(row.op))
        .bind(std::string_view(row.problem))
        .bind(row.launches)
        .run();
    return connection.changes() > 0;
  };
  return {"histogram", row.op + " " + row.problem, std::string(digest_mismatch), remove};
}

}  // namespace

void add_to_histogram(Connection& connection, const HistogramRow& row) {
  const std::int64_t before = stored_launches(connection, row);
  HistogramRow sum = row;
  if (__builtin_add_overflow(before, row.launches, &sum.launches))
    sum.launches = std::numeric_limits<std::int64_t>::max();
  const auto digest = digest_of(sum);
  connection.query("INSERT OR REPLACE INTO histogram (op, problem, launches, digest) VALUES (?, ?, ?, ?)")
      .bind(std::string_view(sum.op))
      .bind(std::string_view(sum.problem))
      .bind(sum.launches)
      .bind(std::span<const std::byte>(digest))
      .run();
}

std::vector<HistogramRow> list_histogram(Connection& connection, Flaws& flaws) {
  std::vector<HistogramRow> rows;
  Query query =
      connection.query("SELECT op, problem, launches, digest FROM histogram ORDER BY op, launches DESC, problem");
  while (query.step()) {
    HistogramRow row{std::string(query.text(0)), std::string(query.text(1)), query.integer(2)};
    if (same_bytes(query.blob(3), digest_of(row)))
      rows.push_back(std::move(row));
    else
      flaws.push_back(flaw_at(row));
  }
  return rows;
}

}  // namespace kiln::store
