// What a capture would find: hits, and gaps with what would serve them and why.
#include "engine/coverage.hpp"

#include <initializer_list>

#include "engine/miss_path.hpp"
#include "engine/scale_engine.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::engine::testing;

namespace {

const Problem covered_bucket = sized(64, 128);

Coverage cover_all(ScaleEngine& engine, std::initializer_list<Problem> problems) {
  return cover(engine.op, {problems.begin(), problems.size()}, engine.machine.stream);
}

}  // namespace

TEST_CASE("a problem is covered once its record is loaded; before, the gap says whether there is one" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(covered_bucket, {tiled("threads=64 vector=4")});
  const Coverage before = cover_all(engine, {covered_bucket, sized(500, 128)});
  CHECK(before.total == 2);
  CHECK(before.hits == 0);
  REQUIRE(before.gaps.size() == 2);
  CHECK(before.gaps[0].why ==
        "its record of the overlay, tiled threads=64 vector=4, is not loaded; a capture would be refused it");
  CHECK(before.gaps[1].problem == "rows=500 cols=128 dtype=f32");
  CHECK(before.gaps[1].bucket == "rows=512 cols=128 dtype=f32");
  CHECK(before.gaps[1].why == "its bucket has no record; a capture would be refused it");
  CHECK_FALSE(before.capturable());
  make_ready(engine.op, covered_bucket, engine.machine.stream);
  const Coverage after = cover_all(engine, {covered_bucket, sized(40, 100)});
  CHECK(after.hits == 2);
  CHECK(after.gaps.empty());
}

TEST_CASE("a size at which the record is not legal is a gap, until what serves it is loaded" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(covered_bucket, {tiled("threads=64 vector=4")});
  make_ready(engine.op, covered_bucket, engine.machine.stream);
  const Problem odd = sized(64, 127);
  const Coverage before = cover_all(engine, {odd});
  REQUIRE(before.gaps.size() == 1);
  CHECK_FALSE(before.gaps[0].serves);
  CHECK(before.gaps[0].why.starts_with("tiled threads=64 vector=4 breaks the constraint 'cols % vector == 0'"));
  CHECK(before.gaps[0].why.find("the default of tiled serves, which is not loaded") != std::string::npos);
  make_ready(engine.op, odd, engine.machine.stream);
  const Coverage after = cover_all(engine, {odd});
  REQUIRE(after.gaps.size() == 1);
  CHECK(after.gaps[0].serves == Origin::default_);
  CHECK(after.capturable());
}

TEST_CASE("a plan without a workspace for the stream is a gap that says so" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(covered_bucket, {plain()});
  make_ready(engine.op, covered_bucket, engine.machine.stream);
  const cuda::Stream other;
  CHECK(cover_all(engine, {covered_bucket}).hits == 1);
  const Coverage elsewhere = cover(engine.op, {&covered_bucket, 1}, other.handle());
  REQUIRE(elsewhere.gaps.size() == 1);
  CHECK(elsewhere.gaps[0].workspace_missing);
  CHECK(elsewhere.gaps[0].serves == Origin::overlay);
  CHECK(elsewhere.gaps[0].why.starts_with("plain  has no workspace for this stream yet"));
  Coverage everywhere;
  cover_ready(engine.op, everywhere);
  CHECK(everywhere.hits == 1);
}

TEST_CASE("of the buckets that are ready, those that a fallback serves are gaps" * doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  make_ready(engine.op, sized(512, 128), engine.machine.stream);
  engine.put(covered_bucket, {tiled("threads=64 vector=4")});
  make_ready(engine.op, covered_bucket, engine.machine.stream);
  Coverage ready;
  cover_ready(engine.op, ready);
  CHECK(ready.total == 2);
  CHECK(ready.hits == 1);
  REQUIRE(ready.gaps.size() == 1);
  CHECK(ready.gaps[0].bucket == "rows=512 cols=128 dtype=f32");
  CHECK(ready.gaps[0].serves == Origin::default_);
}

TEST_CASE("what is missing is said to be served by the nearest loaded plan where the policy lets it" *
          doctest::skip(no_plans())) {
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::error}) {
    ScaleEngine engine(policy);
    engine.put(covered_bucket, {tiled("threads=64 vector=4")});
    make_ready(engine.op, covered_bucket, engine.machine.stream);
    const Coverage coverage = cover_all(engine, {sized(200, 128)});
    REQUIRE(coverage.gaps.size() == 1);
    if (policy == MissPolicy::nearest)
      CHECK(coverage.gaps[0].serves == Origin::nearest);
    else
      CHECK_FALSE(coverage.gaps[0].serves);
  }
}

TEST_CASE("what the op does not have is a gap with the reason, and the others are looked at" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(covered_bucket, {tiled("threads=64 vector=4")});
  const std::vector<Problem> problems = {sized(5000, 128), covered_bucket};
  const Coverage coverage = prepare_all(engine.op, problems, engine.machine.stream);
  CHECK(coverage.total == 2);
  CHECK(coverage.hits == 1);
  REQUIRE(coverage.gaps.size() == 1);
  CHECK(coverage.gaps[0].problem.empty());
  CHECK_MESSAGE(coverage.gaps[0].why.find("rows") != std::string::npos, coverage.gaps[0].why);
}

TEST_CASE("a bucket that cannot be made ready is tried once, and told for each of its problems" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  const std::vector<Problem> problems = {sized(50, 128), sized(60, 128), sized(64, 128)};
  const Coverage coverage = prepare_all(engine.op, problems, engine.machine.stream);
  REQUIRE(coverage.gaps.size() == 3);
  for (const Gap& each : coverage.gaps) CHECK_MESSAGE(each.why.starts_with("no record for "), each.why);
  CHECK(engine.stats().misses.absent == 1);
}

TEST_CASE("nothing is prepared for a stream that captures, and the capture goes on" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(covered_bucket, {tiled("threads=64 vector=4")});
  const Capture capture(engine.machine.stream);
  const auto prepare_it = [&] { prepare_all(engine.op, {&covered_bucket, 1}, engine.machine.stream); };
  CHECK(error_of(prepare_it).kind() == ErrorKind::capture);
  CHECK(engine.op.plans.hot.find(covered_bucket) == nullptr);
}
