// Workers of a tune are killed from outside: what they were asked is asked again, of another worker.
#include "faults/engine/liar.hpp"
#include "faults/engine/scene.hpp"
#include "faults/engine/trial_bed.hpp"
#include "faults/engine/verdicts.hpp"
#include "faults/engine/workers.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 100: a candidate whose worker is killed is tried again, a few times") {
  const Liar liar;
  TrialBed bed(liar.program());
  liar.die_at(Asked::greeting, 2);
  bed.bench();
  liar.die_at(Asked::begin, 1);
  const auto bench = bed.bench();
  const std::vector<tune::Point> both = {{.candidate = 0, .size = 0}, {.candidate = 1, .size = 0}};
  liar.die_at(Asked::admit, 1);
  REQUIRE(bed.admit(*bench, 0).verdict == store::Verdict::ok);
  liar.die_at(Asked::admit, 2);  // that of the first, which is brought in again, too
  REQUIRE(bed.admit(*bench, 1).verdict == store::Verdict::ok);
  liar.die_at(Asked::sample, 2);
  for (const tune::Samples& each : bench->sample(both, 2)) {
    CHECK(each.failure == "");
    CHECK(each.ns.size() == 2);
  }
  liar.die_at(Asked::sample, 100);
  const auto failed = bench->sample({both.data(), 1}, 2);
  CHECK_MESSAGE(contains(failed[0].failure, "was ended by signal 9 (Killed)"), failed[0].failure);
  liar.be_honest();
  CHECK(bench->sample({both.data() + 1, 1}, 2)[0].ns.size() == 2);
  tally(100, 6, "killed workers");
}

TEST_CASE("fault 100: a tune whose worker is killed after each candidate times all of them, the default too") {
  const Machine machine;
  const OwnWorker worker;
  const Scene scene;
  Verdicts verdicts;
  Options chosen = scene.options(scene.overlay());
  chosen.worker = worker.path;
  chosen.on_tune = [&](const TuneEvent& event) {
    verdicts(event);
    test::signal_processes(worker.path, SIGKILL);
  };
  const Engine engine(chosen);
  CHECK(ScaleCall(engine, 32, 128).launch(machine.stream()) == Origin::overlay);
  CHECK(verdicts.rejected.empty());
  const std::vector<store::Record> records = records_of(scene.overlay());
  REQUIRE(records.size() == 1);
  CHECK(records[0].baseline_ns > 0);
  tally(100, verdicts.good, "candidates whose worker was killed");
}

TEST_CASE("fault 100: a compile whose worker is killed is begun again in another one") {
  const OwnWorker worker;
  jit::CompilePool pool({.workers = 1, .program = worker.path});
  CHECK(compile_of({64, 1}).in(pool).get().image.size() > 0);
  test::signal_processes(worker.path, SIGSTOP);
  const auto compile = compile_of({64, 4}).in(pool);
  test::signal_processes(worker.path, SIGKILL);
  CHECK(compile.get().image.size() > 0);
  tally(100, 1, "compiles whose worker was killed");
}
