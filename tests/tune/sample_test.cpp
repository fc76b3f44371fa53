// References that compute a sample, on the fake driver: the op segment_sum of tests/ops, whose reference computes each third group.
#include <bit>
#include <cmath>
#include <limits>

#include "tune/op_fixture.hpp"

using namespace kiln;
using namespace kiln::tune;
using fake_cuda_tests::control;

namespace {

constexpr std::int64_t groups = 7, cols = 16;

struct SampledSums : testing::OpFixture {
  SampledSums() : OpFixture("tests/ops/segment_sum") {}
  [[nodiscard]] Problem problem(const char* checked, std::int64_t of_groups = groups) const {
    return OpFixture::problem(
        {{"rows", "100"}, {"groups", std::to_string(of_groups)}, {"cols", "16"}, {"checked", checked}});
  }
  Check verify(const char* checked) {
    VerificationCase verified = case_of(problem(checked));
    const Problem bucket = manifest::bucket_of(op, problem(checked));
    return verified.verify(load(bucket, {128, 0}), stream.handle());
  }
  /// Launches, then writes `value` over one element of group `group`.
  Check verify_with(VerificationCase& verified, std::int64_t group, float value) {
    const Problem bucket = manifest::bucket_of(op, verified.problem());
    const jit::Executable executable = load(bucket, {128, 0});
    TrialWorkspace workspace(executable);
    verified.poison(stream.handle());
    verified.launch(executable, workspace, stream.handle());
    stream.synchronize();
    const auto y = reinterpret_cast<CUdeviceptr>(verified.arguments().tensors[2]);
    const auto at = static_cast<CUdeviceptr>((group * cols + 3) * static_cast<std::int64_t>(sizeof value));
    REQUIRE(cuda::Driver::get().cuMemcpyHtoD_v2(y + at, &value, sizeof value) == CUDA_SUCCESS);
    return verified.check(stream.handle());
  }
};

float poison() { return std::bit_cast<float>(~0U); }

}  // namespace

TEST_CASE("elements that a sampling reference leaves need only be finite, those that it writes must be right") {
  SampledSums fixture;
  VerificationCase verified = fixture.case_of(fixture.problem("third_row"));
  CHECK(fixture.verify("third_row").right);
  CHECK(fixture.verify_with(verified, 1, 1e6F).right);
  const Check wrong = fixture.verify_with(verified, 3, 1e6F);
  CHECK_FALSE(wrong.right);
  CHECK_MESSAGE(wrong.reason.find("in 1 of 112 elements, first at [3,3]") != std::string::npos, wrong.reason);
  const Check unwritten = fixture.verify_with(verified, 1, poison());
  CHECK_FALSE(unwritten.right);
  CHECK_MESSAGE(unwritten.reason.find("first at [1,3]") != std::string::npos, unwritten.reason);
  CHECK_FALSE(fixture.verify_with(verified, 1, std::numeric_limits<float>::infinity()).right);
}

TEST_CASE("a tolerance goes by the elements that the reference wrote") {
  SampledSums fixture;
  fixture.op.tolerance.at(manifest::DType::f32).front() = {0.0, 0.1, {}};
  VerificationCase all = fixture.case_of(fixture.problem("all")), some = fixture.case_of(fixture.problem("third_row"));
  CHECK(fixture.verify_with(some, 3, 1e3F).worst_error ==
        doctest::Approx(fixture.verify_with(all, 3, 1e3F).worst_error).epsilon(0.3));
}

TEST_CASE("a tolerance goes by the elements that are not 0") {
  SampledSums fixture;
  fixture.op.tolerance.at(manifest::DType::f32).front() = {0.0, 0.1, {}};
  Placement placement;
  VerificationCase equal = fixture.case_of(fixture.problem("all"), placement);
  placement.prepare_case = 2;  // three of seven groups have the rows of all
  VerificationCase empty = fixture.case_of(fixture.problem("all"), placement);
  const double of_equal = fixture.verify_with(equal, 3, 1e3F).worst_error;
  CHECK(fixture.verify_with(empty, 3, 1e3F).worst_error == doctest::Approx(of_equal * std::sqrt(3.0 / 7)).epsilon(0.2));

  // An element that is 0 is judged by all: group 3 has no row.
  const double rms_of_all = 1e3 / of_equal;
  CHECK(fixture.verify_with(empty, 3, static_cast<float>(0.05 * rms_of_all)).right);
  CHECK_FALSE(fixture.verify_with(empty, 3, static_cast<float>(0.14 * rms_of_all)).right);
}

TEST_CASE("a reference that leaves elements is wrong where nothing is said of a sample, and so is an empty sample") {
  SampledSums fixture;
  CHECK(fixture.verify("all").right);
  const Check holes = fixture.verify("holes");
  CHECK_FALSE(holes.right);
  CHECK(holes.reason ==
        "the reference wrote 48 of 112 elements of output 'y'; let it write all, or say 'sample' in [reference]");
  const Check none = fixture.verify("none");
  CHECK_FALSE(none.right);
  CHECK(none.reason == "the reference wrote 0 of 112 elements of output 'y'; let it write some of each");
}
