// CUDA_LAUNCH_BLOCKING=1: a launch returns once its kernel has run, so none may wait behind what the host opens later.
#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE("fault 79: with launches that block no launch of a tune waits for the host") {
  const Machine machine;
  const TemporaryFolder folder;
  REQUIRE(setenv("CUDA_LAUNCH_BLOCKING", "1", 1) == 0);
  control("blocking 1");
  const std::int64_t before = query("blocked");
  Options options = e2e::options(folder / "overlay.kiln");
  options.isolation = Isolation::in_process;
  const Engine engine(options);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(engine.stats().tunes == 1);
  CHECK(query("blocked") == before);
  control("blocking 0");
  unsetenv("CUDA_LAUNCH_BLOCKING");
  tally(79, 1, "a tune with launches that block");
}

}  // namespace kiln::faults
