// Machine code that files lack, or that the driver refuses, where something else serves meanwhile.
#include "engine/ahead_engine.hpp"
#include "engine/miss_path.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

constexpr const char* refuse_first = "module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 64, 4";
constexpr const char* refuse_last = "module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 256, 1";

/// The machine code of these configs, as files have it.
std::vector<store::CubinRow> code_of(const std::vector<Chosen>& configs) {
  ScaleEngine engine;
  std::int64_t rows = 64;
  for (const Chosen& each : configs) {
    engine.put(sized(rows, 128), {each});
    make_ready(engine.op, sized(rows, 128), engine.machine.stream);
    rows *= 2;
  }
  return engine.engine.layers.overlay().cubins();
}

/// `loaded` for 64 rows; for 256 rows `loaded` to 192, `first` to 224 and `last` to 256. All machine code is there.
void put_all_code(ScaleEngine& engine) {
  engine.put(sized(64, 128), {tiled(loaded)});
  engine.put(sized(256, 128), {tiled(loaded, "rows=129..192 cols=65..128"), tiled(first, "rows=193..224 cols=65..128"),
                               tiled(last, "rows=225..256 cols=65..128")});
  engine.engine.layers.put_all({}, code_of({tiled(loaded), tiled(first), tiled(last)}));
}

}  // namespace

TEST_CASE("a launch does not wait for the compile of what the driver refuses where another config serves" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_all_code(engine);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  control(refuse_last);
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  CHECK(is_hit(engine.launch(sized(200, 128))));
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  CHECK(engine.stats().misses.refused_cubin == 1);
  CHECK(engine.stats().misses.no_cubin == 0);
  control("heal");
  told.free(last);
  REQUIRE(wait(engine));
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  CHECK(told.waited_for.empty());
  CHECK(told.ahead.size() == 1);
  CHECK(engine.stats().misses.refused_cubin == 1);
}

TEST_CASE("what the driver refuses is noted once for all buckets that need it, and compiled once" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_all_code(engine);
  engine.put(sized(128, 128), {tiled(last)});
  engine.launch(sized(64, 128));
  control(refuse_last);
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  const std::int64_t loads = query("calls cuModuleLoadDataEx");
  CHECK(engine.launch(sized(128, 128)) == Origin::nearest);
  CHECK(query("calls cuModuleLoadDataEx") == loads);
  CHECK(engine.stats().misses.refused_cubin == 1);
  CHECK(engine.stats().misses.no_cubin == 0);
  control("heal");
  told.free(last);
  REQUIRE(wait(engine));
  for (const std::int64_t rows : {128, 256}) CHECK(is_hit(engine.launch(sized(rows, 128))));
  CHECK(told.waited_for.empty());
  CHECK(told.ahead.size() == 1);
}

TEST_CASE("what the driver refuses of a bucket that is served already is compiled beside launches" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({first});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_all_code(engine);
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  control(refuse_first);
  const std::int64_t before = engine.runs("scale_tiled<float, 64, 4");
  CHECK(is_hit(engine.launch(sized(200, 128))));
  CHECK(is_hit(engine.launch(sized(210, 128))));
  CHECK(engine.runs("scale_tiled<float, 64, 4") == before);
  CHECK(engine.stats().misses.refused_cubin == 1);
  control("heal");
  told.free(first);
  REQUIRE(wait(engine));
  CHECK(is_hit(engine.launch(sized(200, 128))));
  CHECK(engine.runs("scale_tiled<float, 64, 4") == before + 1);
  CHECK(told.waited_for.empty());
}

TEST_CASE("what the driver refuses again after it was compiled leaves its sizes to the config that serves them" *
          doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_all_code(engine);
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  control(refuse_first);
  CHECK(is_hit(engine.launch(sized(200, 128))));
  REQUIRE(wait(engine));
  CHECK(is_hit(engine.launch(sized(200, 128))));
  CHECK(engine.stats().misses.refused_cubin == 1);
  CHECK(told.ahead.size() == 1);
  CHECK(told.waited_for.empty());
}

