#include "file_templates.hpp"

#include <sqlite3.h>

#include "sample_rows.hpp"
#include "store/file.hpp"
#include "store/integrity.hpp"
#include "store/schema.hpp"
#include "store/transfer.hpp"
#include "support.hpp"

namespace kiln::fuzz {
namespace {

namespace fs = std::filesystem;

void run_sql(const fs::path& path, const std::string& sql) {
  sqlite3* database = nullptr;
  require(sqlite3_open(path.c_str(), &database) == SQLITE_OK, "a template can be opened");
  require(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK, "a template can be made",
          sqlite3_errmsg(database));
  sqlite3_close(database);
}

std::string with_small_pages(const fs::path& path) {
  run_sql(path, "PRAGMA page_size = " + std::to_string(template_page_size) + "; VACUUM");
  return read_bytes(path);
}

/// Records as they still are, and a cubin with the digest that it had in version 1.
std::string make_version_1(const fs::path& full, const fs::path& path) {
  const store::PackedCubin cubin = pack(sample_cubin("one"));
  spec::Hasher hasher;
  hasher.field("cubin").field(std::span<const std::byte>(cubin.key));
  for (const auto* text : {&cubin.label, &cubin.arch, &cubin.compiler, &cubin.name_expressions, &cubin.lowered_names})
    hasher.field(std::string_view(*text));
  const auto digest = hasher.field(cubin.image_bytes).field(std::span<const std::byte>(cubin.image)).finish();
  run_sql(path,
          std::string(store::schema_sql(1)) + "ATTACH '" + full.native() +
              "' AS full; INSERT INTO meta SELECT * FROM full.meta; INSERT INTO record SELECT * FROM "
              "full.record; INSERT INTO candidate SELECT * FROM full.candidate; INSERT INTO cubin SELECT id, key, "
              "x'" +
              spec::to_hex(digest) +
              "', label, arch, compiler, name_expressions, lowered_names, image_bytes, frame FROM full.cubin "
              "JOIN full.image ON cubin = id");
  return with_small_pages(path);
}

std::vector<std::string> make_templates() {
  const Scratch folder;
  const fs::path full = folder / "full.kiln", sealed = folder / "sealed.kiln", empty = folder / "empty.kiln";
  {
    const auto file = store::File::open(full, store::Access::read_write);
    const store::CubinRow cubin = sample_cubin("one");
    file->put(sample_record("first"), &cubin);
    file->put(sample_record("second"), nullptr);
    file->add_to_histogram({{"scale", "rows=100", 7}});
    file->add_to_usage({{"record", "first", 3, 1790000000}});
    require(file->acquire_lease("second", "somebody", 60), "a free key can be leased");
    export_file(*file, sealed, {}, false);
    store::File::open(empty, store::Access::read_write);
  }
  const std::string version_1 = make_version_1(full, folder / "version_1.kiln");
  return {with_small_pages(full), with_small_pages(sealed), with_small_pages(empty), version_1};
}

}  // namespace

const std::vector<std::string>& file_templates() {
  static const std::vector<std::string> templates = make_templates();
  return templates;
}

}  // namespace kiln::fuzz
