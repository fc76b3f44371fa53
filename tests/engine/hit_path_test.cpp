// What a launch of a hot bucket runs, counts and refuses.
#include "plan/hit_path.hpp"

#include "engine/miss_path.hpp"
#include "engine/scale_engine.hpp"
#include "plan/histogram.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

const Problem hot_bucket = sized(64, 128);

}  // namespace

TEST_CASE("a record's first launch counts as its layer's, later ones as hot" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=4")});
  CHECK(engine.launch(hot_bucket) == Origin::overlay);
  CHECK(engine.launch(sized(40, 100)) == Origin::hot);
  CHECK(engine.launch(hot_bucket) == Origin::hot);
  CHECK(engine.stats().overlay == 1);
  CHECK(engine.stats().hot == 2);
}

TEST_CASE("a launch runs the config of the interval that holds its size" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=1", "rows=33..48 cols=65..128"),
                          tiled("threads=256 vector=4", "rows=49..64 cols=65..128")});
  const std::int64_t small = engine.runs("scale_tiled<float, 64, 1"), large = engine.runs("scale_tiled<float, 256, 4");
  engine.launch(sized(48, 128));
  CHECK(engine.runs("scale_tiled<float, 64, 1") == small + 1);
  CHECK(engine.runs("scale_tiled<float, 256, 4") == large);
  engine.launch(sized(49, 128));
  CHECK(engine.runs("scale_tiled<float, 64, 1") == small + 1);
  CHECK(engine.runs("scale_tiled<float, 256, 4") == large + 1);
}

TEST_CASE("under a policy with fallbacks a size whose config is not loaded loads it at its first launch" *
          doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  engine.put(hot_bucket, {tiled("threads=64 vector=4", "rows=33..48 cols=65..128"),
                          tiled("threads=256 vector=4", "rows=49..64 cols=65..128")});
  const PlanState* const all = make_ready(engine.op, hot_bucket, engine.machine.stream);  // compiles
  CHECK(all->of.made().size() == 2);
  OpState later(engine.engine, engine.op.index);
  const auto launch_at = [&](std::int64_t rows) {
    return plan::launch(later, sized(rows, 128), engine.arguments(), engine.machine.stream);
  };
  CHECK(launch_at(64) == Origin::overlay);
  const PlanState* const edge = later.plans.hot.find(hot_bucket);
  REQUIRE(edge != nullptr);
  CHECK(edge->of.made().size() == 1);
  {
    const Capture capture(engine.machine.stream);  // in which the loaded one stands in
    CHECK(launch_at(48) == Origin::nearest);
  }
  CHECK(edge->of.made().size() == 1);
  CHECK(plan::try_launch(later, sized(48, 128), engine.arguments(), engine.machine.stream) == std::nullopt);
  const std::int64_t small = engine.runs("scale_tiled<float, 64, 4");
  CHECK(launch_at(48) == Origin::overlay);
  CHECK(engine.runs("scale_tiled<float, 64, 4") == small + 1);
  CHECK(launch_at(40) == Origin::hot);
  CHECK(plan::try_launch(later, sized(40, 128), engine.arguments(), engine.machine.stream) == Origin::hot);
  CHECK(engine.engine.cubins.compiled() == 2);
}

TEST_CASE("what is made ready is loaded for all sizes of its bucket, also after a launch of one" *
          doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  engine.put(hot_bucket, {tiled("threads=64 vector=4", "rows=33..48 cols=65..128"),
                          tiled("threads=256 vector=4", "rows=49..64 cols=65..128")});
  make_ready(engine.op, hot_bucket, engine.machine.stream);  // compiles
  OpState later(engine.engine, engine.op.index);
  plan::launch(later, hot_bucket, engine.arguments(), engine.machine.stream);
  make_ready(later, hot_bucket, engine.machine.stream);
  const std::int64_t small = engine.runs("scale_tiled<float, 64, 4");
  const Capture capture(engine.machine.stream);
  CHECK(plan::launch(later, sized(48, 128), engine.arguments(), engine.machine.stream) == Origin::overlay);
  CHECK(engine.runs("scale_tiled<float, 64, 4") == small);  // a capture runs nothing
}

