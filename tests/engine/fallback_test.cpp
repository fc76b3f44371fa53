// What serves where a plan does not: the bucket's next answers, and in captures what other buckets have loaded.
#include "engine/miss_path.hpp"
#include "engine/scale_engine.hpp"
#include "plan/capture_launch.hpp"
#include "plan/refused_launch.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

const Problem served_bucket = sized(64, 128);

bool names(const Error& error, const std::string& part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an address that a config cannot take goes to another config of the record, which is a hit" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=64 vector=4", "rows=33..48 cols=65..128"),
                             tiled("threads=256 vector=1", "rows=49..64 cols=65..128")});
  const std::int64_t before = engine.runs("scale_tiled<float, 256, 1");
  CHECK(engine.launch(sized(40, 128), engine.arguments(sizeof(float))) == Origin::overlay);
  CHECK(engine.runs("scale_tiled<float, 256, 1") == before + 1);
  CHECK(engine.stats().constraint_fallbacks == 0);
}

TEST_CASE("an address that no config of the record takes goes to a default, and is counted as such" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=256 vector=4")});
  CHECK(engine.launch(served_bucket) == Origin::overlay);
  CHECK(engine.launch(served_bucket, engine.arguments(sizeof(float))) == Origin::default_);
  CHECK(engine.stats().constraint_fallbacks == 1);
  CHECK(engine.launch(served_bucket) == Origin::hot);
}

TEST_CASE("a call that nothing can serve is refused with each answer's reason" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=256 vector=4")});
  const Error error = error_of([&] { engine.launch(served_bucket, engine.arguments(2)); });
  CHECK(error.kind() == ErrorKind::bad_input);
  for (const char* part : {"tiled threads=256 vector=4: ", "default of tiled: ", "default of plain: ", "'x'"})
    CHECK_MESSAGE(names(error, part), std::string(error.what()));
  CHECK(engine.stats().launches() == 0);
}

