// Files of other versions are migrated by steps, or refused where no step begins.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>

#include "made_up_format.hpp"
#include "store/layers.hpp"
#include "store/opening.hpp"
#include "store/transfer.hpp"
#include "store/verify.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr int record_count = 3;

fs::path present_file(const Folder& folder) {
  const auto path = folder / "a.kiln";
  const auto file = File::open(path, Access::read_write);
  for (int at = 0; at < record_count; ++at) {
    const auto cubin = sample_cubin(std::to_string(at));
    file->put(sample_record("key" + std::to_string(at)), &cubin);
  }
  return path;
}

Connection open_as_next(const fs::path& path, Access access, Seal* seal = nullptr) {
  return open_existing(path, access, seal, made_up_format());
}

/// Returns whether the file holds the sample rows as the made-up step changes them.
bool is_migrated(Connection& connection, std::size_t expected = record_count) {
  Flaws flaws;
  const auto found = list_records(connection, {}, true, flaws);
  const auto is_next = [](const Record& each) {
    Record was = each;
    was.regime = sample_record(each.key).regime;
    return each.regime == made_up_regime && same(was, sample_record(each.key));
  };
  return flaws.empty() && found.size() == expected && std::ranges::all_of(found, is_next) &&
         version_of(connection) == schema_version + 1 && find_cubin(connection, digest_named("0"), flaws).has_value() &&
         flaws.empty();
}

std::uint32_t version_in(const fs::path& path) { return static_cast<unsigned char>(bytes_of(path)[63]); }

TEST_CASE("a file of an earlier version is migrated where it stands when it may be written, once") {
  const Folder folder;
  const auto path = present_file(folder);
  {
    Connection connection = open_as_next(path, Access::read_write);
    CHECK(is_migrated(connection));
  }
  CHECK(version_in(path) == schema_version + 1);
  const auto migrated = bytes_of(path);
  for (const Access access : {Access::read_write, Access::read_only}) {
    Connection connection = open_as_next(path, access);
    CHECK(is_migrated(connection));
  }
  CHECK(bytes_of(path) == migrated);
  CHECK(contains(refusal([&] { File::open(path, Access::read_write); }), "use a newer Kiln"));
}

TEST_CASE("a base of an earlier version is read in a migrated copy, and not changed") {
  const Folder folder;
  const auto path = present_file(folder);
  export_file(*File::open(path, Access::read_only), folder / "sealed.kiln", {}, false);
  for (const auto& base : {path, folder / "sealed.kiln"}) {
    const auto before = bytes_of(base);
    Seal seal;
    Connection connection = open_as_next(base, Access::read_only, &seal);
    CHECK(is_migrated(connection));
    CHECK(seal.manifest.empty());  // the migration changed the digests
    CHECK(read_seal(connection).manifest.empty());
    CHECK(bytes_of(base) == before);
  }
}

TEST_CASE("a row that did not hold is set aside by the migration, and verifying names it without changing the file") {
  const Folder folder;
  const auto path = present_file(folder);
  run_sql(path, "UPDATE choice SET config = 'threads=1' WHERE record = 2");
  const auto before = bytes_of(path);
  const Verification found = verify(path, 20, made_up_format());
  CHECK(found.version == schema_version);
  REQUIRE(found.flaws == 1);
  CHECK(found.first[0].key == "key1");
  CHECK(std::ranges::any_of(found.notes,
                            [](const std::string& note) { return contains(note, "when it is next written"); }));
  CHECK(bytes_of(path) == before);
  Connection connection = open_as_next(path, Access::read_write);
  CHECK(is_migrated(connection, record_count - 1));
}

TEST_CASE("a migration that cannot be written, or whose step fails, leaves the file as it was") {
  const Folder folder;
  const auto path = present_file(folder);
  const auto before = bytes_of(path);
  const pid_t child = in_child([&] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = before.size() / 2;  // bytes of any file
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    return contains(refusal([&] { open_as_next(path, Access::read_write); }), "io: ");
  });
  CHECK(exit_status(child) == 0);
  CHECK(same(File::open(path, Access::read_only)->find_record("key0", true).value(), sample_record("key0")));
  const MigrationStep steps[] = {{schema_sql(), [](Connection& connection) {
                                    connection.execute("DELETE FROM record");
                                    connection.execute("INSERT INTO no_table VALUES (1)");
                                  }}};
  const Format failing{schema_version + 1, made_up_format().schema, steps};
  CHECK(contains(refusal([&] { open_existing(path, Access::read_write, nullptr, failing); }), "no_table"));
  CHECK(File::open(path, Access::read_only)->records().size() == record_count);
}

TEST_CASE("processes that open a file of an earlier version at once migrate it once") {
  const Folder folder;
  const auto path = present_file(folder);
  std::vector<pid_t> children;
  for (int child = 0; child < 8; ++child)
    children.push_back(in_child([&] {
      Connection connection = open_as_next(path, Access::read_write);
      return is_migrated(connection);
    }));
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
  Connection connection = open_as_next(path, Access::read_only);
  CHECK(is_migrated(connection));
}

TEST_CASE("a file of an earlier version with other tables is not migrated") {
  const Folder folder;
  const auto path = present_file(folder);
  run_sql(path, "ALTER TABLE choice ADD COLUMN extra TEXT");
  const auto before = bytes_of(path);
  CHECK(contains(refusal([&] { open_as_next(path, Access::read_write); }),
                 "its tables are not those of a .kiln file of version " + std::to_string(schema_version)));
  CHECK(bytes_of(path) == before);
}

TEST_CASE("a version that no step begins with is refused by its number, with what to do, and its bytes stay") {
  const Folder folder;
  const auto path = present_file(folder);
  for (const int version : {1, 2}) {
    run_sql(path, "PRAGMA user_version = " + std::to_string(version));
    const auto before = bytes_of(path);
    for (const Access access : {Access::read_only, Access::read_write}) {
      const auto said = refusal([&] { File::open(path, access); });
      CAPTURE(said);
      CHECK(contains(said, "bad_file: '" + path.string() + "' is refused: its format is version " +
                               std::to_string(version) + " and this Kiln reads none before 3"));
      CHECK(contains(said, "tune again or import a .jsonl"));
    }
    Layers layers({.overlay = path});
    REQUIRE(layers.warnings().size() == 1);
    CHECK(contains(layers.warnings()[0], "tune again"));
    layers.overlay().put(sample_record("mine"), nullptr);
    CHECK(layers.find_record("mine"));
    CHECK(bytes_of(path) == before);
  }
}

}  // namespace
}  // namespace kiln::store
