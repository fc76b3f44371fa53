// Machine code that is compiled before a launch asks for it, and what serves meanwhile.
#include <sys/wait.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "engine/ahead.hpp"
#include "engine/background.hpp"
#include "engine/miss_path.hpp"
#include "engine/scale_engine.hpp"

using namespace kiln;
using namespace kiln::engine;
using namespace kiln::plan;
using namespace kiln::engine::testing;

namespace {

constexpr auto patience = std::chrono::seconds(120);

/// What an engine compiles and tells, in order. A compile ahead ends only once `hold` is false.
class Told {
 public:
  void operator()(const LogEvent& event) {
    std::unique_lock lock(mutex_);
    if (event.kind == LogEvent::Kind::swap) swaps.emplace_back(event.bucket);
    if (event.kind != LogEvent::Kind::compile) return;
    const bool is_ahead = event.text.find("compiled ahead") != std::string_view::npos;
    if (is_ahead) freed_.wait_for(lock, patience, [this] { return !hold_; });
    (is_ahead ? ahead : waited_for).emplace_back(event.text.substr(0, event.text.find(" was")));
  }
  void hold() { hold_ = true; }
  void free() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    freed_.notify_all();
  }
  std::vector<std::string> ahead, waited_for;  // labels
  std::vector<std::string> swaps;              // buckets

 private:
  std::mutex mutex_;
  std::condition_variable freed_;
  bool hold_ = false;
};

Options ahead_options(MissPolicy on_miss, Told& told, int compile_ahead = 1) {
  Options chosen = ScaleEngine::options(on_miss);
  chosen.isolation = Isolation::worker;
  chosen.worker = KILN_WORKER_PROGRAM;
  chosen.compile_ahead = compile_ahead;
  chosen.on_log = [&told](const LogEvent& event) { told(event); };
  return chosen;
}

/// Records of some buckets, each with a config of its own, and no machine code.
const std::vector<std::pair<std::int64_t, std::string>>& records() {
  static const std::vector<std::pair<std::int64_t, std::string>> all{
      {16, "threads=64 vector=1"},   {32, "threads=64 vector=4"},   {64, "threads=128 vector=1"},
      {128, "threads=128 vector=4"}, {256, "threads=256 vector=1"}, {2048, "threads=256 vector=4"}};
  return all;
}

void put_records(ScaleEngine& engine) {
  for (const auto& [rows, config] : records()) engine.put(sized(rows, 128), {tiled(config)});
}

bool wait(ScaleEngine& engine) { return engine.engine.ahead->wait_until(std::chrono::steady_clock::now() + patience); }

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

TEST_CASE("a plan and a prepared bucket wait for their own machine code, also where a stand-in serves" *
          doctest::skip(no_plans())) {
  Told told;
  told.hold();
  ScaleEngine engine(ahead_options(MissPolicy::nearest, told));
  put_records(engine);
  engine.launch(sized(64, 128));
  CHECK(make_ready(engine.op, sized(16, 128), engine.machine.stream)->config == "threads=64 vector=1");
  CHECK(engine.launch(sized(256, 128)) == Origin::nearest);
  told.free();
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
