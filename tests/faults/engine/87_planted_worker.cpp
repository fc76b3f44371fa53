// A kiln-worker lies where it is looked for, and another user put it there or could: it is not run, and said to be refused.
#include <unistd.h>

#include "faults/engine/probe.hpp"
#include "faults/skip.hpp"
#include "process/identity.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

/// A folder with the probe, which looks for a worker there, and a program kiln-worker.
struct Place {
  Place() : probe(copy_of_probe(folder / "bin")), worker(folder / "bin" / "kiln-worker") { make_program(worker); }
  static void make_program(const fs::path& path) {
    write(path, "#!/bin/sh\n");
    fs::permissions(path, fs::perms(0755));
  }
  [[nodiscard]] std::string printed() const { return expect(0, "unset KILN_WORKER; '" + probe.string() + "'"); }
  void check_refused(const char* why) const {
    const std::string said = printed();
    CHECK_MESSAGE(!contains(said, "worker=" + worker.string()), said);
    CHECK_MESSAGE(contains(said, "refused='" + worker.string() + "' is not run: "), said);
    CHECK_MESSAGE(contains(said, why), said);
  }

  OpenFolder folder;
  fs::path probe, worker;
};

}  // namespace

TEST_CASE("fault 87: a worker that nobody else may write is run, by a link too") {
  const Place place;
  CHECK(contains(place.printed(), "worker=" + place.worker.string()));
  fs::rename(place.worker, place.folder / "elsewhere");
  fs::create_symlink(place.folder / "elsewhere", place.worker);
  CHECK(contains(place.printed(), "worker=" + place.worker.string()));
  tally(87, 2, "workers of one's own");
}

TEST_CASE("fault 87: a worker that others may write or replace is not run") {
  const Place place;
  const fs::path folder = place.worker.parent_path();
  for (const int mode : {01777, 0777, 0775}) {
    CAPTURE(mode);
    REQUIRE(chmod(folder.c_str(), static_cast<mode_t>(mode)) == 0);
    place.check_refused("can be written by others");
  }
  REQUIRE(chmod(folder.c_str(), 0755) == 0);
  for (const int mode : {0777, 0775}) {
    REQUIRE(chmod(place.worker.c_str(), static_cast<mode_t>(mode)) == 0);
    place.check_refused("can be written by others");
  }
  fs::remove(place.worker);
  fs::create_directories(place.folder / "open");
  Place::make_program(place.folder / "open/kiln-worker");
  REQUIRE(chmod((place.folder / "open").c_str(), 01777) == 0);
  fs::create_symlink(place.folder / "open/kiln-worker", place.worker);
  place.check_refused("can be written by others");
  tally(87, 6, "workers that others may write");
}

TEST_CASE("a worker that was built of other sources is not run, and one of these is") {
  const Place place;
  fs::copy_file(KILN_WORKER_PROGRAM, place.worker, fs::copy_options::overwrite_existing);
  CHECK(contains(place.printed(), "worker=" + place.worker.string()));
  std::string bytes = read(place.worker);
  const std::string ours = process::identity_of(place.worker);
  REQUIRE(!ours.empty());
  std::size_t changed = 0;
  for (std::size_t at = bytes.find(ours); at != std::string::npos; at = bytes.find(ours, at + 1), ++changed)
    bytes[at + ours.size() - 1] ^= 1;  // the last digit of the digest
  REQUIRE(changed > 0);
  write(place.worker, bytes);
  place.check_refused(("and this library of " + ours + "; install the kiln-worker of this library").c_str());
}

TEST_CASE("a worker that lost its mode is not run, and said to be refused") {
  const Place place;
  fs::permissions(place.worker, fs::perms::owner_read | fs::perms::owner_write);
  place.check_refused("it cannot be executed: Permission denied; run chmod a+x");
}

TEST_CASE("fault 87: a worker of another user is not run") {
  if (geteuid() != 0) return skip("only root can give a file to another user");
  const Place place;
  REQUIRE(chown(place.worker.c_str(), nobody, nobody) == 0);
  place.check_refused("belongs to user 65534");
  REQUIRE(chown(place.worker.c_str(), 0, 0) == 0);
  REQUIRE(chown(place.worker.parent_path().c_str(), nobody, nobody) == 0);
  place.check_refused("belongs to user 65534");
  // Whoever owns the program that looks decides already what runs.
  REQUIRE(chown(place.worker.c_str(), nobody, nobody) == 0);
  REQUIRE(chown(place.probe.c_str(), nobody, nobody) == 0);
  CHECK(contains(place.printed(), "worker=" + place.worker.string()));
  tally(87, 3, "workers of another user");
}

TEST_CASE("fault 87: no worker is looked for in the folder where a program is begun by its bare name") {
  const Place place;
  const fs::path here = place.folder / "here/deep";
  fs::create_directories(here);
  fs::create_directories(place.folder / "here/bin");
  Place::make_program(place.folder / "here/bin/kiln-worker");
  fs::remove(place.worker);
  const std::string said = expect(0, "unset KILN_WORKER; cd '" + here.string() + "'; PATH='" +
                                         place.worker.parent_path().string() + "':$PATH; probe");
  CHECK_MESSAGE(!contains(said, (place.folder / "here").string()), said);
  CHECK_MESSAGE(!contains(said, "worker=../"), said);
  tally(87, 1, "programs that are begun by their name");
}
