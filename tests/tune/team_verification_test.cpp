// Verification of team ops on the fake driver: the op gathered_rows of tests/tune/ops, whose kernel reads what the ranks have pushed.
#include <algorithm>
#include <array>
#include <vector>

#include "kiln/error.hpp"
#include "tune/bench.hpp"
#include "tune/op_fixture.hpp"

using namespace kiln;
using namespace kiln::tune;
using fake_cuda_tests::control;
using fake_cuda_tests::query;

namespace {

struct GatheredRows : testing::OpFixture {
  static constexpr std::int64_t world = 3, rows = 5, cols = 16;
  static constexpr std::int64_t padded_cols = cols + 4;  // x's stride by the manifest's `verify`
  static constexpr std::int64_t half = 8192, gathered_at = team::control_bytes + 256;  // behind the unused workspace

  GatheredRows() : OpFixture("tests/tune/ops/gathered_rows") {
    for (int rank = 0; rank < world; ++rank) memory.emplace_back(team::bytes_for_half(half));
  }
  [[nodiscard]] team::TeamBinding binding(std::int32_t rank) const {
    team::TeamBinding binding;
    for (std::size_t i = 0; i < memory.size(); ++i) binding.memory[i] = memory[i].pointer();
    binding.rank = rank;
    binding.world = world;
    binding.half_bytes = half;
    return binding;
  }
  [[nodiscard]] Problem problem(std::int64_t length = rows) const {
    return OpFixture::problem({{"rows", std::to_string(length)}, {"cols", "16"}, {"world", "3"}});
  }
  VerificationCase of_rank(std::int32_t rank, std::uint64_t seed = 11) {
    Placement placement;
    placement.rank = rank;
    return {{op, facts()}, problem(), arch(), cubins, seed, stream.handle(), placement};
  }
  jit::Executable loaded(std::int32_t rank) {
    const Problem at = problem();
    const team::TeamBinding team = binding(rank);
    return {op, implementation, manifest::Variant{&implementation}.frame({op, facts()}, at), cubin(at, {}), &team};
  }
  /// The rows of a case's x, without padding.
  [[nodiscard]] std::vector<float> rows_of(const VerificationCase& of) const {
    std::vector<float> padded((rows - 1) * padded_cols + cols), values(rows * cols);
    read(of.arguments().tensors[0], padded);
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(padded.begin() + row * padded_cols, cols, values.begin() + row * cols);
    return values;
  }
  [[nodiscard]] float factor_of(const VerificationCase& of) const {
    std::vector<float> factor(1);
    read(of.arguments().tensors[1], factor);
    return factor.front();
  }
  /// Writes a rank's rows where a kernel would push them: into every rank's memory.
  void push(std::int64_t rank, const std::vector<float>& values) const {
    const auto bytes = values.size() * sizeof(float);
    for (const cuda::Buffer& each : memory)
      REQUIRE(fake_cuda_tests::driver().cuMemcpyHtoD_v2(
                  each.pointer() + static_cast<CUdeviceptr>(gathered_at) + static_cast<CUdeviceptr>(rank) * bytes,
                  values.data(), bytes) == CUDA_SUCCESS);
  }
  void read(const void* address, std::vector<float>& into) const {
    stream.synchronize();
    REQUIRE(fake_cuda_tests::driver().cuMemcpyDtoH_v2(into.data(), reinterpret_cast<CUdeviceptr>(address),
                                                      into.size() * sizeof(float)) == CUDA_SUCCESS);
  }

  std::vector<cuda::Buffer> memory;  // by rank
};

}  // namespace

TEST_CASE("each rank's reference sees the parts that all ranks fill, and is told the rank") {
  GatheredRows fixture;
  std::vector<VerificationCase> cases;
  for (std::int32_t rank = 0; rank < fixture.world; ++rank) {
    cases.push_back(fixture.of_rank(rank));
    fixture.push(rank, fixture.rows_of(cases.back()));
  }
  for (std::int32_t rank = 0; rank < fixture.world; ++rank) {
    CAPTURE(rank);
    const auto place = static_cast<std::size_t>(rank);
    const Check check = cases[place].verify(fixture.loaded(rank), fixture.stream.handle());
    CHECK_MESSAGE(check.right, check.reason);
    CHECK(fixture.factor_of(cases[place]) == fixture.factor_of(cases[0]));  // no part of a rank's own
    if (rank > 0) CHECK(fixture.rows_of(cases[place]) != fixture.rows_of(cases[0]));
  }
  // The reference adds the rank, so another's output is wrong.
  CHECK_FALSE(cases[1].verify(fixture.loaded(2), fixture.stream.handle()).right);
}

