#include <algorithm>

#include "store/columns.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

manifest::Digest digest_of(const Usage& usage) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("usage")).field(std::string_view(usage.source)).field(std::string_view(usage.key));
  hasher.field(usage.uses).field(usage.last_use);
  return hasher.finish();
}

std::string flaw_of(const Usage& row, std::span<const std::byte> digest) {
  if (!same_bytes(digest, digest_of(row))) return std::string(digest_mismatch);
  return row.uses < 0 ? "uses is negative" : "";
}

/// Returns zeros when the row is absent or flawed.
Usage stored(Connection& connection, const Usage& usage) {
  Query query = connection.query("SELECT uses, last_use, digest FROM usage WHERE source = ? AND key = ?");
  Usage none{usage.source, usage.key, 0, 0};
  if (!query.bind(std::string_view(usage.source)).bind(std::string_view(usage.key)).step()) return none;
  Usage found{usage.source, usage.key, query.integer(0), query.integer(1)};
  return flaw_of(found, query.blob(2)).empty() ? found : none;
}

Flaw flaw_at(const Usage& row, const std::string& reason) {
  const auto remove = [row](Connection& connection) {
    const Usage now = stored(connection, row);
    if (now.uses != 0 || now.last_use != 0) return false;  // written again since, with a valid digest
    connection.query("DELETE FROM usage WHERE source = ? AND key = ?")
        .bind(std::string_view(row.source))
        .bind(std::string_view(row.key))
        .run();
    return connection.changes() > 0;
  };
  return {"usage", row.source + " " + row.key, reason, remove};
}

}  // namespace

void add_to_usage(Connection& connection, const Usage& usage) {
  Usage sum = stored(connection, usage);
  sum.uses = capped_sum(sum.uses, usage.uses);
  sum.last_use = std::max(sum.last_use, usage.last_use);
  const auto digest = digest_of(sum);
  connection.query("INSERT OR REPLACE INTO usage (source, key, uses, last_use, digest) VALUES (?, ?, ?, ?, ?)")
      .bind(std::string_view(sum.source))
      .bind(std::string_view(sum.key))
      .bind(sum.uses)
      .bind(sum.last_use)
      .bind(std::span<const std::byte>(digest))
      .run();
}

std::vector<Usage> list_usage(Connection& connection, Flaws& flaws) {
  std::vector<Usage> rows;
  Query query = connection.query("SELECT source, key, uses, last_use, digest FROM usage ORDER BY source, key");
  while (query.step()) {
    Usage row{std::string(query.text(0)), std::string(query.text(1)), query.integer(2), query.integer(3)};
    if (const std::string flaw = flaw_of(row, query.blob(4)); flaw.empty())
      rows.push_back(std::move(row));
    else
      flaws.push_back(flaw_at(row, flaw));
  }
  return rows;
}

}  // namespace kiln::store
