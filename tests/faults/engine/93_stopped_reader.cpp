// A worker is stopped before it reads a request of more bytes than the socket holds: the time-out of the asker ends it.
#include "faults/engine/trial_bed.hpp"
#include "faults/engine/workers.hpp"
#include "process/child.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 93: a request that a stopped worker does not read is late, and the worker ends") {
  const OwnWorker worker;
  const nlohmann::json request{{"compile", std::string(std::size_t{4} << 20, 'x')}};
  for (const int signal : {SIGSTOP, SIGTSTP}) {
    process::Child child(worker.path);
    test::signal_processes(worker.path, signal);
    nlohmann::json answer;
    CHECK(child.ask(request, answer, std::chrono::milliseconds(100)) == process::Channel::Outcome::late);
    CHECK(child.stop() == "was stopped");
  }
  CHECK(processes_of(worker.path).empty());
  tally(93, 2, "workers stopped before they read");
}

TEST_CASE(
    "fault 93: a candidate of megabytes that a stopped worker does not read fails after its time, and the next is tried") {
  const OwnWorker worker;
  TrialBed bed(worker.path, {.trial = std::chrono::seconds(2)});
  const auto bench = bed.bench();
  test::signal_processes(worker.path, SIGSTOP);
  bed.code.image.resize(std::size_t{4} << 20);
  const tune::Admission admission = bed.admit(*bench, 0);
  CHECK(admission.verdict == store::Verdict::launch_failed);
  CHECK_MESSAGE(contains(admission.reason, "was not done after 2 s"), admission.reason);
  bed.code = bed.cubins.get(specialisation_of(bed.op, "tiled", bed.variant.config)).cubin;
  CHECK(bed.admit(*bench, 1).verdict == store::Verdict::ok);
  tally(93, 1, "candidates that a stopped worker does not read");
}
