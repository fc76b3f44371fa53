// An implementation that gives wrong results throughout, beside one that is right.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 73: an implementation of which every candidate was wrong is named after the tune, in JSON too") {
  const TemporaryFolder folder;
  const std::string tune = "tune scale rows=64 cols=128 dtype=f32 --strategy exhaustive --force";
  const std::string wrong = "FAKE_CUDA='kernel wrong scale_tiled' '" KILN_COMMAND "' ";
  const std::string said = expect(0, wrong + tune + globals(folder));
  CHECK_MESSAGE(contains(said, "'tiled' is left out: all 6 configs that ran gave wrong results, such as threads="),
                said);
  const std::string json = expect(0, wrong + "--json " + tune + globals(folder));
  CHECK_MESSAGE(contains(json, "\"wrong\":[\"'tiled' is left out: all 6 configs"), json);
  const std::string partly =
      expect(0, "FAKE_CUDA='kernel wrong scale_tiled<float, 128' '" KILN_COMMAND "' --json " + tune + globals(folder));
  CHECK_MESSAGE(contains(partly, "\"wrong\":[]"), partly);  // others of it are right
  tally(73, 3, "implementations that are wrong throughout");
}

}  // namespace kiln::faults
