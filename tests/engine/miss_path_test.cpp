// A bucket that is not hot: what is looked up, loaded, refused and published.
#include "engine/miss_path.hpp"

#include "engine/scale_engine.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::engine::testing;

namespace {

const Problem missed_bucket = sized(64, 128), other_bucket = sized(256, 128);

std::int64_t loads() { return query("calls cuModuleLoadDataEx"); }

}  // namespace

TEST_CASE("a bucket is made ready once, and what it was made ready for finds it" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(missed_bucket, {tiled("threads=64 vector=4")});
  CHECK(engine.op.plans.hot.find(missed_bucket) == nullptr);
  const PlanState* plan = make_hot(engine.op, sized(40, 100), engine.machine.stream);
  REQUIRE(plan != nullptr);
  CHECK(plan->bucket == missed_bucket);
  CHECK(plan->config == "threads=64 vector=4");
  CHECK(engine.op.plans.hot.find(missed_bucket) == plan);
  const std::int64_t before = loads();
  CHECK(make_hot(engine.op, missed_bucket, engine.machine.stream) == plan);
  CHECK(loads() == before);
}

TEST_CASE("on a capturing stream nothing is made ready, and the capture goes on" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(missed_bucket, {tiled("threads=64 vector=4")});
  const std::int64_t before = loads(), allocations = query("allocations");
  {
    const Capture capture(engine.machine.stream);
    const Error error = error_of([&] { make_hot(engine.op, missed_bucket, engine.machine.stream); });
    CHECK(error.kind() == ErrorKind::capture);
    CHECK_MESSAGE(std::string(error.what()).find("rows=64 cols=128") != std::string::npos, std::string(error.what()));
  }
  CHECK(engine.op.plans.hot.find(missed_bucket) == nullptr);
  CHECK(loads() == before);
  CHECK(query("allocations") == allocations);
}

TEST_CASE("under the policy error a miss names its key, and why a record there cannot serve" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(other_bucket, {tiled("threads=7 vector=4")});  // not declared
  const Error absent = error_of([&] { make_hot(engine.op, missed_bucket, engine.machine.stream); });
  CHECK(absent.kind() == ErrorKind::not_tuned);
  CHECK(std::string(absent.what()).find(engine.op.resolve(missed_bucket, false).key) != std::string::npos);
  const Error unusable = error_of([&] { make_hot(engine.op, other_bucket, engine.machine.stream); });
  CHECK(unusable.kind() == ErrorKind::not_tuned);
  CHECK_MESSAGE(std::string(unusable.what()).find("that can serve: ") != std::string::npos,
                std::string(unusable.what()));
  CHECK(engine.stats().misses.absent == 1);
  CHECK(engine.stats().misses.unusable == 1);
}

TEST_CASE("what serves a size at which the record is not legal is made ready with it" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(missed_bucket, {tiled("threads=64 vector=4")});
  const Problem odd = sized(64, 127);  // which vectors of 4 do not divide
  make_ready(engine.op, odd, engine.machine.stream);
  const Capture capture(engine.machine.stream);
  CHECK(engine.launch(odd) == Origin::default_);
  CHECK(engine.launch(missed_bucket) == Origin::overlay);
}

TEST_CASE("a plan with a workspace is made ready for the stream, and serves captures on any" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(missed_bucket, {plain()});
  const cuda::Stream other;
  const PlanState* plan = make_ready(engine.op, missed_bucket, engine.machine.stream);
  CHECK(engine.engine.workspaces->serves(engine.machine.stream, plan->needs));
  CHECK_FALSE(engine.engine.workspaces->serves(other.handle(), plan->needs));
  const Capture capture(other.handle());
  CHECK(make_ready(engine.op, missed_bucket, other.handle()) == plan);
  CHECK(launch(engine.op, missed_bucket, engine.arguments(), other.handle()) == Origin::overlay);
}

TEST_CASE("an adopted record takes its fallback's place, in captures too" * doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  CHECK(engine.launch(missed_bucket) == Origin::default_);
  const PlanState* fallback = engine.op.plans.hot.find(missed_bucket);
  engine.put(missed_bucket, {plain()});
  CHECK(engine.launch(missed_bucket) == Origin::default_);  // until it is adopted
  adopt(engine.op, engine.op.resolve(missed_bucket, false));
  const PlanState* adopted = engine.op.plans.hot.find(missed_bucket);
  REQUIRE(adopted != fallback);
  const Capture capture(engine.machine.stream);
  CHECK(engine.launch(missed_bucket) == Origin::overlay);
}

TEST_CASE("an op is loaded with the records whose machine code is stored, and nothing is compiled for it" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(missed_bucket, {tiled("threads=64 vector=4")});
  engine.put(other_bucket, {tiled("threads=128 vector=4")});
  make_hot(engine.op, missed_bucket, engine.machine.stream);
  const std::int64_t compiled = engine.engine.cubins.compiled();
  OpState later(engine.engine, engine.op.index);
  load_all(later);
  REQUIRE(later.plans.hot.find(missed_bucket) != nullptr);
  CHECK(later.plans.hot.find(missed_bucket)->config == "threads=64 vector=4");
  CHECK(later.plans.hot.find(other_bucket) == nullptr);
  CHECK(engine.engine.cubins.compiled() == compiled);
}
