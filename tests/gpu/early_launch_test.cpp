// Launches that may begin before their predecessor ends, with kernels that wait for it and kernels that do not.
#include "gpu/fixture.hpp"
#include "spec/problem.hpp"

namespace kiln::gpu_tests {

TEST_CASE("an early launch that does not wait for its inputs is found out, and only when it is early") {
  Fixture fixture;
  if (fixture.facts().sm() < spec::first_programmatic_sm) {
    MESSAGE("skipped: this device begins no launch early");
    return;
  }
  const spec::Op& op = fixture.op("impatient");
  const spec::Implementation& doubled = *op.find("doubled");
  for (const char* count : {"1", "1000", "65536", "16777216"}) {
    const Problem problem = fixture.problem(op, {{"count", count}});
    tune::VerificationCase verified(op, problem, fixture.facts(), fixture.arch(), fixture.cubins, 7,
                                    fixture.stream.handle());
    for (const spec::Config& config : spec::search_space(op, doubled, problem, fixture.facts())) {
      const jit::Executable executable = fixture.load(op, doubled, problem, config);
      const tune::Check check = verified.verify(executable, fixture.stream.handle());
      const bool hasty = config == spec::Config{0, 1};
      CHECK_MESSAGE(check.right != hasty, std::string(count), " ", spec::to_string(doubled, config), ": ",
                    check.reason);
      if (hasty) CHECK(check.reason.starts_with("launched early behind what writes its inputs"));
    }
  }
}

}  // namespace kiln::gpu_tests
