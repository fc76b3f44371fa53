// A program names files by relative paths, and changes its directory while an engine serves. The paths stay those of the
// directory in which the engine was made.
#include "faults/engine/scene.hpp"
#include "faults/engine/workers.hpp"
#include "process/child.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// In `from` until the first leave(), and then in `to`; in the former directory once it is gone.
class ChangedDirectory {
 public:
  ChangedDirectory(const fs::path& from, fs::path to) : to_(std::move(to)) {
    fs::create_directories(from);
    fs::create_directories(to_);
    fs::current_path(from);
  }
  ~ChangedDirectory() { fs::current_path(before_); }
  ChangedDirectory(const ChangedDirectory&) = delete;
  ChangedDirectory& operator=(const ChangedDirectory&) = delete;
  void leave() const { fs::current_path(to_); }

 private:
  const fs::path before_ = fs::current_path();
  const fs::path to_;
};

Options relative_paths(const Scene& scene, MissPolicy on_miss) {
  Options chosen = scene.options("overlay.kiln");
  fs::copy_file(chosen.bases.front(), "base.kiln");
  fs::copy_file(KILN_WORKER_PROGRAM, "kiln-worker");
  chosen.bases = {"base.kiln"};
  chosen.worker = "kiln-worker";
  chosen.on_miss = on_miss;
  chosen.background_share = 1;
  return chosen;
}

void check_serves_elsewhere(MissPolicy on_miss, bool by_variable) {
  const Machine machine;
  const Scene scene;
  const TemporaryFolder folder;
  const ChangedDirectory directory(folder / "from", folder / "to");
  Options options = relative_paths(scene, on_miss);
  if (by_variable) {
    options.worker.clear();
    REQUIRE(setenv("KILN_WORKER", "kiln-worker", 1) == 0);
  }
  {
    const Engine engine(options);
    directory.leave();
    ScaleCall(engine, 32, 128).launch(machine.stream());
    REQUIRE(engine.wait_for_tunes(patience));
    CHECK(engine.stats().tunes == 1);
    CHECK(engine.warnings().empty());
  }
  CHECK(unsetenv("KILN_WORKER") == 0);
  CHECK(records_of(folder / "from/overlay.kiln").size() == 1);
  CHECK(fs::is_empty(folder / "to"));
}

}  // namespace

TEST_CASE("fault 110: a tune after a change of directory runs in the worker that a relative path named, and is kept") {
  for (const MissPolicy each : {MissPolicy::tune, MissPolicy::background}) {
    check_serves_elsewhere(each, false);
    check_serves_elsewhere(each, true);
  }
  tally(110, 4, "engines with relative paths, before a change of directory");
}

// As after a deployment that removes the release before it. NVRTC 13.0 reads past a buffer in such a directory.
TEST_CASE("fault 110: a worker that begins in a directory that was removed leaves it") {
  const OwnWorker worker;
  const TemporaryFolder folder;
  const ChangedDirectory directory(folder / "from", folder / "to");
  fs::remove(folder / "from");
  const process::Child child(worker.path);
  const std::vector<pid_t> running = processes_of(worker.path);
  REQUIRE(running.size() == 1);
  CHECK(fs::read_symlink("/proc/" + std::to_string(running.front()) + "/cwd") == "/");
  tally(110, 1, "workers in a removed directory");
}
