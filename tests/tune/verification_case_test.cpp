// Verification cases and the local bench on the fake driver: the arguments of launches, and which candidate a failure rejects.
#include "tune/verification_case.hpp"

#include <array>

#include "op_fixture.hpp"
#include "tune/bench.hpp"

using namespace kiln;
using namespace kiln::tune;
using fake_cuda_tests::control;

namespace {

/// An op of tests/e2e/ops over rows and cols.
struct Fixture : testing::OpFixture {
  explicit Fixture(const std::string& name) : OpFixture("tests/e2e/ops/" + name) {}
  [[nodiscard]] Problem problem(std::int64_t rows) const {
    return OpFixture::problem({{"rows", std::to_string(rows)}, {"cols", "64"}, {"dtype", "f32"}});
  }
};

Placement bounded_by(const Problem& bound) {
  Placement placement;
  placement.bound = bound;
  return placement;
}

}  // namespace

TEST_CASE("a launch that may begin early and reads its length before it waits is found out") {
  Fixture fixture("early_scale");
  const Problem bound = fixture.problem(64);
  VerificationCase verified = fixture.case_of(fixture.problem(32), bounded_by(bound));
  const jit::Executable late = fixture.load(bound, {64, 0}), early = fixture.load(bound, {64, 1});
  CHECK(verified.verify(early, fixture.stream.handle()).right);
  control("kernel peeks scale_early");
  CHECK(verified.verify(late, fixture.stream.handle()).right);
  const Check check = verified.verify(early, fixture.stream.handle());
  CHECK_FALSE(check.right);
  CHECK_MESSAGE(check.reason.starts_with("launched early behind what writes its inputs"), check.reason);
  control("heal");
  CHECK(verified.verify(early, fixture.stream.handle()).right);  // the length was restored
}

TEST_CASE("a case that takes another problem keeps no length or stride of the one before") {
  Fixture fixture("early_scale");
  const Problem bound = fixture.problem(64), shorter = fixture.problem(32);
  VerificationCase verified = fixture.case_of(shorter, bounded_by(bound));
  const jit::Executable executable = fixture.load(bound, {64, 0});
  REQUIRE(verified.verify(executable, fixture.stream.handle()).right);
  verified.retarget(bound, 12, fixture.stream.handle());
  CHECK(verified.arguments().lengths_set == 0);
  CHECK(verified.verify(executable, fixture.stream.handle()).right);

  Placement wide;
  wide.runtime.push_back({RuntimeId{1, RuntimeId::Kind::integer}, 96});
  verified.retarget(shorter, 13, fixture.stream.handle(), wide);
  CHECK(verified.verify(executable, fixture.stream.handle()).right);
  verified.retarget(shorter, 14, fixture.stream.handle());
  CHECK((verified.arguments().runtime_set >> 1 & 1U) == 0);
  CHECK(verified.verify(executable, fixture.stream.handle()).right);
}

TEST_CASE("an output that takes an input's place is verified with the input's values there, before each launch") {
  Fixture fixture("early_scale");
  Placement in_place;
  in_place.in_place = {TensorId{2}, TensorId{0}};  // y takes x's
  for (const bool bounded : {false, true}) {
    CAPTURE(bounded);
    if (bounded) in_place.bound = fixture.problem(64);
    VerificationCase verified = fixture.case_of(fixture.problem(bounded ? 32 : 64), in_place);
    CHECK(verified.arguments().tensors[0] == verified.arguments().tensors[2]);
    const jit::Executable late = fixture.load(fixture.problem(64), {64, 0}),
                          early = fixture.load(fixture.problem(64), {64, 1});
    for (const jit::Executable* each : {&late, &early, &late}) {
      const Check check = verified.verify(*each, fixture.stream.handle());
      CHECK_MESSAGE(check.right, check.reason);
    }
    control("kernel hasty scale_early");
    CHECK_FALSE(verified.verify(early, fixture.stream.handle()).right);
    control("heal; kernel wrong scale_early");
    CHECK_FALSE(verified.verify(late, fixture.stream.handle()).right);
    control("heal");
  }
}

