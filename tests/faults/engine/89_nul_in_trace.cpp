// A NUL in a trace.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 89: a line of a trace with a NUL is refused with its number") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const std::string trace = (folder / "t").string();
  const std::string replay = "kiln" + op.globals(tuned_overlay(folder)) + "replay --dry-run ";
  const std::string good = "scale rows=64 cols=128 dtype=f32", nul(1, '\0');
  for (const std::string& text : {good + "\n" + good + nul + " rows=lost\n", good + "\n# a comment" + nul + "\n",
                                  good + "\n" + nul + "\n" + good + "\n"}) {
    write(trace, text);
    for (const std::string& words : {replay + trace, replay + "- < " + trace}) {
      const auto said = expect(2, words);
      CHECK_MESSAGE(contains(said, ":2: found a NUL byte"), said);
    }
  }
  tally(89, 6, "traces with a NUL");
}

}  // namespace kiln::faults
