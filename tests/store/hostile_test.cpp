// Rows with valid digests and content that Kiln never writes.
#include <doctest/doctest.h>

#include <limits>

#include "kiln/error.hpp"
#include "store/file.hpp"
#include "support.hpp"

using namespace kiln;
using namespace kiln::store;

TEST_CASE("choices and candidates of no record do not keep a record from being stored with its own") {
  const Folder folder;
  const auto path = folder / "overlay.kiln";
  const auto file = File::open(path, Access::read_write);
  file->put(sample_record("first"), nullptr);
  run_sql(
      path,
      "INSERT INTO candidate SELECT record + 1, position, implementation, 'left over', sizes, verdict, reason, cost_ns, "
      "low_ns, high_ns, samples, registers, spill_bytes, baseline, digest FROM candidate;"
      "INSERT INTO choice SELECT record + 1, position + 2, role, sizes, implementation, 'left over', cost_ns, low_ns, "
      "high_ns, samples, source_digest, compiler FROM choice");
  file->put(sample_record("second"), nullptr);
  const auto found = file->find_record("second", true);
  REQUIRE(found);
  CHECK(same(*found, sample_record("second")));
  CHECK(file->stats().choices == 6);
}

TEST_CASE("a choice that was changed, lost, added or moved makes its whole record a miss, which is set aside once") {
  const std::string insert =
      "INSERT INTO choice SELECT 1, 9, role, sizes, implementation, config, cost_ns, low_ns, high_ns, "
      "samples, source_digest, compiler FROM choice WHERE ";
  for (const std::string& change :
       {std::string("UPDATE choice SET config = 'threads=1' WHERE record = 1 AND position = 0"),
        std::string("UPDATE choice SET sizes = 'rows=257..385' WHERE record = 1 AND position = 0"),
        std::string("UPDATE choice SET role = 'fastest' WHERE record = 1 AND position = 2"),
        std::string("UPDATE choice SET role = 'slowest' WHERE record = 1 AND position = 2"),
        std::string("UPDATE choice SET compiler = 'nvrtc 12.9' WHERE record = 1 AND position = 2"),
        std::string("DELETE FROM choice WHERE record = 1 AND position = 0"),
        std::string("DELETE FROM choice WHERE record = 1 AND position = 2"),
        std::string("DELETE FROM choice WHERE record = 1"), insert + "record = 1 AND position = 0",
        insert + "record = 2 AND position = 2",
        std::string("UPDATE choice SET position = 8 WHERE record = 1 AND position = 0"),
        std::string("UPDATE record SET baseline_ns = 1 WHERE id = 1")}) {
    CAPTURE(change);
    const Folder folder;
    const auto path = folder / "a.kiln";
    {
      const auto file = File::open(path, Access::read_write);
      file->put(sample_record("hit"), nullptr);
      file->put(sample_record("sound"), nullptr);
    }
    run_sql(path, change);
    const auto base = File::open(path, Access::read_only);
    CHECK(!base->find_record("hit"));
    CHECK(base->records().size() == 1);
    CHECK(base->stats().records == 2);
    const auto file = File::open(path, Access::read_write);
    CHECK(!file->find_record("hit"));
    CHECK(file->counters().quarantined == 1);
    CHECK(!file->find_record("hit"));
    CHECK(file->counters().quarantined == 1);
    CHECK(file->stats().quarantined == 1);
    CHECK(file->stats().choices == 3);
    CHECK(same(file->find_record("sound", true).value(), sample_record("sound")));
    file->put(sample_record("hit"), nullptr);
    CHECK(file->find_record("hit"));
  }
}

TEST_CASE("a record of more choices than Kiln writes is a miss") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  const auto file = File::open(path, Access::read_write);
  file->put(sample_record("hit"), nullptr);
  run_sql(
      path,
      "WITH RECURSIVE more(at) AS (SELECT 10 UNION ALL SELECT at + 1 FROM more WHERE at < 100000) INSERT INTO choice "
      "SELECT 1, at, role, sizes, implementation, config, cost_ns, low_ns, high_ns, samples, source_digest, compiler "
      "FROM choice, more WHERE position = 0");
  CHECK(!file->find_record("hit"));
  CHECK(file->stats().choices == 0);
}

namespace {

/// Returns the digest of the only lease in the file as if it had been taken at this second.
manifest::Digest digest_of_lease(const std::filesystem::path& path, std::int64_t boot_seconds) {
  sqlite3* database = nullptr;
  sqlite3_stmt* row = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  REQUIRE(sqlite3_prepare_v2(database,
                             "SELECT record_key, holder, boot_id, pid_namespace, pid, process_start, term_seconds "
                             "FROM lease",
                             -1, &row, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_step(row) == SQLITE_ROW);
  manifest::Hasher hasher;
  hasher.field("lease");
  for (int column = 0; column < 4; ++column)
    hasher.field(reinterpret_cast<const char*>(sqlite3_column_text(row, column)));
  hasher.field(sqlite3_column_int64(row, 4)).field(sqlite3_column_int64(row, 5)).field(boot_seconds);
  hasher.field(sqlite3_column_int64(row, 6));
  sqlite3_finalize(row);
  sqlite3_close(database);
  return hasher.finish();
}

}  // namespace

TEST_CASE("a lease whose age 64 bits cannot hold is free to take") {
  const Folder folder;
  const auto path = folder / "overlay.kiln";
  const auto file = File::open(path, Access::read_write);
  REQUIRE(file->acquire_lease("key", "another", 60));
  CHECK_FALSE(file->acquire_lease("key", "us", 60));
  run_sql(path, "UPDATE lease SET boot_seconds = -9223372036854775807 - 1, digest = x'" +
                    manifest::to_hex(digest_of_lease(path, std::numeric_limits<std::int64_t>::min())) + "'");
  CHECK(file->acquire_lease("key", "us", 60));
}

TEST_CASE("tables in a form that SQLite does not know are damage") {
  const Folder folder;
  const auto path = folder / "overlay.kiln";
  File::open(path, Access::read_write);
  std::string bytes = bytes_of(path);
  bytes[47] = 5;  // the last byte of the schema format
  write_bytes(path, bytes);
  CHECK(contains(refusal([&] { (void)File::open(path, Access::read_write); }), "bad_file: "));
  CHECK(bytes_of(path) == bytes);
}
