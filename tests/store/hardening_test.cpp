// Neither a hostile file nor a hostile statement can reach past the tables of a connection.
#include <sqlite3.h>

#include "store/opening.hpp"
#include "store/sqlite.hpp"
#include "support.hpp"

namespace kiln::store {
namespace {

bool refuses(Connection& connection, const std::string& sql) {
  try {
    connection.execute(sql);
    return false;
  } catch (const SqliteFailure&) {
    return true;
  }
}

std::int64_t number(Connection& connection, std::string_view sql) {
  Query query = connection.query(sql);
  REQUIRE(query.step());
  return query.integer(0);
}

std::string repeated(const std::string& part, int times) {
  std::string text;
  for (int each = 0; each < times; ++each) text += part;
  return text;
}

TEST_CASE("a connection attaches no other file, loads no code and edits no schema") {
  const Folder folder;
  { File::open(folder / "file.kiln", Access::read_write); }
  for (const auto access : {Access::read_only, Access::read_write}) {
    Connection connection = open_existing(folder / "file.kiln", access);
    CHECK(refuses(connection, "ATTACH '" + (folder / "other.kiln").string() + "' AS other"));
    CHECK(!std::filesystem::exists(folder / "other.kiln"));
    CHECK(refuses(connection, "SELECT load_extension('kiln')"));
    connection.execute("PRAGMA writable_schema = ON");
    CHECK(refuses(connection, "UPDATE sqlite_schema SET sql = '' WHERE name = 'record'"));
    connection.execute("PRAGMA journal_mode = OFF");
    CHECK(number(connection, "SELECT count(*) FROM pragma_journal_mode WHERE journal_mode = 'off'") == 0);
    CHECK(number(connection, "PRAGMA trusted_schema") == 0);
    CHECK(number(connection, "PRAGMA cell_size_check") == 1);
    CHECK(number(connection, "PRAGMA foreign_keys") == 1);
    if (access == Access::read_only) CHECK(refuses(connection, "DELETE FROM record"));
  }
}

TEST_CASE("a file is read through the system's calls, not mapped, so that cutting it off meanwhile raises no signal") {
  const Folder folder;
  { File::open(folder / "file.kiln", Access::read_write); }
  Connection connection = open_existing(folder / "file.kiln", Access::read_only);
  CHECK(number(connection, "PRAGMA mmap_size") == 0);
}

TEST_CASE("a statement that is longer, deeper or wider than any of Kiln's is refused") {
  Connection connection = open_in_memory();
  CHECK(!refuses(connection, "SELECT 1" + repeated(" + 1", 20)));
  CHECK(refuses(connection, "SELECT 1" + repeated(" + 1", 100)));
  CHECK(refuses(connection, "SELECT 1 " + std::string(20000, ' ')));
  CHECK(refuses(connection, "SELECT 1" + repeated(", 1", 100)));
  CHECK(refuses(connection, "SELECT 1" + repeated(" UNION ALL SELECT 1", 20)));
  CHECK(refuses(connection, "SELECT ?100"));
  CHECK(refuses(connection, "SELECT max(1" + repeated(", 1", 20) + ")"));
  CHECK(refuses(connection, "SELECT zeroblob(100000000)"));
  CHECK(refuses(connection, "SELECT 'a' LIKE '" + std::string(100, '%') + "'"));
}

TEST_CASE("a schema that is too large to be Kiln's is refused before it is compared") {
  const Folder folder;
  for (const std::string& sql : {"CREATE TABLE extra (a CHECK (a > 0" + repeated(" + 1", 500) + "))",
                                 "CREATE TABLE extra (a" + std::string(30000, ' ') + ")"}) {
    const auto path = folder / "file.kiln";
    { File::open(path, Access::read_write); }
    run_sql(path, sql);
    CHECK(contains(refusal([&] { File::open(path, Access::read_only); }),
                   "bad_file: '" + path.string() + "' is damaged"));
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace kiln::store
