// Prepared inputs, on the fake driver: the op segment_sum of tests/ops, whose offsets cut rows into groups.
#include "tune/preparation.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "kiln/error.hpp"
#include "tune/bench.hpp"
#include "tune/op_fixture.hpp"
#include "tune/verification_code.hpp"

using namespace kiln;
using namespace kiln::tune;
using fake_cuda_tests::control;
using fake_cuda_tests::query;

namespace {

enum Case : std::size_t { equal, skewed, empty, one_long };

struct PreparedSums : testing::OpFixture {
  PreparedSums() : OpFixture("tests/ops/segment_sum") {}
  [[nodiscard]] Problem problem(std::int64_t rows, std::int64_t groups) const {
    return OpFixture::problem({{"rows", std::to_string(rows)}, {"groups", std::to_string(groups)}, {"cols", "16"}});
  }
  VerificationCase prepared(const Problem& problem, std::size_t prepare_case) {
    Placement placement;
    placement.prepare_case = prepare_case;
    return case_of(problem, placement);
  }
  std::unique_ptr<Bench> bench(const Problem& bucket) {
    return local_bench({{{op, context.info().facts}, bucket}, context.info(), arch()}, cubins);
  }
  Admission admit(Bench& bench, const Problem& bucket) {
    const manifest::Variant variant{&implementation, {128, 0}};
    return bench.admit(0, {variant, cubin(bucket, variant.config), bucket});
  }
};

std::vector<int> offsets_of(const VerificationCase& verified, std::size_t count) {
  std::vector<int> offsets(count);
  const auto at = reinterpret_cast<CUdeviceptr>(verified.arguments().tensors[1]);
  REQUIRE(cuda::Driver::get().cuMemcpyDtoH_v2(offsets.data(), at, count * sizeof(int)) == CUDA_SUCCESS);
  return offsets;
}

std::vector<int> lengths_of(const std::vector<int>& offsets) {
  std::vector<int> lengths(offsets.size());
  std::adjacent_difference(offsets.begin(), offsets.end(), lengths.begin());
  lengths.erase(lengths.begin());
  return lengths;
}

/// The time of one launch at each of `sizes`, with the fixture's timed cases.
std::vector<double> times_at(PreparedSums& fixture, const Problem& bucket, const std::vector<Problem>& sizes) {
  const auto bench = fixture.bench(bucket);
  REQUIRE(fixture.admit(*bench, bucket).verdict == store::Verdict::ok);
  bench->set_sizes(sizes);
  std::vector<Point> points;
  for (std::size_t i = 0; i < sizes.size(); ++i) points.push_back({0, i});
  std::vector<double> times;
  for (const Samples& samples : bench->sample(points, 3)) {
    REQUIRE_MESSAGE(samples.ns.size() == 3, samples.failure);
    times.push_back(*std::ranges::min_element(samples.ns));
  }
  return times;
}

}  // namespace

TEST_CASE("each case of [prepare] makes its own inputs, for the sizes of the problem, before the reference runs") {
  PreparedSums fixture;
  const Problem problem = fixture.problem(100, 7);
  const jit::Executable executable = fixture.load(fixture.problem(128, 8), {128, 0});
  std::map<std::size_t, std::vector<int>> lengths;
  for (const std::size_t each : {equal, skewed, empty, one_long}) {
    CAPTURE(each);
    VerificationCase verified = fixture.prepared(problem, each);
    const std::vector<int> offsets = offsets_of(verified, 8);
    CHECK(offsets.front() == 0);
    CHECK(offsets.back() == 100);
    CHECK(std::ranges::is_sorted(offsets));
    lengths[each] = lengths_of(offsets);
    const Check check = verified.verify(executable, fixture.stream.handle());
    CHECK_MESSAGE(check.right, check.reason);
  }
  CHECK(std::ranges::max(lengths[equal]) == 15);
  CHECK(std::ranges::min(lengths[equal]) == 14);
  CHECK(std::ranges::is_sorted(lengths[skewed]));
  CHECK(std::ranges::count(lengths[empty], 0) == 4);
  CHECK(std::ranges::max(lengths[one_long]) == 100);
}

TEST_CASE("a case's seed decides what is prepared") {
  PreparedSums fixture;
  const Problem problem = fixture.problem(100, 7);
  VerificationCase verified = fixture.prepared(problem, one_long);
  Placement placement;
  placement.prepare_case = one_long;
  const auto longest_with = [&](std::uint64_t seed) {
    verified.retarget(problem, seed, fixture.stream.handle(), placement);
    const std::vector<int> lengths = lengths_of(offsets_of(verified, 8));
    return std::ranges::max_element(lengths) - lengths.begin();
  };
  CHECK(longest_with(3) == 3);
  CHECK(longest_with(12) == 5);
}

