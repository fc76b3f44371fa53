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

std::string flaw_of(const HistogramRow& row, std::span<const std::byte> digest) {
  if (!same_bytes(digest, digest_of(row))) return std::string(digest_mismatch);
  return row.launches < 0 ? "launches is negative" : "";
}

/// Returns 0 when the row is absent or flawed.
std::int64_t stored_launches(Connection& connection, const HistogramRow& row) {
  Query query = connection.query("SELECT launches, digest FROM histogram WHERE op = ? AND problem = ?");
  if (!query.bind(std::string_view(row.op)).bind(std::string_view(row.problem)).step()) return 0;
  const HistogramRow stored{row.op, row.problem, query.integer(0)};
  return flaw_of(stored, query.blob(1)).empty() ? stored.launches : 0;
}

Flaw flaw_at(const HistogramRow& row, const std::string& reason) {
  const auto remove = [row](Connection& connection) {
    connection.query("DELETE FROM histogram WHERE op = ? AND problem = ? AND launches = ?")
        .bind(std::string_view(row.op))
        .bind(std::string_view(row.problem))
        .bind(row.launches)
        .run();
    return connection.changes() > 0;
  };
  return {"histogram", row.op + " " + row.problem, reason, remove};
}

}  // namespace

void add_to_histogram(Connection& connection, const HistogramRow& row) {
  const std::int64_t before = stored_launches(connection, row);
  const HistogramRow sum{row.op, row.problem, capped_sum(before, row.launches)};
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
    if (const std::string flaw = flaw_of(row, query.blob(3)); flaw.empty())
      rows.push_back(std::move(row));
    else
      flaws.push_back(flaw_at(row, flaw));
  }
  return rows;
}

}  // namespace kiln::store
