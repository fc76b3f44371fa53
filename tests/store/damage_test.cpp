// What a .kiln file is refused for, and what becomes of a row that does not hold.
#include <algorithm>

#include "store/integrity.hpp"
#include "store/opening.hpp"
#include "store/schema.hpp"
#include "store/tables.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

std::filesystem::path sample_file(const Folder& folder, int records = 3) {
  const auto path = folder / "sample.kiln";
  const auto file = File::open(path, Access::read_write);
  for (int at = 0; at < records; ++at) {
    const auto name = std::to_string(at);
    const auto cubin = sample_cubin(name, 500);
    file->put(sample_record("key" + name, 100 + at), &cubin);
  }
  return path;
}

/// Refused with these words, for reading and for writing, and not changed by it.
void check_refused(const std::filesystem::path& path, std::string_view words) {
  const auto before = bytes_of(path);
  for (const Access access : {Access::read_only, Access::read_write}) {
    const auto found = refusal([&] { File::open(path, access); });
    CAPTURE(found);
    CHECK(contains(found, "bad_file: '" + path.string()));
    CHECK(contains(found, words));
  }
  CHECK(bytes_of(path) == before);
}

TEST_CASE("the embedded schema is cache/schema.sql, and its numbers are those of the code") {
  const Folder folder;
  const auto path = sample_file(folder, 0);
  const auto bytes = bytes_of(path);
  CHECK(bytes.substr(68, 4) == "KILN");
  CHECK(contains(std::string(schema_sql()), "PRAGMA application_id = 0x4b494c4e;"));
  CHECK(contains(std::string(schema_sql()), "PRAGMA user_version = " + std::to_string(schema_version) + ";"));
}

TEST_CASE("other tables, views, triggers, indexes or columns are refused") {
  for (const std::string sql :
       {"CREATE TABLE extra (a)", "CREATE VIEW extra AS SELECT * FROM record", "CREATE INDEX extra ON record (bucket)",
        "CREATE TRIGGER extra AFTER INSERT ON record BEGIN DELETE FROM record; END",
        "ALTER TABLE record ADD COLUMN extra TEXT", "DROP TABLE signature"}) {
    CAPTURE(sql);
    const Folder folder;
    const auto path = sample_file(folder);
    run_sql(path, sql);
    check_refused(path, "its tables are not those of a .kiln file");
  }
}

TEST_CASE("what is missing, no file or not to be read is named") {
  const Folder folder;
  CHECK(contains(refusal([&] { File::open(folder / "none.kiln", Access::read_only); }), "io: '"));
  CHECK(contains(refusal([&] { File::open(folder.path(), Access::read_only); }), "it is not a regular file"));
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK(contains(refusal([&] { File::open(folder / "fifo", Access::read_only); }), "it is not a regular file"));
}

TEST_CASE("a cubin moved under another key is a miss") {
  const Folder folder;
  const auto path = sample_file(folder);
  run_sql(path,
          "UPDATE cubin SET key = zeroblob(32) WHERE id = 1;"
          "CREATE TEMP TABLE k AS SELECT id, key FROM cubin; UPDATE cubin SET key = randomblob(32) WHERE id IN (2, 3);"
          "UPDATE cubin SET key = (SELECT key FROM k WHERE k.id = 5 - cubin.id) WHERE id IN (2, 3)");
  const auto file = File::open(path, Access::read_only);
  for (const std::string name : {"0", "1", "2"}) CHECK(!file->find_cubin(digest_named(name)));
  CHECK(file->counters().quarantined == 2);
}

TEST_CASE("a cost that is not possible is a miss even under a right digest") {
  const Folder folder;
  const auto path = sample_file(folder);
  auto record = sample_record("key1");
  record.cost_ns = -1;
  Connection connection = open_existing(path, Access::read_write);
  put_record(connection, record);
  const auto file = File::open(path, Access::read_write);
  CHECK(!file->find_record("key1"));
  CHECK(file->counters().quarantined == 1);
  CHECK(!file->find_record("key1"));
  CHECK(file->counters().quarantined == 1);
}

TEST_CASE("a compression bomb, a size that does not fit and a huge row are misses under a right digest") {
  const Folder folder;
  const auto path = sample_file(folder, 0);
  {
    Connection connection = open_existing(path, Access::read_write);
    auto bomb = pack(sample_cubin("bomb"));
    bomb.image_bytes = std::int64_t{1} << 40;
    put_cubin(connection, bomb, digest_of(bomb), false);
    auto misfit = pack(sample_cubin("misfit"));
    ++misfit.image_bytes;
    put_cubin(connection, misfit, digest_of(misfit), false);
    auto noise = pack(sample_cubin("noise"));
    std::ranges::fill(noise.image, std::byte{0x5a});
    put_cubin(connection, noise, digest_of(noise), false);
    auto names = pack(sample_cubin("names"));
    names.lowered_names = "[1, 2";
    put_cubin(connection, names, digest_of(names), false);
  }
  run_sql(path, "INSERT INTO cubin SELECT 99, x'" + spec::to_hex(digest_named("huge")) +
                    "', digest, op, source_digest, label, arch, compiler, name_expressions, lowered_names, image_bytes "
                    "FROM cubin LIMIT 1; INSERT INTO image VALUES (99, zeroblob(80000000))");
  const auto file = File::open(path, Access::read_write);
  for (const std::string name : {"bomb", "misfit", "noise", "names", "huge"}) {
    CAPTURE(name);
    CHECK(!file->find_cubin(digest_named(name)));
  }
  CHECK(file->counters().quarantined == 5);
  CHECK(file->stats().cubins == 0);
}

TEST_CASE("valid UTF-8 and nothing else is text") {
  for (const std::string_view good :
       {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(is_utf8(good));
  for (const std::string_view bad : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\x80", "\xed\xa0\x80", "\xf0\x8f\x80\x80",
                                     "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe1\x80"})
    CHECK(!is_utf8(bad));
}

}  // namespace
}  // namespace kiln::store
