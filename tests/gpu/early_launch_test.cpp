// Launches that may begin before their predecessor ends, with kernels that wait for it and kernels that do not.
#include "gpu/fixture.hpp"
#include "manifest/variant.hpp"

namespace kiln::gpu_tests {

TEST_CASE("an early launch that does not wait for its inputs or its length is found out, and only when it is early") {
  Fixture fixture;
  if (fixture.facts().sm() < manifest::first_programmatic_sm) {
    MESSAGE("skipped: this device begins no launch early");
    return;
  }
  const manifest::Op& op = fixture.op("impatient");
  const manifest::Implementation& doubled = *op.find("doubled");
  for (const char* count : {"1", "1000", "65536", "16777216"})
    for (const bool on_device : {false, true}) {
      const Problem bound = fixture.problem(op, {{"count", count}});
      Problem problem = bound;
      if (on_device) problem.axes[0] = (bound.axes[0] + 1) / 2;
      tune::Placement placement;
      if (on_device) placement.bound = bound;
      tune::VerificationCase verified({op, fixture.facts()}, problem, fixture.arch(), fixture.cubins, 7,
                                      fixture.stream.handle(), placement);
      for (const manifest::Config& config : manifest::search_space({op, fixture.facts()}, doubled, bound)) {
        const bool waits = config[0] != 0, peeks = config[1] != 0, early = config[2] != 0;
        const jit::Executable executable = fixture.load(op, doubled, bound, config);
        const tune::Check check = verified.verify(executable, fixture.stream.handle());
        const bool hasty = early && (on_device ? peeks : !waits);
        CHECK_MESSAGE(check.right != hasty, std::string(count), on_device ? " on the device " : " ",
                      manifest::to_string(doubled, config), ": ", check.reason);
        if (hasty) CHECK(check.reason.starts_with("launched early behind what writes its inputs"));
      }
    }
}

}  // namespace kiln::gpu_tests
