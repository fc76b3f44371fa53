#include "store/migration.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "store/columns.hpp"
#include "store/opening.hpp"
#include "store/schema.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

/// As the present schema makes it, letter for letter.
std::string definition_of(const std::string& table) {
  Connection present = open_in_memory();
  Query query = present.query("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?");
  query.bind(std::string_view(table)).step();
  return std::string(query.text(0));
}

// Version 1 had no op and no source_digest, and the image stood beside the rest.
PackedCubin read_cubin_1(const Query& query) {
  PackedCubin cubin;
  const auto key = query.blob(0);
  if (key.size() == cubin.key.size()) std::ranges::copy(key, cubin.key.begin());
  cubin.label = query.text(1);
  cubin.arch = query.text(2);
  cubin.compiler = query.text(3);
  cubin.name_expressions = query.text(4);
  cubin.lowered_names = query.text(5);
  cubin.image_bytes = query.integer(6);
  const auto image = query.blob(7);
  cubin.image.assign(image.begin(), image.end());
  return cubin;
}

spec::Digest digest_1(const PackedCubin& cubin) {
  spec::Hasher hasher;
  hasher.field(std::string_view("cubin")).field(std::span<const std::byte>(cubin.key));
  for (const auto* text : {&cubin.label, &cubin.arch, &cubin.compiler, &cubin.name_expressions, &cubin.lowered_names})
    hasher.field(std::string_view(*text));
  hasher.field(cubin.image_bytes).field(std::span<const std::byte>(cubin.image));
  return hasher.finish();
}

/// Labels were "OP/IMPLEMENTATION CONFIG", and "internal/FILE" for Kiln's own kernels.
std::string op_in_label(const std::string& label) {
  const auto slash = label.find('/');
  const std::string op = slash == std::string::npos ? "" : label.substr(0, slash);
  return op == "internal" ? "" : op;
}

void note_flaw(Connection& connection, const spec::Digest& key) {
  connection.query("INSERT INTO quarantine (source, key, reason) VALUES ('cubin', ?, ?)")
      .bind(std::string_view(spec::to_hex(key)))
      .bind(digest_mismatch)
      .run();
}

void move_cubin(Connection& connection, std::int64_t id) try {
  PackedCubin cubin;
  bool holds = false;
  {
    Query query = connection.query(
        "SELECT key, label, arch, compiler, name_expressions, lowered_names, image_bytes, image, digest FROM cubin_1 "
        "WHERE id = ?");
    query.bind(id).step();
    cubin = read_cubin_1(query);
    holds = same_bytes(query.blob(8), digest_1(cubin));
  }
  if (!holds) return note_flaw(connection, cubin.key);
  cubin.op = op_in_label(cubin.label);
  put_cubin(connection, cubin, digest_of(cubin), true);
} catch (const SqliteFailure& failure) {
  if (!failure.too_big()) throw;
  note_flaw(connection, {});
}

}  // namespace

void migrate_from_1(Connection& connection) {
  connection.execute("ALTER TABLE cubin RENAME TO cubin_1");
  for (const char* table : {"cubin", "image", "usage"}) connection.execute(definition_of(table));
  std::vector<std::int64_t> ids;
  {
    Query query = connection.query("SELECT id FROM cubin_1 ORDER BY id");
    while (query.step()) ids.push_back(query.integer(0));
  }
  for (const std::int64_t id : ids) move_cubin(connection, id);
  connection.execute("DROP TABLE cubin_1");
  remove_manifest(connection);
  connection.execute(fmt::format("PRAGMA user_version = {}", schema_version));
}

}  // namespace kiln::store
