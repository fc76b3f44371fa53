#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/layers.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

TEST_CASE("fault 11: a foreign file is refused and its bytes stay as they are") {
  const Folder folder;
  write_bytes(folder / "text.kiln", std::string(2000, 'x'));
  check_refused(folder / "text.kiln", "it is not a .kiln file");
  run_sql(folder / "other.kiln", "PRAGMA application_id = 42; CREATE TABLE t (a)");
  check_refused(folder / "other.kiln", "another program (application_id 0x0000002a)");
  run_sql(folder / "plain.kiln", "CREATE TABLE t (a)");
  check_refused(folder / "plain.kiln", "another program");
  faults::tally(11, 6, "openings of foreign files");
}

TEST_CASE("fault 11: a foreign file in the overlay's place is not touched; memory serves") {
  const Folder folder;
  const auto path = folder / "notes.txt";
  for (const std::string& notes : {std::string(200, 'n'), std::string("short notes"), std::string(5000, '\0')}) {
    write_bytes(path, notes);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    Layers layers({.overlay = path});
    REQUIRE(layers.warnings().size() == 1);
    CHECK(contains(layers.warnings()[0], "is not a .kiln file; records of this process are kept in memory only"));
    layers.overlay().put(sample_record("key"), nullptr);
    CHECK(layers.find_record("key"));
    CHECK(bytes_of(path) == notes);
  }
  faults::tally(11, 3, "foreign files in the overlay's place");
}

}  // namespace
}  // namespace kiln::store
