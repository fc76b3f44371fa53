// A callback of a tune in the background lets go of the last Engine, Op or Plan. It returns, and the engine ends after its tune.
#include <future>
#include <thread>

#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 63: an engine that is released in a callback of its own background thread ends, and leaves nothing") {
  const Machine machine;
  const Scene scene;
  const std::int64_t handles = query("handles"), memory = query("memory"), contexts = query("contexts");
  Options options = scene.options(scene.overlay());
  options.on_miss = MissPolicy::background;
  options.background_share = 1;
  options.worker = KILN_WORKER_PROGRAM;
  std::optional<Engine> engine;
  std::promise<void> ready;
  std::promise<void> released;
  const std::shared_future<void> may_go = ready.get_future();
  options.on_tune = [&](const TuneEvent&) {
    if (!engine) return;
    may_go.wait();
    engine.reset();
    released.set_value();
  };
  engine.emplace(options);
  ScaleCall(*engine, 32, 128).launch(machine.stream());
  ready.set_value();
  REQUIRE(released.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  for (int tries = 0; tries < 3000 && query("contexts") + query("handles") > contexts + handles; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(query("handles") == handles);
  CHECK(query("memory") == memory);
  tally(63, 1, "engines let go in a callback");
}
