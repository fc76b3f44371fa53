#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t write_version = 18, read_version = 19;  // bytes of SQLite's header; 2 says WAL

TEST_CASE("fault 07: a file in WAL mode is refused, with or without its side file") {
  const Folder folder;
  const auto path = sample_file(folder / "sample.kiln");
  run_sql(path, "PRAGMA journal_mode = WAL; DELETE FROM record WHERE key = 'key1'");
  check_refused(path, "WAL mode");
  CHECK(!fs::exists(folder / "sample.kiln-shm"));
  write_bytes(folder / "sample.kiln-wal", std::string(5000, 'x'));
  check_refused(path, "WAL mode");
  CHECK(bytes_of(folder / "sample.kiln-wal") == std::string(5000, 'x'));
  faults::tally(7, 4, "openings in WAL mode");
}

TEST_CASE("fault 07: either of the header's two bytes is enough to refuse a file") {
  const Folder folder;
  const auto whole = bytes_of(sample_file(folder / "sample.kiln"));
  for (const std::size_t at : {write_version, read_version}) {
    auto changed = whole;
    changed[at] = 2;
    write_bytes(folder / "changed.kiln", changed);
    check_refused(folder / "changed.kiln", "WAL mode");
  }
  faults::tally(7, 4, "headers of which one byte says WAL");
}

TEST_CASE("fault 07: no export is in WAL mode, and none leaves a side file") {
  const Folder folder;
  const auto file = File::open(sample_file(folder / "sample.kiln"), Access::read_write);
  export_file(*file, folder / "out.kiln", {}, false);
  const auto bytes = bytes_of(folder / "out.kiln");
  CHECK(bytes[write_version] == 1);
  CHECK(bytes[read_version] == 1);
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
  faults::tally(7, 1, "exports");
}

}  // namespace
}  // namespace kiln::store
