// Machine code that is compiled before a launch asks for it, and what serves meanwhile.
#include <sys/wait.h>

#include <thread>
#include <vector>

#include "engine/ahead_engine.hpp"
#include "engine/background.hpp"
#include "engine/coverage.hpp"
#include "engine/miss_path.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

bool names_config(const std::string& label, const std::string& config) {
  return label.find(config) != std::string::npos;
}

}  // namespace

TEST_CASE("beside a bucket whose machine code is missing its neighbours are compiled, the nearest first" *
          doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::error, told));
  put_records(engine);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  REQUIRE(wait(engine));
  REQUIRE(told.waited_for.size() == 1);
  CHECK_MESSAGE(names_config(told.waited_for[0], "threads=128 vector=1"), told.waited_for[0]);
  REQUIRE(told.ahead.size() == 4);  // the neighbours that have a record
  CHECK(names_config(told.ahead[0], "threads=128 vector=4"));
  CHECK(names_config(told.ahead[1], "threads=64 vector=4"));
  CHECK(names_config(told.ahead[2], "threads=256 vector=1"));
  CHECK(names_config(told.ahead[3], "threads=64 vector=1"));
  CHECK(engine.engine.pool.compiled_spare() == 4);

  for (const std::int64_t rows : {16, 32, 128, 256}) CHECK(engine.launch(sized(rows, 128)) == Origin::overlay);
  CHECK(told.waited_for.size() == 1);
  REQUIRE(wait(engine));  // the launch of 256 rows makes 2048 a neighbour
  CHECK(told.ahead.size() == 5);
  CHECK(engine.launch(sized(2048, 128)) == Origin::overlay);
  CHECK(told.waited_for.size() == 1);
}

TEST_CASE("what was compiled ahead is in the overlay, for the next process" * doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::error, told));
  put_records(engine);
  engine.launch(sized(64, 128));
  REQUIRE(wait(engine));
  CHECK(engine.engine.layers.overlay().stats().cubins == 5);
}

TEST_CASE("nothing is compiled ahead where that is off, where nothing may compile, and without a worker process" *
          doctest::skip(no_plans())) {
  Told told;
  Options never = ahead_options(MissPolicy::error, told);
  never.compile = Compile::never;
  Options in_process = ahead_options(MissPolicy::error, told);
  in_process.isolation = Isolation::in_process;
  for (const Options& each : {ahead_options(MissPolicy::error, told, 0), never, in_process}) {
    ScaleEngine engine(each);
    put_records(engine);
    CHECK(engine.engine.ahead == nullptr);
    if (each.compile == Compile::when_needed) CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  }
  CHECK(told.waited_for.size() == 2);
  CHECK(told.ahead.empty());
}

TEST_CASE("an engine whose files have all machine code begins no thread" * doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::error, told));
  put_records(engine);
  engine.launch(sized(64, 128));
  REQUIRE(wait(engine));
  ScaleEngine again(ahead_options(MissPolicy::error, told));
  put_records(again);
  for (const store::CubinRow& each : engine.engine.layers.overlay().cubins())
    again.engine.layers.put_all({}, {&each, 1});
  CHECK(again.launch(sized(64, 128)) == Origin::overlay);
  CHECK(again.launch(sized(128, 128)) == Origin::overlay);
  CHECK_FALSE(again.engine.ahead->is_running());
}

TEST_CASE("a capture begins no compile ahead" * doctest::skip(no_plans())) {
  Told told;
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_records(engine);
  {
    const Capture capture(engine.machine.stream);
    CHECK(error_of([&] { engine.launch(sized(64, 128)); }).kind() == ErrorKind::capture);
  }
  CHECK_FALSE(engine.engine.ahead->is_running());
}

TEST_CASE("a launch overtakes what is compiled ahead" * doctest::skip(no_plans())) {
  Told told;
  told.hold();
  ScaleEngine engine(ahead_options(MissPolicy::error, told));
  put_records(engine);
  CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);  // the one compile ahead at a time is held
  CHECK(engine.launch(sized(2048, 128)) == Origin::overlay);
  CHECK(told.waited_for.size() == 3);
  told.free();
  REQUIRE(wait(engine));
  CHECK(told.ahead.size() == 3);
}