TEST_CASE("every case is verified with each candidate, and the reason of a wrong result names it") {
  PreparedSums fixture;
  const Problem bucket = fixture.problem(128, 8);
  const auto bench = fixture.bench(bucket);
  const std::int64_t before = query("launches segment_sum<");
  CHECK(fixture.admit(*bench, bucket).verdict == store::Verdict::ok);
  const std::int64_t at_the_low_end = 4, at_the_edge = 1, at_corners = 2, with_shorter_lengths = 3;
  CHECK(query("launches segment_sum<") - before == at_the_low_end + at_the_edge + at_corners + with_shorter_lengths);
  control("kernel wrong segment_sum<");
  const Admission admission = fixture.admit(*bench, bucket);
  CHECK(admission.verdict == store::Verdict::wrong_result);
  CHECK_MESSAGE(admission.reason.find(" with inputs '") != std::string::npos, admission.reason);
}

TEST_CASE("where a bucket is one size, every case is verified once") {
  PreparedSums fixture;
  for (manifest::Axis& axis : fixture.op.axes) axis.on_device = false;
  const Problem bucket = fixture.problem(1, 1);
  const auto bench = fixture.bench(bucket);
  const std::int64_t before = query("launches segment_sum<");
  CHECK(fixture.admit(*bench, bucket).verdict == store::Verdict::ok);
  CHECK(query("launches segment_sum<") - before == 4);
}

TEST_CASE("candidates are timed at another size with inputs that are prepared for it") {
  PreparedSums fixture;
  fixture.op.prepare->timed = {one_long};
  control("noise 0");
  const Problem bucket = fixture.problem(4096, 8);
  const std::vector<double> times = times_at(fixture, bucket, {fixture.problem(2304, 8), bucket});
  fixture.op.prepare->timed = {equal};
  const std::vector<double> few = times_at(fixture, bucket, {fixture.problem(4096, 5), bucket});
  control("noise 0.01");
  CHECK(times[0] < 0.8 * times[1]);
  // Of five groups the longest has more rows than of eight. Offsets that were prepared for eight would hide it.
  CHECK(few[0] > 1.2 * few[1]);
}

TEST_CASE("a sample is the mean over the timed cases") {
  PreparedSums fixture;
  control("noise 0");
  const Problem bucket = fixture.problem(4096, 8);
  const auto time_of = [&](std::vector<std::size_t> timed) {
    fixture.op.prepare->timed = std::move(timed);
    return times_at(fixture, bucket, {bucket}).front();
  };
  const double short_ns = time_of({equal}), long_ns = time_of({one_long}), both_ns = time_of({equal, one_long});
  control("noise 0.01");
  CHECK(long_ns > 2 * short_ns);
  CHECK(both_ns == doctest::Approx((short_ns + long_ns) / 2).epsilon(0.01));
}

TEST_CASE("a verification after launches at other sizes finds its own inputs again") {
  PreparedSums fixture;
  const Problem bucket = fixture.problem(128, 8);
  VerificationCase verified = fixture.prepared(bucket, skewed);
  const std::vector<int> own = offsets_of(verified, 9);
  verified.prepare_at(fixture.problem(100, 5), equal, fixture.stream.handle());
  CHECK(offsets_of(verified, 6).back() == 100);
  CHECK(verified.verify(fixture.load(bucket, {128, 0}), fixture.stream.handle()).right);
  CHECK(offsets_of(verified, 9) == own);
}

TEST_CASE("a launch that may begin early and reads prepared inputs before it waits is found out") {
  PreparedSums fixture;
  const Problem bucket = fixture.problem(128, 8);
  VerificationCase verified = fixture.prepared(bucket, equal);
  const jit::Executable early = fixture.load(bucket, {128, 1});
  CHECK(verified.verify(early, fixture.stream.handle()).right);
  control("kernel peeks segment_sum<");
  const Check check = verified.verify(early, fixture.stream.handle());
  CHECK_FALSE(check.right);
  CHECK_MESSAGE(check.reason.starts_with("launched early behind what writes its inputs"), check.reason);
  control("heal");
  CHECK(verified.verify(early, fixture.stream.handle()).right);
}

TEST_CASE("a worker is given the machine code of [prepare], and no output may lie where a prepared input does") {
  PreparedSums fixture;
  const Problem bucket = fixture.problem(128, 8);
  const auto needed = verification({{fixture.op, fixture.facts()}, bucket}, fixture.arch());
  CHECK(std::ranges::count(needed, "segment_sum/prepare", &jit::Specialisation::label) == 4);
  Placement in_place;
  in_place.in_place = {TensorId{2}, TensorId{1}};
  CHECK_THROWS_AS(fixture.case_of(bucket, in_place), Error);
}