TEST_CASE("a config whose machine code is there serves its bucket where nothing else stands in" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  put_all_code(engine);
  SUBCASE("of a file that lacks the others'") {
    ScaleEngine lacking(ahead_options(MissPolicy::nearest, told, 2));
    lacking.put(sized(256, 128),
                {tiled(loaded, "rows=129..192 cols=65..128"), tiled(last, "rows=193..256 cols=65..128")});
    lacking.engine.layers.put_all({}, code_of({tiled(loaded)}));
    CHECK(lacking.launch(sized(256, 128)) == Origin::nearest);
    CHECK(is_hit(lacking.launch(sized(150, 128))));
    CHECK(told.waited_for.empty());
    told.free(last);
    REQUIRE(wait(lacking));
    CHECK(is_hit(lacking.launch(sized(256, 128))));
  }
  SUBCASE("of a file whose others the driver refuses") {
    control(refuse_last);
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    CHECK(told.waited_for.empty());
    control("heal");
    told.free(last);
    REQUIRE(wait(engine));
    CHECK(is_hit(engine.launch(sized(256, 128))));
  }
}

TEST_CASE("a call that a config refuses does not wait for the next one where the machine code of a later one is there" *
          doctest::skip(no_plans())) {
  const std::string of_default = "threads=64 vector=1";
  const std::string its_kernel = "scale_tiled<float, 64, 1", later_kernel = "scale_plain<float";
  Told told;
  told.hold({of_default});
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::error}) {
    ScaleEngine engine(ahead_options(policy, told));
    engine.put(sized(64, 128), {tiled(first)});
    engine.engine.layers.put_all({}, code_of({tiled(first), plain()}));
    CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
    const Arguments misaligned = engine.arguments(sizeof(float));
    const std::int64_t before = engine.runs(its_kernel), before_later = engine.runs(later_kernel);
    if (policy == MissPolicy::error) {
      CHECK(engine.launch(sized(64, 128), misaligned) == Origin::default_);
      CHECK(engine.runs(its_kernel) == before + 1);
      CHECK(told.waited_for.size() == 1);
      continue;
    }
    for (const int launches : {1, 2}) {
      CHECK(engine.launch(sized(64, 128), misaligned) == Origin::default_);
      CHECK(engine.runs(later_kernel) == before_later + launches);
    }
    CHECK(engine.runs(its_kernel) == before);
    told.free(of_default);
    REQUIRE(wait(engine));
    CHECK(engine.launch(sized(64, 128), misaligned) == Origin::default_);
    CHECK(engine.runs(its_kernel) == before + 1);
    CHECK(told.waited_for.empty());
  }
}

TEST_CASE("a call that waits for a config's compile shares the one that runs beside it" * doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  engine.put(sized(64, 128), {tiled(first)});
  engine.engine.layers.put_all({}, code_of({tiled(first)}));
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(64, 128), engine.arguments(sizeof(float))) == Origin::default_);
  REQUIRE(wait(engine));
  const auto of_it = [](const std::string& label) { return label.find("threads=64 vector=1") != std::string::npos; };
  CHECK(std::ranges::count_if(told.ahead, of_it) + std::ranges::count_if(told.waited_for, of_it) == 1);
}

TEST_CASE("under a policy without fallbacks a launch waits for the compile of what the driver refuses" *
          doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::error, told));
  put_all_code(engine);
  control("fail cuModuleLoadDataEx CUDA_ERROR_INVALID_IMAGE");
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  CHECK(told.waited_for.size() == 1);
  CHECK(engine.stats().misses.refused_cubin == 1);
}

TEST_CASE("loading all that files have compiles nothing, also where the driver refuses some" *
          doctest::skip(no_plans())) {
  ScaleEngine engine;
  put_all_code(engine);
  control(refuse_last);
  load_all(engine.op);
  CHECK(engine.engine.cubins.compiled() == 0);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  control("heal");
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  CHECK(engine.engine.cubins.compiled() == 1);
  CHECK(engine.stats().misses.refused_cubin == 1);
}

TEST_CASE("a stand-in that memory did not suffice to replace is replaced later" * doctest::skip(no_plans())) {
  Told told;
  told.hold({last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  engine.put(sized(64, 128), {tiled(loaded)});
  engine.put(sized(256, 128), {tiled(last)});
  engine.launch(sized(64, 128));
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  control("fail cuModuleLoadDataEx CUDA_ERROR_OUT_OF_MEMORY sticky");
  const std::int64_t loads = query("calls cuModuleLoadDataEx");
  told.free(last);
  REQUIRE(comes([&] { return query("calls cuModuleLoadDataEx") > loads + 1; }));
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  control("heal");
  REQUIRE(wait(engine));
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  CHECK(engine.engine.warnings().empty());
}
