#include <fmt/core.h>

#include <algorithm>

#include "store/columns.hpp"
#include "store/compression.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

struct CubinSql {
  std::string find, heads, insert;
};

const CubinSql& cubin_sql() {
  static const auto& texts = *new CubinSql([] {
    Columns columns;
    const PackedCubin empty;
    each_cubin_field(empty, columns);
    return CubinSql{
        fmt::format("SELECT id, key, digest, {}frame FROM cubin LEFT JOIN image ON cubin = id WHERE id = ?",
                    columns.names),
        fmt::format("SELECT id, key, digest, {}NULL FROM cubin ORDER BY id", columns.names),
        fmt::format("INSERT INTO cubin ({}key, digest) VALUES ({}?, ?) ON CONFLICT (key) DO NOTHING RETURNING id",
                    columns.names, columns.marks)};
  }());
  return texts;
}

struct Row {
  std::int64_t id = 0;
  PackedCubin cubin;
  manifest::Digest digest{};
  std::string flaw;
};

constexpr int first_field = 3;  // the columns before are id, key and digest

PackedCubin read_head(const Query& query) {
  PackedCubin cubin;
  if (const auto key = query.blob(1); key.size() == cubin.key.size()) std::ranges::copy(key, cubin.key.begin());
  ColumnReader reader{query, first_field};
  each_cubin_field(cubin, reader);
  return cubin;
}

int count_of_fields() {
  int fields = 0;
  const PackedCubin empty;
  each_cubin_field(empty, [&](const char*, const auto&) { ++fields; });
  return fields;
}

Row read_cubin(const Query& query) {
  static const int image_column = first_field + count_of_fields();
  Row row{query.integer(0), read_head(query), {}, {}};
  const auto image = query.blob(image_column);
  row.cubin.image.assign(image.begin(), image.end());
  row.digest = digest_of(row.cubin);
  const bool holds = query.blob(1).size() == row.cubin.key.size() && same_bytes(query.blob(2), row.digest);
  row.flaw = holds ? flaw_of(row.cubin) : std::string(digest_mismatch);
  return row;
}

void check_accepted(Row& row, const DigestSet* accepted) {
  if (!row.flaw.empty() || accepted == nullptr || accepted->contains(row.digest)) return;
  row.flaw = "it was not in the file when the file's signature was checked";
}

constexpr std::string_view does_not_unpack = "its payload cannot be unpacked to the size that it states";

// A row past SQLite's length limit cannot be read, so it cannot be checked again and is removed.
bool remove_if_flawed(Connection& connection, std::int64_t id) {
  try {
    Query query = connection.query(cubin_sql().find);
    if (!query.bind(id).step()) return false;
    if (const Row row = read_cubin(query); row.flaw.empty() && unpack(row.cubin)) return false;
  } catch (const SqliteFailure& failure) {
    if (!failure.too_big()) throw;
  }
  connection.query("DELETE FROM cubin WHERE id = ?").bind(id).run();
  return true;
}

Flaw flaw_at(const Row& row, const manifest::Digest& key, std::string reason) {
  return {"cubin", manifest::to_hex(key), std::move(reason),
          [id = row.id](Connection& connection) { return remove_if_flawed(connection, id); }};
}

Row read_by_id(Connection& connection, std::int64_t id) {
  try {
    Query query = connection.query(cubin_sql().find);
    if (query.bind(id).step()) return read_cubin(query);
    return {id, {}, {}, "it is gone"};
  } catch (const SqliteFailure& failure) {
    if (!failure.too_big()) throw;
    return {id, {}, {}, "it is larger than any row that Kiln writes"};
  }
}

std::optional<std::int64_t> id_of(Connection& connection, const manifest::Digest& key) {
  Query query = connection.query("SELECT id FROM cubin WHERE key = ?");
  if (!query.bind(std::span<const std::byte>(key)).step()) return std::nullopt;
  return query.integer(0);
}

}  // namespace

std::optional<PackedCubin> find_packed(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                       const DigestSet* accepted) {
  const auto id = id_of(connection, key);
  if (!id) return std::nullopt;
  Row row = read_by_id(connection, *id);
  check_accepted(row, accepted);
  // A damaged index can lead to the valid row of another key.
  if (row.flaw.empty() && row.cubin.key != key) row.flaw = digest_mismatch;
  if (row.flaw.empty()) return std::move(row.cubin);
  flaws.push_back(flaw_at(row, key, row.flaw));
  return std::nullopt;
}

std::optional<CubinRow> find_cubin(Connection& connection, const manifest::Digest& key, Flaws& flaws,
                                   const DigestSet* accepted) {
  const auto packed = find_packed(connection, key, flaws, accepted);
  if (!packed) return std::nullopt;
  auto cubin = unpack(*packed);
  if (!cubin)
    flaws.push_back(flaw_at({id_of(connection, key).value_or(0), {}, {}, {}}, key, std::string(does_not_unpack)));
  return cubin;
}

bool has_cubin(Connection& connection, const manifest::Digest& key) { return id_of(connection, key).has_value(); }

std::vector<PackedCubin> list_cubins_after(Connection& connection, std::span<const std::byte> after, std::int64_t limit,
                                           Flaws& flaws, const DigestSet* accepted) {
  std::vector<PackedCubin> cubins;
  Query query = connection.query("SELECT id FROM cubin WHERE key > ? ORDER BY key");
  query.bind(after);
  while (static_cast<std::int64_t>(cubins.size()) < limit && query.step()) {
    Row row = read_by_id(connection, query.integer(0));
    check_accepted(row, accepted);
    if (row.flaw.empty() && !unpack(row.cubin)) row.flaw = does_not_unpack;
    if (row.flaw.empty())
      cubins.push_back(std::move(row.cubin));
    else
      flaws.push_back(flaw_at(row, row.cubin.key, row.flaw));
  }
  return cubins;
}

void each_cubin_head(Connection& connection, const std::function<void(std::int64_t, const PackedCubin&)>& visit) {
  Query query = connection.query(cubin_sql().heads);
  while (query.step()) visit(query.integer(0), read_head(query));
}

std::vector<std::string> list_compilers(Connection& connection) {
  std::vector<std::string> compilers;
  Query query = connection.query("SELECT DISTINCT compiler FROM cubin ORDER BY compiler");
  while (query.step()) compilers.emplace_back(query.text(0));
  return compilers;
}

bool put_cubin(Connection& connection, const PackedCubin& cubin, const manifest::Digest& digest, bool replace) {
  const std::span<const std::byte> key(cubin.key);
  if (replace) connection.query("DELETE FROM cubin WHERE key = ?").bind(key).run();
  Query query = connection.query(cubin_sql().insert);
  each_cubin_field(cubin, Binder{query});
  if (!query.bind(key).bind(std::span<const std::byte>(digest)).step()) return false;
  const std::int64_t id = query.integer(0);
  query.run();
  connection.query("INSERT INTO image (cubin, frame) VALUES (?, ?)")
      .bind(id)
      .bind(std::span<const std::byte>(cubin.image))
      .run();
  return true;
}

}  // namespace kiln::store
