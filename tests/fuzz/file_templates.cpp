#include "file_templates.hpp"

#include <sqlite3.h>

#include "sample_rows.hpp"
#include "store/file.hpp"
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
  return {with_small_pages(full), with_small_pages(sealed), with_small_pages(empty)};
}

}  // namespace

const std::vector<std::string>& file_templates() {
  static const std::vector<std::string> templates = make_templates();
  return templates;
}

}  // namespace kiln::fuzz
