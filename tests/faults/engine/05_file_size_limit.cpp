// A process that may write no file past some size: SIGXFSZ, whose default ends it, must not.
#include <sys/resource.h>

#include <csignal>

#include "faults/engine/scene.hpp"

namespace kiln::faults {

TEST_CASE("child: no file may grow" * doctest::skip()) {
  const Machine machine;
  const Scene scene;
  const Engine engine(scene.options(scene.overlay()));
  check_goes_on(engine, machine.stream());
  CHECK(engine.warnings().empty());
  std::signal(SIGXFSZ, SIG_DFL);
  rlimit limit{};
  limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(std::atoll(std::getenv("FAULTS_BYTES")));
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  check_goes_on(engine, machine.stream(), 256);
  // A file that was longer than the limit already may need a roll-back that the limit forbids, and cannot be read then.
  check_said_once(engine, machine.stream(), true);
  CHECK(engine.stats().tunes == 3);
}

TEST_CASE("fault 05: an engine under a file-size limit lives and goes on from memory, with one warning") {
  std::int64_t cases = 0;
  for (const char* bytes : {"0", "512", "4096", "40000"}) {
    CAPTURE(std::string(bytes));
    run_child("child: no file may grow", std::string("FAULTS_BYTES=") + bytes + " ");
    ++cases;
  }
  tally(5, cases, "engines under a file-size limit");
}

}  // namespace kiln::faults