TEST_CASE("a missing tensor is named, not the configs that cannot do without it" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=256 vector=4")});
  Arguments given = engine.arguments();
  given.set(engine.tensor("y"), nullptr);
  const Error error = error_of([&] { engine.launch(served_bucket, given); });
  CHECK(error.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(names(error, "tensor 'y' is missing"), std::string(error.what()));
  CHECK_MESSAGE(!names(error, "vector=4"), std::string(error.what()));
}

TEST_CASE("a length on the device is refused for an axis that may not have one, and at no int32's address" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=256 vector=4")});
  const CUdeviceptr length = engine.machine.upload(std::vector<std::int32_t>{50, 50});
  const auto launch_with = [&](AxisId axis, CUdeviceptr address) {
    Arguments given = engine.arguments();
    given.set(axis, reinterpret_cast<const std::int32_t*>(address));
    return engine.launch(served_bucket, given);
  };
  CHECK(launch_with(AxisId{0}, length) == Origin::overlay);
  for (const CUdeviceptr address : {CUdeviceptr{0}, length + 1}) {
    const Error error = error_of([&] { launch_with(AxisId{0}, address); });
    CHECK(error.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(names(error, "axis 'rows'"), std::string(error.what()));
  }
  const Error error = error_of([&] { launch_with(AxisId{1}, length); });
  CHECK_MESSAGE(names(error, "axis 'cols' may not have its length on the device"), std::string(error.what()));
  CHECK(engine.stats().launches() == 1);
}

TEST_CASE("in a capture the nearest bucket's plan serves what has none, and counts as nearest" *
          doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  const Problem far = sized(4, 128), near = sized(512, 128), missed = sized(200, 128);
  engine.put(far, {tiled("threads=64 vector=4")});
  engine.put(near, {tiled("threads=128 vector=4")});
  for (const Problem& each : {far, near}) make_ready(engine.op, each, engine.machine.stream);
  const auto loaded = loaded_fallbacks(engine.op, missed);
  REQUIRE(loaded.size() >= 2);
  CHECK(loaded.front()->bucket == near);
  CHECK(loaded.back()->bucket == far);
  CHECK(origin_of(engine.op, *loaded.front(), missed) == Origin::nearest);
  CHECK(origin_of(engine.op, *loaded.front(), sized(300, 128)) == Origin::overlay);  // of its own bucket
  {
    const Capture capture(engine.machine.stream);
    CHECK(engine.launch(missed) == Origin::nearest);
  }
  CHECK(engine.stats().nearest == 1);
  CHECK(engine.op.plans.hot.find(sized(256, 128)) == nullptr);
}

TEST_CASE("plans of another type, or with too small a workspace, serve no capture" * doctest::skip(no_plans())) {
  ScaleEngine engine(MissPolicy::nearest);
  engine.put(served_bucket, {plain()});
  make_ready(engine.op, served_bucket, engine.machine.stream);
  const auto found = [&](const Problem& problem) { return loaded_fallbacks(engine.op, problem).size(); };
  CHECK(found(sized(30, 100)) == 1);
  CHECK(found(sized(65, 100)) == 0);  // whose workspace would be larger
  Problem halves = sized(30, 100);
  halves.selections[0] = 1;  // bf16
  CHECK(found(halves) == 0);
}

TEST_CASE("a capture that nothing can serve is told what is missing and what to call, and goes on" *
          doctest::skip(no_plans())) {
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::error}) {
    ScaleEngine engine(policy);
    engine.put(served_bucket, {tiled("threads=64 vector=4")});
    if (policy == MissPolicy::error) make_ready(engine.op, served_bucket, engine.machine.stream);
    const Capture capture(engine.machine.stream);
    const Error error = error_of([&] { engine.launch(sized(200, 128)); });
    CHECK(error.kind() == ErrorKind::capture);
    for (const char* part : {"rows=200 cols=128", "no plan of its bucket is ready", "Engine::prepare"})
      CHECK_MESSAGE(names(error, part), std::string(error.what()));
    CHECK(engine.stats().launches() == 0);
  }
}

TEST_CASE("a stream is asked whether it captures" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  const cuda::Stream other;
  CHECK_FALSE(captures(engine.op, engine.machine.stream));
  const Capture capture(engine.machine.stream);
  CHECK(captures(engine.op, engine.machine.stream));
  CHECK_FALSE(captures(engine.op, other.handle()));
}

TEST_CASE("each failure of a launch is an error of its kind that names what was launched" * doctest::skip(no_plans())) {
  ScaleEngine engine;
  engine.put(served_bucket, {tiled("threads=64 vector=4")});
  const PlanState& plan = *make_ready(engine.op, served_bucket, engine.machine.stream);
  const std::vector<std::pair<CUresult, ErrorKind>> kinds = {
      {CUDA_ERROR_OUT_OF_MEMORY, ErrorKind::out_of_memory},
      {CUDA_ERROR_INVALID_VALUE, ErrorKind::driver_failed},
      {CUDA_ERROR_INVALID_CONTEXT, ErrorKind::driver_failed},
      {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, ErrorKind::capture},
      {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, ErrorKind::capture},
      {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, ErrorKind::capture}};
  for (const auto& [result, kind] : kinds) {
    const CUresult failed = result;
    const Error error = error_of([&] { refuse(engine.op, plan, failed, engine.machine.stream); });
    CHECK(error.kind() == kind);
    CHECK_MESSAGE(names(error, "launching scale tiled threads=64 vector=4: CUDA_ERROR_"), std::string(error.what()));
  }
  const Error gone = error_of(
      [&] { refuse(engine.op, plan, CUDA_ERROR_INVALID_HANDLE, reinterpret_cast<CUstream>(std::uintptr_t{4096})); });
  CHECK(gone.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(names(gone, "does not know the stream"), std::string(gone.what()));
}
