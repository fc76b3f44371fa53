// An output whose name says another kind of file than is written, or the standard output.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 60: a .kiln file is written under a name by which it is read, and - is the standard output") {
  const TemporaryFolder folder;
  const std::string in = "cd " + (folder / "").string() + " && kiln ";
  const std::string own = "--overlay " + tuned_overlay(folder).string() + " ";
  CHECK(contains(expect(2, in + own + "cache export -o records.jsonl"), "--text"));
  CHECK(contains(expect(2, in + own + "cache export -o records"), "ends in .kiln"));
  CHECK(contains(expect(2, in + own + "cache export -o -"), "ends in .kiln"));
  CHECK(expect(0, in + own + "cache export --text -o -") == expect(0, in + own + "cache export --text"));
  CHECK(contains(expect(0, in + "trace softmax rows=1..64 cols=128 --count 3 -o -"), "softmax rows="));
  CHECK(std::distance(fs::directory_iterator(folder / ""), fs::directory_iterator()) == 1);
  tally(60, 5, "outputs of another kind than their name");
}

}  // namespace kiln::faults
