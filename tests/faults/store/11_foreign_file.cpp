#include <string>

#include "faults/tally.hpp"
#include "store/support.hpp"

namespace kiln::store {
namespace {

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

}  // namespace
}  // namespace kiln::store
