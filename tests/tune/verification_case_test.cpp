// Verification cases and the local bench on the fake driver: the arguments of launches, and which candidate a failure rejects.
#include "tune/verification_case.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "tune/bench.hpp"
#include "tune/op_fixture.hpp"
#include "tune/verification_values.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::tune;
using fake_cuda_tests::control;

namespace {

/// An op of tests/e2e/ops over rows and cols.
struct Fixture : testing::OpFixture {
  explicit Fixture(const std::string& name) : OpFixture("tests/e2e/ops/" + name) {}
  [[nodiscard]] Problem problem(std::int64_t rows) const {
    return OpFixture::problem({{"rows", std::to_string(rows)}, {"cols", "64"}, {"dtype", "f32"}});
  }
  [[nodiscard]] Problem problem_of(const std::vector<manifest::Setting>& settings) const {
    return OpFixture::problem(settings);
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

TEST_CASE("a kernel that takes packed heads by a TMA view is right, and one whose view is clipped is not") {
  Fixture fixture("head_scale");
  const Problem problem = fixture.problem_of({{"tokens", "21"}, {"heads", "8"}, {"groups", "2"}, {"dim", "16"}});
  VerificationCase verified = fixture.case_of(problem);
  for (const std::int64_t tile : {1, 4, 16}) {
    const Check check = verified.verify(fixture.load(problem, {tile}), fixture.stream.handle());
    CHECK_MESSAGE(check.right, check.reason);
  }
  manifest::Argument& view = fixture.op.implementations.front().passes.front().arguments.front();
  view.shape.front() = manifest::Expression::parse("tokens - 1", fixture.op.symbols);
  const Check check = verified.verify(fixture.load(problem, {4}), fixture.stream.handle());
  CHECK_FALSE(check.right);
  CHECK_MESSAGE(check.reason.find("in 128 of 2688 elements, first at [20,0,0]") != std::string::npos, check.reason);
}

TEST_CASE("a case gives run-time values the manifest's `verify`, else the default, else a small value") {
  Fixture fixture("head_scale");
  const Problem problem = fixture.problem_of({{"tokens", "4"}, {"heads", "2"}, {"groups", "1"}, {"dim", "64"}});
  manifest::Runtime& scale = fixture.op.runtime[0];
  manifest::Runtime& stride = fixture.op.runtime[1];
  const auto scale_of = [&](const VerificationCase& made) {
    return std::bit_cast<float>(static_cast<std::int32_t>(made.arguments().runtime[0]));
  };
  CHECK(scale_of(fixture.case_of(problem)) == 0.7F);
  scale.verify_real.reset();
  CHECK((fixture.case_of(problem).arguments().runtime_set & 1U) == 0);  // a launch computes the default
  scale.default_real.reset();
  CHECK(scale_of(fixture.case_of(problem)) == 1e-5F);

  const std::int64_t dense = fixture.case_of(problem).bytes();
  stride.verify_integer = manifest::Expression::parse("heads * dim + 16", fixture.op.symbols);
  VerificationCase wide = fixture.case_of(problem);
  CHECK(wide.arguments().runtime[1] == 144);
  CHECK(wide.bytes() == dense + 3 * 16 * 4);  // memory for the stride that is given
  CHECK(wide.verify(fixture.load(problem, {4}), fixture.stream.handle()).right);
}

TEST_CASE("defaults follow from the run-time values that a case gives") {
  const std::vector<manifest::Op> ops = manifest::load_ops({});
  const manifest::Op& op = *std::ranges::find(ops, "attention_decode", &manifest::Op::name);
  const std::vector<manifest::Setting> settings = {{"batch", "5"},      {"keys", "1500"},   {"queries", "1"},
                                                   {"heads", "2"},      {"key_heads", "2"}, {"head_dim", "64"},
                                                   {"value_dim", "64"}, {"layout", "paged"}};
  const Problem problem = manifest::make_problem(op, settings);
  const auto device = manifest::DeviceFacts::from_device_class("sm_90/mp132/l2_62914560/smem_232448/bus_6016").value();
  const auto place = [&op](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(op.runtime, name, &manifest::Runtime::name) - op.runtime.begin());
  };
  const std::pair page_size(runtime_id(op, place("page_size")), std::int64_t{16});
  const auto frame = verification_frame({op, device}, problem, std::span(&page_size, 1));
  CHECK(frame[op.first_runtime() + place("page_size")] == 16);
  CHECK(frame[op.first_runtime() + place("pages")] == 5 * 94);
  CHECK(frame[op.first_runtime() + place("table_stride")] == 94);
}

TEST_CASE("a launch without a scale takes the default that the manifest computes from exact sizes") {
  Fixture fixture("head_scale");
  fixture.op.runtime[0].verify_real.reset();
  const Problem problem = fixture.problem_of({{"tokens", "4"}, {"heads", "2"}, {"groups", "1"}, {"dim", "64"}});
  VerificationCase verified = fixture.case_of(problem);
  const jit::Executable executable = fixture.load(problem, {4});
  jit::CallFrame frame;
  REQUIRE(executable.fill(frame, problem, verified.arguments()));
  const std::size_t slot = executable.layout().values[0];
  CHECK(std::bit_cast<float>(static_cast<std::int32_t>(frame.slots[slot])) == 0.125F);
  CHECK(verified.verify(executable, fixture.stream.handle()).right);  // the reference took the same
}

TEST_CASE("an output that may be absent is verified with it and without it") {
  Fixture fixture("head_scale");
  const Problem problem = fixture.problem_of({{"tokens", "5"}, {"heads", "4"}, {"groups", "2"}, {"dim", "16"}});
  VerificationCase verified = fixture.case_of(problem);
  const Check packed = verified.verify(fixture.load(problem, {4}), fixture.stream.handle());
  CHECK_MESSAGE(packed.right, packed.reason);
  CHECK(verified.arguments().tensors[2] != nullptr);  // given again

  const manifest::Implementation& careless = *fixture.op.find("careless");
  const auto frame = manifest::Variant{&careless}.frame({fixture.op, fixture.facts()}, problem);
  const jit::Cubin cubin = fixture.cubins.get(jit::specialise(fixture.op, careless, frame, fixture.arch())).cubin;
  const Check wrong = verified.verify(jit::Executable(fixture.op, careless, frame, cubin), fixture.stream.handle());
  CHECK_FALSE(wrong.right);
  CHECK_MESSAGE(wrong.reason.starts_with("launched without its optional outputs: output 'y' differs"), wrong.reason);

  Placement without;
  without.leave_optional_out = true;
  VerificationCase absent = fixture.case_of(problem, without);
  CHECK(absent.arguments().tensors[2] == nullptr);
  CHECK(absent.verify(fixture.load(problem, {4}), fixture.stream.handle()).right);
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
  const auto bench = local_bench(
      {{{fixture.op, fixture.context.info().facts}, bucket}, fixture.context.info(), fixture.arch()}, fixture.cubins);
  bench->set_sizes({bucket});
  const std::array<Point, 2> points = {Point{7, 0}, Point{8, 0}};
  const std::array<manifest::Config, 2> configs = {{{64, 0}, {128, 0}}};
  for (std::size_t i = 0; i < points.size(); ++i) {
    const jit::Cubin cubin = fixture.cubin(bucket, configs[i]);
    REQUIRE(bench->admit(points[i].candidate, {manifest::Variant{&fixture.implementation, configs[i]}, cubin, bucket})
                .verdict == store::Verdict::ok);
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
  const auto bench = local_bench(
      {{{fixture.op, fixture.context.info().facts}, bucket}, fixture.context.info(), fixture.arch()}, fixture.cubins);
  bench->set_sizes({inside, bucket});
  const auto admit = [&](std::size_t number, const manifest::Config& config) {
    return bench->admit(number,
                        {manifest::Variant{&fixture.implementation, config}, fixture.cubin(bucket, config), bucket});
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

TEST_CASE(
    "a candidate that is legal at neither an end nor a corner of the bucket is not taken, for nothing verifies it") {
  Fixture fixture("scale");
  Problem bucket = fixture.problem(64);
  const auto bench = local_bench(
      {{{fixture.op, fixture.context.info().facts}, bucket}, fixture.context.info(), fixture.arch()}, fixture.cubins);
  bench->set_sizes({bucket});
  const manifest::Config config = {128, 4};
  const jit::Cubin cubin = fixture.cubin(bucket, config);
  Problem odd = bucket;
  odd.axes[1] = 63;
  const auto other = local_bench(
      {{{fixture.op, fixture.context.info().facts}, odd}, fixture.context.info(), fixture.arch()}, fixture.cubins);
  other->set_sizes({odd});
  const Admission admission = other->admit(1, {manifest::Variant{&fixture.implementation, config}, cubin, bucket});
  CHECK(admission.verdict == store::Verdict::launch_failed);
  CHECK(admission.reason.find("where candidates are verified: the bucket's ends and corners") != std::string::npos);
}
