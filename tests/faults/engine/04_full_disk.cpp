// An overlay on a file system of a few pages, in a mount namespace of the child's own.
#include <sys/statvfs.h>

#include "faults/engine/scene.hpp"

namespace kiln::faults {
namespace {

/// Writes until nothing more goes in.
void fill(const fs::path& folder) {
  std::ofstream file(folder / "filler", std::ios::binary | std::ios::app);
  const std::string page(512, 'x');
  while (file.write(page.data(), static_cast<std::streamsize>(page.size())).flush()) {
  }
}

}  // namespace

TEST_CASE("child: the disk fills up" * doctest::skip()) {
  const Machine machine;
  const fs::path disk = std::getenv("FAULTS_DISK");
  const Scene scene;
  const Engine engine(scene.options(disk / "overlay.kiln"));
  CHECK(engine.warnings().empty());
  check_goes_on(engine, machine.stream());
  CHECK(engine.warnings().empty());
  const std::size_t stored = records_of(disk / "overlay.kiln").size();
  CHECK(stored == 1);
  fill(disk);
  check_goes_on(engine, machine.stream(), 256);
  CHECK(engine.stats().tunes == 2);
  CHECK(contains(engine.warnings().at(0), "overlay.kiln"));
  check_said_once(engine, machine.stream());
  // What was there is still read, by this engine and by another.
  CHECK(records_of(disk / "overlay.kiln").size() == stored);
  Options reading = scene.options(disk / "overlay.kiln");
  reading.on_miss = MissPolicy::error;
  CHECK(ScaleCall(Engine(reading), 32, 128).launch(machine.stream()) == Origin::overlay);
  // And room that comes back is used again, for what was kept in memory too.
  fs::remove(disk / "filler");
  check_goes_on(engine, machine.stream(), 512);
  CHECK(records_of(disk / "overlay.kiln").size() == stored + 3);
}

TEST_CASE("child: the disk is full from the start" * doctest::skip()) {
  const Machine machine;
  const fs::path disk = std::getenv("FAULTS_DISK");
  fill(disk);
  const Scene scene;
  const Engine engine(scene.options(disk / "overlay.kiln"));
  check_goes_on(engine, machine.stream());
  check_said_once(engine, machine.stream());
}

TEST_CASE("fault 04: an engine whose disk is full goes on from memory, with one warning") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "disk");
  const std::string disk = (folder / "disk").string();
  if (shell("unshare -rm mount -t tmpfs -o size=256k none '" + disk + "'").status != 0) {
    std::puts("Skipped: this machine lets no test make a mount namespace.");
    std::exit(77);
  }
  const std::string before =
      "unshare -rm sh -c 'mount -t tmpfs -o size=256k,mode=700 none \"$FAULTS_DISK\" && exec \"$@\"' sh";
  run_child("child: the disk fills up", "FAULTS_DISK='" + disk + "' " + before);
  run_child("child: the disk is full from the start", "FAULTS_DISK='" + disk + "' " + before);
  tally(4, 4, "engines on a full disk");
}

}  // namespace kiln::faults
