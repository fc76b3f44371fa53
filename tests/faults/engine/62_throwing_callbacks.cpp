// A callback throws. What it throws reaches whoever asked for the tune; on a thread of the engine it becomes a warning, and it never
// passes through SQLite, which asks stop_requested while another process holds the overlay's lock. The engine goes on.
#include <sqlite3.h>

#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 62: what is no std::exception, thrown by a callback of a tune in the background, is a warning") {
  const Machine machine;
  const Scene scene;
  for (const bool stop : {false, true}) {
    Options options = scene.options(scene.overlay());
    options.on_miss = MissPolicy::background;
    options.background_share = 1;
    options.worker = KILN_WORKER_PROGRAM;
    std::atomic<bool> throws = true;
    const auto work = [&] {
      if (throws) throw 42;
    };
    if (stop)
      options.stop_requested = [&] { return work(), false; };
    else
      options.on_tune = [&](const TuneEvent&) { work(); };
    const Engine engine(options);
    ScaleCall(engine, 32, 128).launch(machine.stream());
    REQUIRE(engine.wait_for_tunes(std::chrono::seconds(30)));
    const std::vector<std::string> said = engine.warnings();
    REQUIRE(said.size() == 1);
    CHECK(contains(said.front(), "scale rows=32 cols=128 dtype=f32 is not tuned in the background"));
    CHECK(contains(said.front(), "threw what is no std::exception"));
    throws = false;
    ScaleCall(engine, stop ? 16 : 8, 128).launch(machine.stream());
    REQUIRE(engine.wait_for_tunes(std::chrono::seconds(30)));
    CHECK(engine.stats().tunes == 1);
  }
  tally(62, 2, "callbacks in the background that throw");
}

TEST_CASE(
    "fault 62: a stop_requested that throws while the overlay is locked ends the wait, and is met where the tune asks it") {
  const Machine machine;
  const Scene scene;
  std::atomic<bool> throws = false;
  Options options = scene.options(scene.overlay());
  options.stop_requested = [&] {
    if (throws) throw 42;
    return false;
  };
  const Engine engine(options);
  CHECK(ScaleCall(engine, 32, 128).launch(machine.stream()) == Origin::overlay);
  sqlite3* other = nullptr;
  REQUIRE(sqlite3_open(scene.overlay().c_str(), &other) == SQLITE_OK);
  REQUIRE(sqlite3_exec(other, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr) == SQLITE_OK);
  throws = true;
  CHECK_THROWS_AS(ScaleCall(engine, 16, 128).launch(machine.stream()), int);
  CHECK(engine.stats().misses.unreadable == 1);  // what SQLite's call came to: an exception did not pass through it
  throws = false;
  REQUIRE(sqlite3_close(other) == SQLITE_OK);
  CHECK(ScaleCall(engine, 16, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(records_of(scene.overlay()).size() == 2);
  tally(62, 1, "stop_requested that throws at a lock");
}
