// A GPU that one process at a time may use, or none.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "faults/engine/fixture.hpp"

namespace kiln::faults {

TEST_CASE(
    "fault 76: on a GPU in exclusive-process mode candidates run in this process, and what is kept out says the remedy") {
  const TemporaryFolder folder;
  const std::string lock = (folder / "lock").string();
  const std::string before = "FAKE_CUDA='mode 3' FAKE_CUDA_EXCLUSIVE='" + lock + "' '" KILN_COMMAND "' ";
  const std::string tune = "tune scale rows=64 cols=128 dtype=f32" + globals(folder);
  const std::string doctor = "doctor" + globals(folder);
  const std::string tuned = expect(0, before + tune);
  CHECK_MESSAGE(contains(tuned, "GPU 0 is in exclusive-process mode, so candidates run in this process"), tuned);
  const std::string healthy = expect(0, before + doctor);
  CHECK_MESSAGE(contains(healthy, "exclusive-process mode"), healthy);
  const int held = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);  // as another process's context
  REQUIRE(flock(held, LOCK_EX | LOCK_NB) == 0);
  for (const std::string& words : {tune + "--force", doctor}) {
    const std::string refused = expect(words == doctor ? 1 : 5, before + words);
    CHECK_MESSAGE(contains(refused, "in exclusive-process mode and another process has it"), refused);
    CHECK_MESSAGE(contains(refused, "nvidia-smi -i 0 -c DEFAULT"), refused);
  }
  close(held);
  const std::string prohibited = expect(1, "FAKE_CUDA='mode 2' '" KILN_COMMAND "' " + doctor);
  CHECK_MESSAGE(contains(prohibited, "BROKEN  device 0: GPU 0 is in the compute mode 'prohibited'"), prohibited);
  tally(76, 5, "exclusive and prohibited GPUs");
}

TEST_CASE(
    "fault 76: a program that asks for a worker on such a GPU is refused with the reason, and one that tunes aside is warned") {
  const Machine machine;
  const TemporaryFolder folder;
  control("mode 3");
  Options options = e2e::options(folder / "overlay.kiln");
  options.worker = KILN_WORKER_PROGRAM;
  options.isolation = Isolation::worker;
  const Error refused = error_of([&] { const Engine engine(options); });
  CHECK(refused.kind() == ErrorKind::bad_input);
  CHECK_MESSAGE(contains(refused.what(), "exclusive-process mode"), refused.what());
  options.isolation = Isolation::automatic;
  options.on_miss = MissPolicy::background;
  const Engine engine(options);
  ScaleCall(engine, 32, 128).launch(machine.stream());
  bool said = false;
  for (const std::string& each : engine.warnings())
    said = said || contains(each, "nothing is tuned in the background: GPU 0 is in exclusive-process mode");
  CHECK(said);
  control("mode 0");
  tally(76, 2, "programs on exclusive GPUs");
}

}  // namespace kiln::faults