TEST_CASE("a rank whose case has another seed is told from the part that it fills") {
  GatheredRows fixture;
  VerificationCase verified = fixture.of_rank(0);
  for (std::int32_t rank = 0; rank < fixture.world; ++rank)
    fixture.push(rank, fixture.rows_of(fixture.of_rank(rank, rank == 1 ? 12 : 11)));
  const Check check = verified.verify(fixture.loaded(0), fixture.stream.handle());
  CHECK_FALSE(check.right);
  CHECK_MESSAGE(check.reason.find("in 80 of 240 elements, first at [1,0,0]") != std::string::npos, check.reason);
}

TEST_CASE("a case holds the memory of all ranks' parts, and takes no rank that the team does not have") {
  GatheredRows fixture;
  // x, factor and y with guards; what the reference writes; and x of each rank, from row to row as the stride says.
  const std::int64_t x = (fixture.rows - 1) * fixture.padded_cols + fixture.cols,
                     y = fixture.world * fixture.rows * fixture.cols;
  CHECK(fixture.of_rank(0).bytes() ==
        (x + 1 + y + y + fixture.world * fixture.rows * fixture.padded_cols) * 4 + 3 * 256);
  for (const std::int32_t rank : {-1, 3})
    CHECK_THROWS_WITH_AS(static_cast<void>(fixture.of_rank(rank)),
                         doctest::Contains("of 3 was asked for; give a rank below the number of ranks"), Error);
}

TEST_CASE("a rank launches a team's candidate as often whether it is right or wrong") {
  GatheredRows fixture;
  std::vector<VerificationCase> cases;
  for (std::int32_t rank = 0; rank < fixture.world; ++rank) {
    cases.push_back(fixture.of_rank(rank));
    fixture.push(rank, fixture.rows_of(cases.back()));
  }
  const jit::Executable executable = fixture.loaded(0);
  REQUIRE(executable.overlaps_predecessor());
  const auto launches = [&](bool right) {
    const std::int64_t before = query("launches gathered_rows");
    CHECK(cases[0].verify(executable, fixture.stream.handle()).right == right);
    return query("launches gathered_rows") - before;
  };
  const std::int64_t of_right = launches(true);
  CHECK(of_right == 4);  // alone, behind what writes its inputs, and twice in a row
  control("kernel wrong gathered_rows");
  CHECK(launches(false) == of_right);
}

TEST_CASE("a bench of a team op verifies every case by the seed that it is given") {
  GatheredRows fixture;
  const Problem bucket = fixture.problem(8);
  const team::TeamBinding binding = fixture.binding(1);
  const cuda::DeviceInfo info = fixture.context.info();
  const jit::Cubin cubin = fixture.cubin(bucket, {});
  std::vector<std::int64_t> launches;
  const auto reason_by = [&](std::uint64_t seed) {
    BenchSettings settings{{{fixture.op, info.facts}, bucket}, info, fixture.arch(), &binding, seed};
    const auto bench = local_bench(settings, fixture.cubins);
    bench->set_sizes({bucket});
    const std::int64_t before = query("launches gathered_rows");
    const manifest::Variant variant{&fixture.implementation};
    const Admission admission = bench->admit(1, {variant, cubin, bucket});
    launches.push_back(query("launches gathered_rows") - before);
    CHECK(admission.verdict == store::Verdict::wrong_result);  // nobody has pushed
    return admission.reason;
  };
  const std::string reason = reason_by(5);
  CHECK(reason.find("at rows=5 cols=16 world=3: output 'y' differs") != std::string::npos);  // the first case
  CHECK(reason_by(5) == reason);
  CHECK(reason_by(6) != reason);
  for (const std::int64_t each : launches) CHECK(each == 2 * 4);  // at both ends of the bucket
}