TEST_CASE("of launches that take turns, the one that fails is blamed, and the others are timed") {
  Fixture fixture("early_scale");
  const Problem bucket = fixture.problem(64);
  const auto bench =
      local_bench({fixture.op, bucket, fixture.context.info(), Regime::cold_l2, fixture.arch()}, fixture.cubins);
  bench->set_lengths({bucket});
  const std::array<Point, 2> points = {Point{7, 0}, Point{8, 0}};
  const std::array<manifest::Config, 2> configs = {{{64, 0}, {128, 0}}};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const jit::Cubin cubin = fixture.cubin(bucket, configs[i]);
    REQUIRE(bench->admit(points[i].candidate, {fixture.implementation, configs[i], cubin, bucket}).verdict ==
            store::Verdict::ok);
  }
  for (const bool chains : {false, true}) {
    CAPTURE(chains);
    // Once in turns, and once when the first is sampled alone.
    control("fail cuLaunchKernelEx CUDA_ERROR_INVALID_VALUE at 2; fail cuLaunchKernelEx CUDA_ERROR_INVALID_VALUE at 3");
    const std::vector<Samples> samples = chains ? bench->sample_chains(points, 5) : bench->sample(points, 5);
    control("heal");
    REQUIRE(samples.size() == 2);
    CHECK(samples[0].ns.empty());
    CHECK(samples[0].failure.find("CUDA_ERROR_INVALID_VALUE") != std::string::npos);
    CHECK(samples[1].ns.size() == 5);
    CHECK(samples[1].failure.empty());
  }
}

TEST_CASE("candidates are timed at each length of a bucket where they are legal") {
  Fixture fixture("scale");
  const Problem bucket = fixture.problem(64);
  Problem inside = fixture.problem(53);
  inside.axes[1] = 63;  // not a multiple of a vector of 4
  const std::array<manifest::Config, 2> configs = {{{128, 4}, {128, 1}}};
  const auto bench =
      local_bench({fixture.op, bucket, fixture.context.info(), Regime::cold_l2, fixture.arch()}, fixture.cubins);
  bench->set_lengths({inside, bucket});
  const auto admit = [&](std::size_t number, const manifest::Config& config) {
    return bench->admit(number, {fixture.implementation, config, fixture.cubin(bucket, config), bucket});
  };
  REQUIRE(admit(3, configs[0]).verdict == store::Verdict::ok);
  REQUIRE(admit(5, configs[1]).verdict == store::Verdict::ok);
  control("kernel odd 10 scale_tiled");
  const std::vector<Point> points = {{3, 0}, {5, 0}, {3, 1}, {5, 1}};
  const std::vector<Samples> samples = bench->sample(points, 5);
  control("heal");
  REQUIRE(samples.size() == 4);
  CHECK(samples[0].ns.empty());
  CHECK(samples[0].failure.empty());
  for (const std::size_t each : {1U, 2U, 3U}) REQUIRE(samples[each].ns.size() == 5);
  CHECK(samples[1].ns.front() > 5 * samples[3].ns.front());
}

TEST_CASE("a candidate that is legal at neither end of the bucket is not taken, for nothing verifies it") {
  Fixture fixture("scale");
  Problem bucket = fixture.problem(64);
  const auto bench =
      local_bench({fixture.op, bucket, fixture.context.info(), Regime::cold_l2, fixture.arch()}, fixture.cubins);
  bench->set_lengths({bucket});
  const manifest::Config config = {128, 4};
  const jit::Cubin cubin = fixture.cubin(bucket, config);
  Problem odd = bucket;
  odd.axes[1] = 63;
  const auto other =
      local_bench({fixture.op, odd, fixture.context.info(), Regime::cold_l2, fixture.arch()}, fixture.cubins);
  other->set_lengths({odd});
  const Admission admission = other->admit(1, {fixture.implementation, config, cubin, bucket});
  CHECK(admission.verdict == store::Verdict::launch_failed);
  CHECK(admission.reason.find("not legal at either end") != std::string::npos);
}
