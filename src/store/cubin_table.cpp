#include <algorithm>

#include "store/columns.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

constexpr std::string_view select_by_id =
    "SELECT id, key, label, arch, compiler, name_expressions, lowered_names, image_bytes, image, digest FROM cubin "
    "WHERE id = ?";

struct Row {
  std::int64_t id = 0;
  spec::Digest key{};
  std::optional<CubinRow> cubin;
  std::string flaw;
};

Row read_cubin(const Query& query) {
  Row row;
  row.id = query.integer(0);
  PackedCubin packed;
  const auto key = query.blob(1);
  if (key.size() == packed.key.size()) std::ranges::copy(key, packed.key.begin());
  row.key = packed.key;
  packed.label = query.text(2);
  packed.arch = query.text(3);
  packed.compiler = query.text(4);
  packed.name_expressions = query.text(5);
  packed.lowered_names = query.text(6);
  packed.image_bytes = query.integer(7);
  const auto image = query.blob(8);
  packed.image.assign(image.begin(), image.end());
  if (key.size() != packed.key.size() || !same_bytes(query.blob(9), digest_of(packed))) {
    row.flaw = digest_mismatch;
    return row;
  }
  row.flaw = flaw_of(packed);
  if (row.flaw.empty()) row.cubin = unpack(packed);
  if (row.flaw.empty() && !row.cubin) row.flaw = "its payload cannot be unpacked to the size that it states";
  return row;
}

// A row past SQLite's length limit cannot be read at all, so it cannot be judged again either: it goes.
bool remove_if_flawed(Connection& connection, std::int64_t id) {
  try {
    Query query = connection.query(select_by_id);
    if (!query.bind(id).step() || read_cubin(query).flaw.empty()) return false;
  } catch (const SqliteFailure& failure) {
    if (!failure.too_big()) throw;
  }
  connection.query("DELETE FROM cubin WHERE id = ?").bind(id).run();
  return true;
}

Flaw flaw_at(std::int64_t id, const spec::Digest& key, std::string reason) {
  return {"cubin", spec::to_hex(key), std::move(reason),
          [id](Connection& connection) { return remove_if_flawed(connection, id); }};
}

Row read_by_id(Connection& connection, std::int64_t id) {
  try {
    Query query = connection.query(select_by_id);
    return query.bind(id).step() ? read_cubin(query) : Row{id, {}, std::nullopt, {}};
  } catch (const SqliteFailure& failure) {
    if (!failure.too_big()) throw;
    return {id, {}, std::nullopt, "it is larger than any row that Kiln writes"};
  }
}

}  // namespace

std::optional<CubinRow> find_cubin(Connection& connection, const spec::Digest& key, Flaws& flaws) {
  std::int64_t id = 0;
  {
    Query query = connection.query("SELECT id FROM cubin WHERE key = ?");
    if (!query.bind(std::span<const std::byte>(key)).step()) return std::nullopt;
    id = query.integer(0);
  }
  Row row = read_by_id(connection, id);
  if (row.flaw.empty() && row.cubin && row.key != key) row.flaw = digest_mismatch;
  if (row.flaw.empty()) return std::move(row.cubin);
  flaws.push_back(flaw_at(id, key, row.flaw));
  return std::nullopt;
}

std::vector<CubinRow> list_cubins(Connection& connection, Flaws& flaws) {
  std::vector<std::int64_t> ids;
  {
    Query query = connection.query("SELECT id FROM cubin ORDER BY key");
    while (query.step()) ids.push_back(query.integer(0));
  }
  std::vector<CubinRow> cubins;
  for (const std::int64_t id : ids) {
    Row row = read_by_id(connection, id);
    if (row.flaw.empty() && row.cubin)
      cubins.push_back(std::move(*row.cubin));
    else if (!row.flaw.empty())
      flaws.push_back(flaw_at(id, row.key, row.flaw));
  }
  return cubins;
}

std::vector<std::string> list_compilers(Connection& connection) {
  std::vector<std::string> compilers;
  Query query = connection.query("SELECT DISTINCT compiler FROM cubin ORDER BY compiler");
  while (query.step()) compilers.emplace_back(query.text(0));
  return compilers;
}

void put_cubin(Connection& connection, const PackedCubin& cubin, const spec::Digest& digest, bool replace) {
  const std::span<const std::byte> key(cubin.key);
  if (replace) connection.query("DELETE FROM cubin WHERE key = ?").bind(key).run();
  connection
      .query(
          "INSERT INTO cubin (key, digest, label, arch, compiler, name_expressions, lowered_names, image_bytes, image) "
          "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING")
      .bind(key)
      .bind(std::span<const std::byte>(digest))
      .bind(std::string_view(cubin.label))
      .bind(std::string_view(cubin.arch))
      .bind(std::string_view(cubin.compiler))
      .bind(std::string_view(cubin.name_expressions))
      .bind(std::string_view(cubin.lowered_names))
      .bind(cubin.image_bytes)
      .bind(std::span<const std::byte>(cubin.image))
      .run();
}

}  // namespace kiln::store
