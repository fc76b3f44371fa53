// What the command says of a file with a spoilt page or an index that lacks rows.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {
namespace {

constexpr std::size_t page_bytes = 4096;

std::size_t root_of(const fs::path& path, const std::string& name) {
  sqlite3* database = nullptr;
  sqlite3_stmt* query = nullptr;
  REQUIRE(sqlite3_open(path.c_str(), &database) == SQLITE_OK);
  const std::string sql = "SELECT rootpage FROM sqlite_schema WHERE name = '" + name + "'";
  REQUIRE(sqlite3_prepare_v2(database, sql.c_str(), -1, &query, nullptr) == SQLITE_OK);
  REQUIRE(sqlite3_step(query) == SQLITE_ROW);
  const auto page = static_cast<std::size_t>(sqlite3_column_int64(query, 0));
  sqlite3_finalize(query);
  sqlite3_close(database);
  return page;
}

}  // namespace

TEST_CASE("fault 84: doctor calls an overlay with a spoilt page broken, and no list leaves its rows out in silence") {
  const TemporaryFolder folder;
  const char* const tables[] = {"choice", "record", "candidate", "cubin"};
  std::vector<std::string> commands{"doctor", "cache ls", "cache stats"};
  for (const char* table : tables) {
    CAPTURE(table);
    const auto path = tuned_overlay(folder, (std::string(table) + ".kiln").c_str());
    const auto spoilt = read(path).replace((root_of(path, table) - 1) * page_bytes, page_bytes, page_bytes, '\0');
    for (const std::string& command : commands) {
      write(path, spoilt);
      const auto said = expect(command == "doctor" ? 1 : 4, "kiln --quiet --overlay " + path.string() + " " + command);
      CHECK_MESSAGE(contains(said, "is damaged"), said);
      CHECK_MESSAGE(contains(said, "it was set aside as '" + path.string() + ".damaged-"), said);
    }
    commands = {"cache ls", "cache stats"};  // doctor, which also looks for devices, takes half a second
    write(path, spoilt);
    for (const char* command : {"ls ", "stats "}) expect(4, std::string("kiln cache ") + command + path.string());
  }
  tally(84, 4 * std::size(tables) + 1, "commands on a file with a spoilt page");
}

TEST_CASE("fault 83: the command refuses to list and to copy a file with an index that lacks rows") {
  const TemporaryFolder folder;
  const auto path = tuned_overlay(folder);
  std::string bytes = read(path);
  char& entries = bytes[(root_of(path, "sqlite_autoindex_cubin_1") - 1) * page_bytes + 4];
  REQUIRE(entries > 0);
  entries = static_cast<char>(entries & (entries - 1));
  write(path, bytes);
  const std::string file = path.string(), out = (folder / "out.kiln").string();
  for (const std::string& command :
       {"ls " + file, "export " + file + " -o " + out, "export --text " + file, "merge " + file + " -o " + out,
        "import " + file + " --overlay " + (folder / "mine.kiln").string()}) {
    const auto said = expect(4, "kiln cache " + command);
    CHECK_MESSAGE(contains(said, file + "' cannot be"), said);
  }
  CHECK(contains(expect(1, "kiln --overlay " + file + " doctor"), "BROKEN  overlay"));
  CHECK(!fs::exists(out));
  tally(83, 6, "commands on a file with an index that lacks rows");
}

}  // namespace kiln::faults
