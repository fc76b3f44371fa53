// What does not work, as `kiln doctor` tells it.
#include "faults/engine/fixture.hpp"
#include "store/support.hpp"

namespace kiln::faults {

TEST_CASE("fault 58: doctor names a worker that does not run and an overlay that is not used") {
  const TemporaryFolder folder;
  const std::string overlay = " --overlay " + tuned_overlay(folder).string() + " ";
  CHECK(!contains(expect(0, "kiln doctor" + overlay), "BROKEN"));
  for (const char* worker : {"/nonexistent", "/", "/bin/true"}) {
    const auto said = expect(1, variable("KILN_WORKER", worker) + "'" KILN_COMMAND "' doctor" + overlay);
    CHECK_MESSAGE(contains(said, "BROKEN  worker: "), said);
    CHECK_MESSAGE(contains(said, "BROKEN  compiles: "), said);
    CHECK_MESSAGE(contains(said, "KILN_WORKER=none to do without"), said);
  }
  CHECK(!contains(expect(0, "KILN_WORKER=none '" KILN_COMMAND "' doctor" + overlay), "BROKEN"));
  fs::create_directory(folder / "folder.kiln");
  store::run_sql(tuned_overlay(folder, "newer.kiln"), "PRAGMA user_version = 99");
  write(folder / "foreign.kiln", "text");
  for (const char* name : {"folder.kiln", "newer.kiln", "foreign.kiln"}) {
    const auto said = expect(1, "kiln --quiet doctor --overlay " + (folder / name).string());
    CHECK_MESSAGE(contains(said, "BROKEN  overlay " + (folder / name).string() + ": "), said);
    CHECK_MESSAGE(contains(said, "what is tuned is lost when the process ends"), said);
  }
  tally(58, 6, "broken installations told by doctor");
}

}  // namespace kiln::faults
