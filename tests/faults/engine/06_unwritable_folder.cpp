// A folder that may not be written, or that becomes so; a user without a home.
#include <unistd.h>

#include "faults/engine/scene.hpp"

namespace kiln::faults {
namespace {

/// Words before a child that make it a user without rights; empty where this test has none to give up.
std::string as_nobody() { return geteuid() == 0 ? "setpriv --reuid=65534 --regid=65534 --clear-groups " : ""; }

/// What that user needs, in a folder of its own.
void give_to_nobody(const fs::path& path) {
  if (geteuid() == 0) REQUIRE(chown(path.c_str(), 65534, 65534) == 0);
}

}  // namespace

TEST_CASE("child: the folder becomes read-only" * doctest::skip()) {
  const Machine machine;
  const fs::path folder = std::getenv("FAULTS_DISK");
  const Scene scene;
  const Engine engine(scene.options(folder / "overlay.kiln"));
  check_goes_on(engine, machine.stream());
  CHECK(engine.warnings().empty());
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec);
  check_goes_on(engine, machine.stream(), 256);
  check_said_once(engine, machine.stream());
  CHECK(records_of(folder / "overlay.kiln").size() == 1);
}

TEST_CASE("child: a folder that may not be written" * doctest::skip()) {
  const Machine machine;
  const Scene scene;
  const Engine engine(scene.options(fs::path(std::getenv("FAULTS_DISK")) / "overlay.kiln"));
  check_goes_on(engine, machine.stream());
  check_said_once(engine, machine.stream());
}

TEST_CASE("child: an overlay that may be read only" * doctest::skip()) {
  const Machine machine;
  const fs::path overlay = fs::path(std::getenv("FAULTS_DISK")) / "overlay.kiln";
  const Scene scene;
  const Engine engine(scene.options(overlay));
  check_goes_on(engine, machine.stream());
  check_said_once(engine, machine.stream());
}

TEST_CASE("child: no home" * doctest::skip()) {
  const Machine machine;
  const Scene scene;
  Options chosen = scene.options("");
  chosen.overlay.reset();
  const Engine engine(chosen);
  check_goes_on(engine, machine.stream());
  CHECK(engine.stats().tunes == 1);
  CHECK(engine.warnings().size() == 1);
}

TEST_CASE("fault 06: a user who may write neither overlay nor folder, or has no home, is served all the same") {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  if (!as_nobody().empty() && shell(as_nobody() + "test -x '" + self + "'").status != 0) {
    std::puts("Skipped: root, and no other user to be who can run this clone's programs.");
    std::exit(77);
  }
  const TemporaryFolder folder;
  fs::permissions(folder / "", fs::perms::owner_all | fs::perms::group_exec | fs::perms::others_exec);
  const fs::path base = tuned_overlay(folder, "base.kiln"), disk = folder / "disk";
  fs::create_directory(disk);
  give_to_nobody(base);
  give_to_nobody(disk);
  const std::string before =
      variable("FAULTS_BASE", base) + variable("FAULTS_DISK", disk) + "TMPDIR=/tmp HOME=/nonexistent ";
  run_child("child: the folder becomes read-only", before + as_nobody());
  fs::remove(disk / "overlay.kiln");
  run_child("child: a folder that may not be written", before + as_nobody());
  fs::permissions(disk, fs::perms::owner_all);
  fs::copy_file(base, disk / "overlay.kiln");
  give_to_nobody(disk / "overlay.kiln");
  fs::permissions(disk / "overlay.kiln", fs::perms::owner_read);
  run_child("child: an overlay that may be read only", before + as_nobody());
  const std::string homeless = before + "env -u HOME -u KILN_CACHE -u XDG_CACHE_HOME ";
  run_child("child: no home", homeless + as_nobody());
  run_child("child: no home", homeless + "HOME=/nonexistent " + as_nobody());
  run_child("child: no home", homeless + "HOME=/proc " + as_nobody());
  tally(6, 6, "engines of a user who may not write");
}

}  // namespace kiln::faults
