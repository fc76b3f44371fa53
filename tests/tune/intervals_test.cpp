// Whole tunes on the fake driver, of an op with a config that is the fastest only inside the bucket: up to 40 of 33 to 64 rows.
#include "tune/intervals.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "manifest/key.hpp"
#include "tune/op_fixture.hpp"
#include "tune/tune_bucket.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::tune;
using fake_cuda_tests::control;

namespace {

// The choices of a record: sizes, then the config.
const std::string at_ends = "rows=33..64 tile=16; ";
const std::string parted = "rows=33..40 tile=20; rows=41..64 tile=16; ";

struct Stairs : testing::OpFixture {
  Stairs() : OpFixture("tests/tune/ops/stair_scale") {}

  /// `before_work` is called before each piece of device work that follows the search, counted from 0: the first loads a candidate again, and
  /// the next takes samples at inner sizes.
  store::Record tune(const SearchSettings& search = {}, const std::function<void(int piece)>& before_work = {}) {
    const Problem bucket = problem({{"rows", "64"}, {"cols", "64"}, {"dtype", "f32"}});
    TuneRequest request{.bucket = {{op, context.info().facts}, bucket},
                        .device = context.info(),
                        .arch = arch(),
                        .stop_requested = {},
                        .on_event = {}};
    request.search = search;
    int pieces = 0;
    request.stop_requested = [&] {
      if (before_work && last.total > 0 && last.done == last.total) before_work(pieces++);
      return false;
    };
    request.on_event = [&](const TuneEvent& event) {
      last = event;
      if (event.kind == TuneEvent::Kind::candidate) ++announced[std::string(event.config)];
      CHECK(event.done <= event.total);
    };
    return tune_bucket(request, cubins).record;
  }

  std::map<std::string, int> announced;  // how often, by config
  TuneEvent last;
};

std::string choices_of(const store::Record& record) {
  std::string all;
  for (const store::Choice& each : record.choices) all += each.sizes + " " + each.config + "; ";
  return all;
}

std::vector<store::TriedCandidate> rows_of(const store::Record& record, const std::string& config) {
  std::vector<store::TriedCandidate> rows;
  std::ranges::copy_if(record.candidates, std::back_inserter(rows),
                       [&](const store::TriedCandidate& each) { return each.config == config; });
  return rows;
}

}  // namespace

TEST_CASE("a config that is the fastest only inside a bucket serves the sizes there, and is announced once") {
  Stairs stairs;
  const store::Record record = stairs.tune();
  CHECK(choices_of(record) == parted);
  CHECK(stairs.announced == std::map<std::string, int>{{"tile=16", 1}, {"tile=20", 1}});
  CHECK(stairs.last.done == 2);
  CHECK(record.provenance.strategy == "racing, 2 of 2 candidates at 3 lengths");
}

TEST_CASE("a config that fails at an inner size is rejected, and serves no size") {
  for (const bool baseline_fails : {true, false}) {
    CAPTURE(baseline_fails);
    Stairs stairs;
    const std::string failing = baseline_fails ? "16" : "20";
    const store::Record record = stairs.tune({}, [&](int piece) {
      if (piece == 1) control("launch CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES stair_scale<float, " + failing);
    });
    CHECK(choices_of(record) == (baseline_fails ? "rows=33..64 tile=20; " : at_ends));
    const auto rows = rows_of(record, "tile=" + failing);
    REQUIRE(rows.size() == 1);
    CHECK(rows.front().verdict == store::Verdict::launch_failed);
    CHECK(rows.front().samples == 0);
    CHECK((record.baseline_ns == 0) == baseline_fails);
  }
}

TEST_CASE("no inner size is tried after the time limit") {
  Stairs stairs;
  SearchSettings search;
  search.time_limit = std::chrono::milliseconds(1);
  CHECK(choices_of(stairs.tune(search)) == at_ends);
}

TEST_CASE("a tune whose memory does not suffice for inner sizes ends without them") {
  Stairs stairs;
  const std::int64_t before = fake_cuda_tests::query("faults");
  const auto record = stairs.tune({}, [](int piece) {
    if (piece == 0) control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY");
  });
  CHECK(fake_cuda_tests::query("faults") == before + 1);
  CHECK(choices_of(record) == at_ends);
  const auto rows = rows_of(record, "tile=20");
  REQUIRE_FALSE(rows.empty());
  for (const store::TriedCandidate& each : rows) CHECK(each.verdict == store::Verdict::ok);
}

TEST_CASE("a config whose second verification fails is rejected, and the tune goes on") {
  Stairs stairs;
  const auto record = stairs.tune({}, [](int piece) {
    if (piece == 0) control("kernel wrong stair_scale<float, 20");
  });
  CHECK(choices_of(record) == at_ends);
  const auto rows = rows_of(record, "tile=20");
  REQUIRE(rows.size() == 1);
  CHECK(rows.front().verdict == store::Verdict::wrong_result);
  CHECK(stairs.announced["tile=20"] == 1);
}