TEST_CASE("an attempt that the plan refuses launches and counts nothing" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=4")});
  const PlanState& plan = *make_ready(engine.op, hot_bucket, engine.machine.stream);
  const std::int64_t before = engine.runs("scale_tiled");
  const auto run = [&](const Problem& problem, std::size_t misalignment) {
    return attempt(engine.op, plan, problem, engine.arguments(misalignment), engine.machine.stream).run;
  };
  CHECK(run(hot_bucket, sizeof(float)) == Run::refused);  // its vectors are of 16 bytes
  CHECK(run(sized(64, 127), 0) == Run::refused);
  CHECK(engine.runs("scale_tiled") == before);
  CHECK(engine.stats().launches() == 0);
  CHECK(run(hot_bucket, 0) == Run::launched);
  CHECK(engine.stats().overlay == 1);
}

TEST_CASE("a launch that the driver fails is not counted, and the next one counts as the first" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=4")});
  make_ready(engine.op, hot_bucket, engine.machine.stream);
  control("fail cuLaunchKernelEx CUDA_ERROR_INVALID_VALUE");
  CHECK(error_of([&] { engine.launch(hot_bucket); }).kind() == ErrorKind::driver_failed);
  CHECK(engine.stats().launches() == 0);
  CHECK(engine.launch(hot_bucket) == Origin::overlay);
}

TEST_CASE("a launch makes the workspace that its stream lacks, in a capture for the capture alone" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {plain()});
  const PlanState& plan = *make_ready(engine.op, hot_bucket, engine.machine.stream);
  const cuda::Stream other;
  const auto attempt_on = [&](CUstream stream) {
    return attempt(engine.op, plan, hot_bucket, engine.arguments(), stream).run;
  };
  {
    const Capture capture(other.handle());
    CHECK(attempt_on(other.handle()) == Run::launched);
  }
  CHECK_FALSE(engine.engine.workspaces->serves(other.handle(), plan.needs));
  CHECK(attempt_on(other.handle()) == Run::launched);
  CHECK(engine.engine.workspaces->serves(other.handle(), plan.needs));
}

TEST_CASE("a size out of range and a value under its minimum are refused by name" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=4")});
  engine.launch(hot_bucket);
  const Error size = error_of([&] { engine.launch(sized(5000, 128)); });
  CHECK(size.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(std::string(size.what()).find("rows") != std::string::npos, std::string(size.what()));
  Arguments given = engine.arguments();
  given.set(RuntimeId{1, RuntimeId::Kind::integer}, 100);  // a stride under the row's length
  const Error stride = error_of([&] { engine.launch(hot_bucket, given); });
  CHECK(stride.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(std::string(stride.what()).find("stride") != std::string::npos, std::string(stride.what()));
  CHECK(engine.stats().launches() == 1);
}

TEST_CASE("a tensor with strides sets what their names set, and another number of strides is refused by name" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(hot_bucket, {tiled("threads=64 vector=4")});
  const TensorId x = engine.tensor("x");
  Arguments given = engine.arguments();
  const void* const address = given.tensors[x.index];
  const auto launch = [&] { return engine.launch(hot_bucket, given); };
  const auto is_refused = [&](const char* why) {
    const Error error = error_of(launch);
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(std::string(error.what()).find(why) != std::string::npos, std::string(error.what()));
  };
  given.set(x, {address, {136}});
  CHECK(given.runtime[1] == 136);
  CHECK(given.runtime_set == 3);
  launch();
  given.set(x, {address, {100}});
  is_refused("run-time value 'stride' is 100, under its minimum (cols)");
  const Error two = error_of([&] { given.set(x, {address, {136, 1}}); });
  CHECK(two.kind() == ErrorKind::bad_input);
  CHECK(two.what() == std::string("tensor 0 of the op is given 2 strides, and op.toml names 1 of it"));
  const std::vector<std::int64_t> strides = {128};
  given.set(x, StridedAddress(address, strides));
  launch();
  given.set(engine.tensor("y"), {given.tensors[2], {}});  // has none
  launch();
  CHECK(engine.stats().launches() == 3);
}

TEST_CASE("one launch in sixteen is a sample of the histogram, and of a fallback's worth" * doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);  // without a record the default serves
  constexpr std::int64_t launches = 100;
  std::int64_t samples = 0;
  for (std::int64_t i = 0; i < launches; ++i) {
    CHECK(engine.launch(hot_bucket) == Origin::default_);
    samples += Histogram::is_sample(i) ? 1 : 0;
  }
  REQUIRE(samples > 0);
  const PlanState& plan = *engine.op.plans.hot.find(hot_bucket);
  CHECK(plan.samples.load() == samples);
  const auto rows = engine.engine.histogram->histogram.take();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].problem == hot_bucket);
  CHECK(rows[0].launches == samples * Histogram::stride);
}