TEST_CASE("an engine that ends in mid-compile stops what is compiled ahead" * doctest::skip(no_plans())) {
  Told told;
  {
    ScaleEngine engine(ahead_options(MissPolicy::error, told, 2));
    put_records(engine);
    engine.launch(sized(64, 128));
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no process of it is left
}

TEST_CASE("a near config whose machine code is loaded serves at once, and the bucket's own takes its place" *
          doctest::skip(no_plans())) {
  for (const MissPolicy policy : {MissPolicy::nearest, MissPolicy::background}) {
    Told told;
    told.hold();
    ScaleEngine engine(ahead_options(policy, told));
    put_records(engine);
    CHECK(engine.launch(sized(64, 128)) == Origin::overlay);
    const std::int64_t before = engine.runs("scale_tiled<float, 128, 1");
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    CHECK(engine.runs("scale_tiled<float, 128, 1") == before + 2);
    CHECK(engine.stats().misses.no_cubin == 2);
    told.free();
    REQUIRE(wait(engine));
    if (engine.engine.background)
      REQUIRE(engine.engine.background->wait_until(std::chrono::steady_clock::now() + patience));
    CHECK(told.swaps.size() >= 1);
    CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
    CHECK(engine.launch(sized(256, 128)) == Origin::hot);
    CHECK(told.waited_for.size() == 1);
    CHECK(engine.stats().tunes == 0);
  }
}

TEST_CASE("of a bucket that a stand-in serves, sizes whose own machine code is there are served by it" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  begin_in_parts(engine);
  CHECK(engine.launch(sized(150, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(200, 128)) == Origin::nearest);
  CHECK(engine.stats().misses.no_cubin == 2);
  CHECK(told.waited_for.size() == 1);

  told.free(first);
  REQUIRE(comes([&] { return is_hit(engine.launch(sized(200, 128))); }));
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  CHECK(engine.launch(sized(150, 128)) == Origin::hot);

  told.free(last);
  REQUIRE(wait(engine));
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
  CHECK(engine.launch(sized(200, 128)) == Origin::hot);
  CHECK(engine.launch(sized(150, 128)) == Origin::hot);
  CHECK(told.waited_for.size() == 1);
  CHECK(engine.stats().misses.no_cubin == 2);
  CHECK(engine.stats().overlay == 4);  // of each config the first launch
}

TEST_CASE("coverage and captures take each size of such a bucket by what serves it" * doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  begin_in_parts(engine);
  const Coverage covered = cover(engine.op, std::vector{sized(150, 128), sized(256, 128)}, engine.machine.stream);
  CHECK(covered.hits == 1);
  REQUIRE(covered.gaps.size() == 1);
  CHECK(covered.gaps[0].why == "its machine code is being compiled; tiled threads=128 vector=1 stands in");
  CHECK(covered.gaps[0].serves == Origin::nearest);
  {
    const Capture capture(engine.machine.stream);
    CHECK(is_hit(engine.launch(sized(150, 128))));
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  }
  told.free(first);
  told.free(last);
  REQUIRE(wait(engine));
  CHECK(cover(engine.op, std::vector{sized(150, 128), sized(256, 128)}, engine.machine.stream).hits == 2);
}

TEST_CASE("a plan that waits for its bucket's machine code gets no stand-in where a part is served meanwhile" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({first});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  begin_in_parts(engine);
  REQUIRE(comes([&] { return told.held == 1; }));
  const PlanState* ready = nullptr;
  {
    // It compiles `last` itself, behind which the one compile ahead at a time holds `first`.
    const std::jthread waits([&] { ready = make_ready(engine.op, sized(256, 128), engine.machine.stream); });
    CHECK(comes([&] { return is_hit(engine.launch(sized(256, 128))); }));
    CHECK(engine.launch(sized(200, 128)) == Origin::nearest);
    told.free(first);
  }
  REQUIRE(ready != nullptr);
  CHECK_FALSE(ready->of.stand_in);
  CHECK(ready->config == last);
  CHECK(ready->made_at(sized(200, 128)).config == first);
  REQUIRE(wait(engine));
  CHECK_FALSE(engine.op.plans.hot.find(sized(256, 128))->of.stand_in);
}

TEST_CASE("what a tune published meanwhile goes on serving, and nothing is kept of a part that came too late" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  begin_in_parts(engine);
  REQUIRE(comes([&] { return told.held == 2; }));
  const answer::Resolution own = engine.op.resolve(sized(256, 128), false);
  engine.put(sized(256, 128), {tiled(loaded)});
  {
    const cuda::Context::Scope scope(engine.engine.context);
    adopt(engine.op, engine.op.resolve(sized(256, 128), false));
  }
  const PlanState* const tuned = engine.op.plans.hot.find(sized(256, 128));
  const auto kept = [&] {
    std::int64_t plans = 0;
    engine.op.plans.for_each([&](const BucketPlans&) { ++plans; });
    return plans;
  };
  const std::int64_t before = kept(), handles = query("handles");
  told.free(first);
  REQUIRE(comes([&] { return engine.op.plans.holds_code(own.bucket, own.answers[1]); }));
  told.free(last);
  REQUIRE(wait(engine));
  CHECK(engine.op.plans.hot.find(sized(256, 128)) == tuned);
  CHECK(kept() == before);
  CHECK(query("handles") == handles);  // modules among them
}

TEST_CASE("a bucket of stale configs that serve one after another is counted once" * doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  begin_in_parts(engine, true);
  CHECK(engine.launch(sized(150, 128)) == Origin::overlay);
  CHECK(engine.stats().stale == 1);
  told.free(first);
  REQUIRE(comes([&] { return is_hit(engine.launch(sized(200, 128))); }));
  told.free(last);
  REQUIRE(wait(engine));
  CHECK(is_hit(engine.launch(sized(256, 128))));
  CHECK(engine.stats().stale == 1);
}

TEST_CASE("machine code that the driver refuses takes no other config of its bucket back" * doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  SUBCASE("of some sizes") {
    control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 64, 4");
    begin_in_parts(engine);
    CHECK(is_hit(engine.launch(sized(150, 128))));
    told.free(first);
    REQUIRE(comes([&] { return engine.stats().misses.refused_cubin > 0; }));
    CHECK_FALSE(comes([&] { return !is_hit(engine.launch(sized(150, 128))); }, std::chrono::milliseconds(200)));
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    told.free(last);
    REQUIRE(wait(engine));
    CHECK(is_hit(engine.launch(sized(256, 128))));
  }
  SUBCASE("of the upper edge") {
    control("module CUDA_ERROR_INVALID_IMAGE scale_tiled<float, 256, 1");
    begin_in_parts(engine);
    CHECK(is_hit(engine.launch(sized(150, 128))));
    told.free(last);
    told.free(first);
    REQUIRE(wait(engine));
    CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
    CHECK(is_hit(engine.launch(sized(200, 128))));
  }
  CHECK(is_hit(engine.launch(sized(150, 128))));
}

TEST_CASE("threads launch while a bucket's configs come to serve one after another" * doctest::skip(no_plans())) {
  Told told;
  told.hold({first, last});
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
  begin_in_parts(engine);
  {
    std::vector<std::jthread> threads;
    for (const std::int64_t rows : {150, 200, 256})
      threads.emplace_back([&engine, rows](const std::stop_token& stop) {
        while (!stop.stop_requested()) engine.launch(sized(rows, 128));
      });
    for (const auto& each : {first, last}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      told.free(each);
    }
    REQUIRE(wait(engine));
  }
  for (const std::int64_t rows : {150, 200, 256}) CHECK(is_hit(engine.launch(sized(rows, 128))));
}

TEST_CASE("an engine may end at any time while a bucket's configs come to serve" * doctest::skip(no_plans())) {
  for (const int pause : {0, 5, 20, 60}) {
    Told told;
    ScaleEngine engine(ahead_options(MissPolicy::nearest, told, 2));
    begin_in_parts(engine);
    std::this_thread::sleep_for(std::chrono::milliseconds(pause));
  }
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);  // no process of them is left
}

TEST_CASE("a plan and a prepared bucket wait for their own machine code, also where a stand-in serves" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold({"threads=256 vector=1"});  // not the config of 16 rows, which is the default too, so it is compiled ahead
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_records(engine);
  engine.launch(sized(64, 128));
  CHECK(make_ready(engine.op, sized(16, 128), engine.machine.stream)->config == "threads=64 vector=1");
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  told.free("threads=256 vector=1");
  const PlanState* own = make_ready(engine.op, sized(256, 128), engine.machine.stream);
  CHECK(own->config == "threads=256 vector=1");
  CHECK(engine.launch(sized(256, 128)) == Origin::overlay);
}

TEST_CASE("a config of lengths that are far away does not stand in" * doctest::skip(no_plans())) {
  Told told;
  told.hold();
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_records(engine);
  engine.launch(sized(64, 128));
  CHECK(engine.launch(sized(2048, 128)) == Origin::overlay);
  told.free();
}
