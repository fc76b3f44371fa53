#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

TEST_CASE("fault 32: other tables, views, triggers, indexes or columns are refused") {
  const std::vector<std::string> changes = {
      "CREATE TABLE extra (a)",
      "CREATE VIEW extra AS SELECT * FROM record",
      "CREATE INDEX extra ON record (bucket)",
      "CREATE UNIQUE INDEX extra ON candidate (config, position, record)",
      "CREATE TRIGGER extra AFTER INSERT ON record BEGIN DELETE FROM record; END",
      "CREATE TRIGGER extra BEFORE DELETE ON lease BEGIN SELECT raise(ignore); END",
      "CREATE VIRTUAL TABLE extra USING fts5(a)",
      "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT); DROP TABLE t",  // leaves sqlite_sequence
      "ALTER TABLE record ADD COLUMN extra TEXT",
      "ALTER TABLE choice ADD COLUMN extra TEXT",
      "ALTER TABLE choice RENAME COLUMN config TO setting",
      "DROP TABLE signature",
      "DROP INDEX record_by_op",
      "DROP TABLE lease; CREATE VIEW lease AS SELECT 1 AS record_key",
      "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'histogram'",
      "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'NOT NULL', 'NOT  NULL') WHERE name = 'meta'",
      "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'REAL NOT NULL', 'REAL NOT NULL DEFAULT "
      "(randomblob(1))') WHERE name = 'record'"};
  for (const std::string& sql : changes) {
    CAPTURE(sql);
    const Folder folder;
    const auto path = sample_file(folder / "sample.kiln");
    run_sql(path, sql);
    check_refused(path, "is damaged: ");
  }
  faults::tally(32, 2 * static_cast<std::int64_t>(changes.size()), "openings of other schemas");
}

TEST_CASE("fault 32: a sealed file is refused too, though its seal holds") {
  const Folder folder;
  export_file(*File::open(sample_file(folder / "sample.kiln"), Access::read_only), folder / "sealed.kiln", {}, false);
  run_sql(folder / "sealed.kiln", "CREATE VIEW extra AS SELECT * FROM record");
  check_refused(folder / "sealed.kiln", "its tables are not those of a .kiln file");
  faults::tally(32, 2, "openings of a sealed file of another schema");
}

}  // namespace
}  // namespace kiln::store
