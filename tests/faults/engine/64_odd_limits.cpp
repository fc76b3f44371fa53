// Limits that mean nothing are refused by name when the engine is made; the largest that a caller can write means no limit, as it says.
#include <sys/stat.h>

#include <limits>

#include "faults/engine/scene.hpp"

using namespace kiln;
using namespace kiln::faults;
using std::chrono::milliseconds;

TEST_CASE("fault 64: a negative limit, or no time at all, is refused by its name") {
  const Machine machine;
  const Scene scene;
  const auto refused = [&](auto change, const char* said) {
    Options options = scene.options(scene.overlay());
    change(options);
    const Error error = error_of([&] { const Engine engine(options); });
    CHECK(error.kind() == ErrorKind::bad_input);
    CAPTURE(error.what());
    CHECK(contains(error.what(), said));
  };
  refused([](Options& of) { of.overlay_limit_bytes = -1; }, "Options::overlay_limit_bytes is -1, expected 0 or more");
  refused([](Options& of) { of.compile_workers = -5; }, "Options::compile_workers is -5, expected 0 or more");
  refused([](Options& of) { of.compile_memory_bytes = -1; }, "Options::compile_memory_bytes is -1");
  refused([](Options& of) { of.search.trials = -1; }, "Options::search.trials is -1");
  refused([](Options& of) { of.search.time_limit = milliseconds(-1); }, "Options::search.time_limit");
  refused([](Options& of) { of.compile_limit = milliseconds(0); },
          "Options::compile_limit, in milliseconds, is 0, expected more than 0");
  refused([](Options& of) { of.candidate_limit = milliseconds(-1); }, "Options::candidate_limit");
  refused([](Options& of) { of.background_share = std::numeric_limits<double>::quiet_NaN(); },
          "Options::background_share is nan");
  tally(64, 8, "limits that make no sense");
}

TEST_CASE("fault 64: the longest times that can be written are no limits") {
  const Machine machine;
  const Scene scene;
  for (const milliseconds longest : {milliseconds::max(), milliseconds((std::int64_t{1} << 32) + 1)}) {
    Options options = scene.options(scene.overlay());
    options.on_miss = MissPolicy::background;
    options.background_share = 1;
    options.worker = KILN_WORKER_PROGRAM;
    options.compile_limit = options.candidate_limit = options.search.time_limit = longest;
    options.compile_memory_bytes = std::numeric_limits<std::int64_t>::max();
    fs::remove(scene.overlay());
    const Engine engine(options);
    ScaleCall(engine, 32, 128).launch(machine.stream());
    CHECK(engine.wait_for_tunes(longest));
    for (const std::string& said : engine.warnings()) FAIL_CHECK(said);
    CHECK(engine.stats().tunes == 1);
  }
  tally(64, 2, "limits without end");
}

TEST_CASE("fault 64: samples of a tune that are to go to a pipe are refused, and no reader is waited for") {
  const Machine machine;
  const Scene scene;
  const fs::path pipe = scene.overlay().parent_path() / "samples";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Options options = scene.options(scene.overlay());
  options.search.samples = pipe;
  const Error error = error_of([&] {
    const Engine engine(options);
    ScaleCall(engine, 32, 128).launch(machine.stream());
  });
  CHECK(error.kind() == ErrorKind::io);
  CHECK_MESSAGE(contains(error.what(), pipe.string() + ": it is a pipe; name a file that can"), error.what());
  tally(64, 1, "samples that are to go to a pipe");
}

TEST_CASE("fault 64: a worker that cannot be run is said with what to do") {
  const Machine machine;
  const Scene scene;
  Options options = scene.options(scene.overlay());
  options.worker = fs::temp_directory_path();
  const Engine engine(options);
  const Error error = error_of([&] { ScaleCall(engine, 32, 128).launch(machine.stream()); });
  CHECK(contains(error.what(), "cannot be run: Permission denied; name the kiln-worker"));
  tally(64, 1, "workers that cannot be run");
}
