// `kiln cache prune --max-size` with a size that no deletion reaches.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 90: prune --max-size refuses a size that cannot be reached, and keeps every record") {
  const TemporaryFolder folder;
  const auto file = tuned_overlay(folder);
  const auto before = read(file);
  for (const char* words : {"", " --dry-run"}) {
    const auto said = expect(2, "kiln cache prune " + file.string() + " --max-size 10kB" + words);
    CHECK_MESSAGE(contains(said, "the size of 10000 bytes cannot be reached, so nothing is deleted"), said);
  }
  CHECK(read(file) == before);
  tally(90, 2, "sizes that the command refuses");
}

}  // namespace kiln::faults
