// A callback on a thread of the engine lets go of the last Engine, Op or Plan. It returns, and the engine ends after it: after
// its tune, or beside the thread that compiled.
#include <future>
#include <thread>

#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

void check_all_is_given_back(std::int64_t handles, std::int64_t memory, std::int64_t contexts) {
  for (int tries = 0; tries < 3000 && query("contexts") + query("handles") > contexts + handles; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(query("handles") == handles);
  CHECK(query("memory") == memory);
  CHECK(query("contexts") == contexts);
}

}  // namespace

TEST_CASE("fault 63: an engine that is released in a callback of its own background thread ends, and leaves nothing") {
  const Machine machine;
  const Scene scene;
  const std::int64_t handles = query("handles"), memory = query("memory"), contexts = query("contexts");
  Options options = with_worker(scene.options(scene.overlay()), MissPolicy::background);
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
  check_all_is_given_back(handles, memory, contexts);
  tally(63, 1, "engines let go in a callback");
}

// As with a callback that holds a std::weak_ptr to the engine's owner, while another thread drops the last std::shared_ptr.
TEST_CASE("fault 63: an engine that is released in the log of a compile ends, and leaves nothing") {
  const Machine machine;
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const std::int64_t handles = query("handles"), memory = query("memory"), contexts = query("contexts");
  Options options = with_worker(op.options(folder / "overlay.kiln"), MissPolicy::background);
  auto owner = std::make_shared<std::optional<Engine>>();
  std::atomic<bool> is_launched = false;
  std::promise<void> entered, released;
  std::promise<void> dropped;
  options.compile_ahead = 0;
  std::promise<void> launched;  // the tune, and so its first compile, waits for it
  options.on_tune = [may_go = launched.get_future().share()](const TuneEvent&) { may_go.wait(); };
  options.on_log = [&, weak = std::weak_ptr(owner)](const LogEvent& event) {
    if (event.kind != LogEvent::Kind::compile || !is_launched.exchange(false)) return;
    auto held = weak.lock();
    entered.set_value();
    dropped.get_future().wait();
    held.reset();
    released.set_value();
  };
  owner->emplace(options);
  ScaleCall(**owner, 32, 128).launch(machine.stream());
  is_launched = true;
  launched.set_value();
  REQUIRE(entered.get_future().wait_for(patience) == std::future_status::ready);
  owner.reset();
  dropped.set_value();
  REQUIRE(released.get_future().wait_for(patience) == std::future_status::ready);
  check_all_is_given_back(handles, memory, contexts);
  tally(63, 1, "engines let go in the log of a compile");
}
