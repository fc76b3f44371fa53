// What `kiln cache` lists of an overlay that is refused.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {

TEST_CASE("fault 59: what an overlay holds is not listed as nothing when the overlay is refused") {
  const TemporaryFolder folder;
  store::run_sql(tuned_overlay(folder, "newer.kiln"), "PRAGMA user_version = 99");
  write(folder / "foreign.kiln", "text");
  for (const char* name : {"newer.kiln", "foreign.kiln"})
    for (const char* command : {"ls", "stats", "show scale@1"}) {
      const auto said =
          expect(4, "kiln --quiet --overlay " + (folder / name).string() + " cache " + std::string(command));
      CHECK_MESSAGE(contains(said, "the overlay cannot be used"), said);
      CHECK_MESSAGE(contains(said, name), said);
    }
  const auto missing = expect(2, "kiln --quiet --overlay " + (folder / "missing.kiln").string() + " cache ls");
  CHECK_MESSAGE(contains(missing, "missing.kiln does not exist"), missing);
  tally(59, 6, "lists of a refused overlay");
}

}  // namespace kiln::faults
