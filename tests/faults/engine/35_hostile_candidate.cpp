// A candidate that breaks its context, never ends or kills its process, tried beside good ones in the worker. tests/gpu does the same on a device.
#include <cstdlib>

#include "faults/engine/verdicts.hpp"
#include "processes.hpp"

namespace kiln::faults {
namespace {

constexpr const char* hostile_config = "threads=128 vector=4";

/// What the worker's driver is told to do; this process's driver is loaded already and does not read it.
class WorkerFault {
 public:
  explicit WorkerFault(const std::string& order) { setenv("FAKE_CUDA", order.c_str(), 1); }
  ~WorkerFault() { unsetenv("FAKE_CUDA"); }
  WorkerFault(const WorkerFault&) = delete;
  WorkerFault& operator=(const WorkerFault&) = delete;
};

Options in_worker(const fs::path& overlay, Verdicts& verdicts) {
  Options chosen = watched(e2e::options(overlay), verdicts);
  chosen.isolation = Isolation::worker;
  chosen.worker = KILN_WORKER_PROGRAM;
  return chosen;
}

}  // namespace

TEST_CASE("fault 35: a candidate that reads an illegal address in the worker is rejected alone and remembered") {
  const Machine machine;
  const TemporaryFolder folder;
  const WorkerFault fault(std::string("kernel fault scale_tiled<float, 128, 4>"));
  Verdicts verdicts;
  {
    const Engine engine(in_worker(folder / "overlay.kiln", verdicts));
    CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  }
  CHECK(verdicts.good == 6);
  REQUIRE(verdicts.rejected.size() == 1);
  CHECK(contains(verdicts.rejected[0], std::string(hostile_config) + " launch_failed"));
  CHECK(contains(verdicts.rejected[0], "CUDA_ERROR_ILLEGAL_ADDRESS"));
  CHECK(verdicts.winner != hostile_config);
  const store::Record record = records_of(folder / "overlay.kiln").at(0);
  const auto remembered = std::find_if(record.candidates.begin(), record.candidates.end(),
                                       [](const store::TriedCandidate& each) { return each.config == hostile_config; });
  REQUIRE(remembered != record.candidates.end());
  CHECK(remembered->verdict == store::Verdict::launch_failed);
  tally(35, 1, "candidates that read an illegal address, in the worker");
}

TEST_CASE("fault 35: every candidate but one may break the worker, and the good one serves") {
  const Machine machine;
  const TemporaryFolder folder;
  const WorkerFault fault("kernel fault scale_tiled");
  Verdicts verdicts;
  const Engine engine(in_worker(folder / "overlay.kiln", verdicts));
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good == 1);
  CHECK(verdicts.rejected.size() == 6);
  tally(35, static_cast<std::int64_t>(verdicts.rejected.size()), "workers broken one after the other");
}

TEST_CASE("fault 35: a candidate that never ends is stopped after its time, and the others go on") {
  const Machine machine;
  const TemporaryFolder folder;
  const WorkerFault fault("kernel hang scale_tiled<float, 128, 4>");
  Verdicts verdicts;
  Options chosen = in_worker(folder / "overlay.kiln", verdicts);
  chosen.candidate_limit = std::chrono::seconds(3);
  const Engine engine(chosen);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good == 6);
  REQUIRE(verdicts.rejected.size() == 1);
  CHECK(contains(verdicts.rejected[0], "it was not done after 3 s"));
  tally(35, 1, "candidates that never end");
}

TEST_CASE("fault 35: a worker that is killed while it tries candidates costs none but the one that never ends") {
  const Machine machine;
  const TemporaryFolder folder;
  const WorkerFault fault("kernel hang scale_tiled<float, 128, 4>");
  Verdicts verdicts;
  Options chosen = in_worker(folder / "overlay.kiln", verdicts);
  const fs::path program = folder / "kiln-worker";  // found by its path, which no other process has
  fs::copy_file(KILN_WORKER_PROGRAM, program);
  chosen.worker = program;
  chosen.candidate_limit = std::chrono::seconds(3);
  chosen.on_tune = [&](const TuneEvent& event) {
    verdicts(event);
    if (event.kind == TuneEvent::Kind::begun) {  // what it tries by then is tried again
      const auto line = "(sleep 2; pkill -KILL -f '" + program.string() + "') >/dev/null 2>&1 &";
      REQUIRE(std::system(line.c_str()) == 0);
    }
  };
  const Engine engine(chosen);
  CHECK(ScaleCall(engine, 64, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.good == 6);
  REQUIRE(verdicts.rejected.size() == 1);
  CHECK(contains(verdicts.rejected[0], "it was not done after 3 s"));
  tally(35, 1, "workers killed in the middle of a candidate");
}

TEST_CASE("fault 35: a worker that is not there, or is no worker, is an error that names it") {
  const Machine machine;
  const TemporaryFolder folder;
  for (const fs::path& program : {folder / "absent", fs::path("/bin/true")}) {
    CAPTURE(program.string());
    Verdicts verdicts;
    Options chosen = in_worker(folder / "overlay.kiln", verdicts);
    chosen.worker = program;
    const Engine engine(chosen);
    const ScaleCall call(engine, 64, 128);
    const Error error = error_of([&] { call.op.launch(call.problem, call.arguments, machine.stream()); });
    CHECK(contains(error.what(), program.string()));
    tally(35, 1, "programs that are no worker");
  }
}

TEST_CASE("fault 35: the worker keeps its context from bucket to bucket, and ends with its engine") {
  const Machine machine;
  const TemporaryFolder folder;
  const fs::path program = folder / "kiln-worker";  // found by its path, which no other process has
  fs::create_symlink(KILN_WORKER_PROGRAM, program);
  {
    Verdicts verdicts;
    Options chosen = in_worker(folder / "overlay.kiln", verdicts);
    chosen.worker = program;
    chosen.compile_workers = 1;
    const Engine engine(chosen);
    ScaleCall(engine, 64, 128).launch(machine.stream());
    const auto begun = test::processes_of(program);
    CHECK(begun.size() == 2);  // one that compiles, one that tries
    ScaleCall(engine, 128, 128).launch(machine.stream());
    CHECK(engine.stats().tunes == 2);
    CHECK(test::processes_of(program) == begun);
  }
  CHECK(test::processes_of(program).empty());
}

}  // namespace kiln::faults
