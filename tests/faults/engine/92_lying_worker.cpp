// A worker's answers are nested, empty, of other types or numbers, or no messages: that candidate fails with the reason, and the owner goes on.
#include "faults/engine/liar.hpp"
#include "faults/engine/trial_bed.hpp"
#include "faults/engine/workers.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

const std::vector<tune::Point> one_point = {{.candidate = 0, .size = 0}};

}  // namespace

TEST_CASE("fault 92: a lie about the bucket ends the tune with an error that names the worker") {
  const Liar liar;
  TrialBed bed(liar.program());
  for (int lie = 0, all = count_of_lies(Asked::begin); lie < all; ++lie) {
    CAPTURE(lie);
    liar.lie_about(Asked::begin, lie);
    const Error error = error_of([&] { bed.bench(); });
    CHECK(std::string(error.what()).size() < 1000);
  }
  liar.be_honest();
  CHECK(bed.bench()->prepared_ns() == 1);
  tally(92, count_of_lies(Asked::begin), "lies about a bucket");
}

TEST_CASE("fault 92: a candidate about which a worker lies fails with the reason, and the next one is tried") {
  const Liar liar;
  TrialBed bed(liar.program());
  const auto bench = bed.bench();
  for (int lie = 0, all = count_of_lies(Asked::admit); lie < all; ++lie) {
    CAPTURE(lie);
    liar.lie_about(Asked::admit, lie);
    const tune::Admission admission = bed.admit(*bench, 0);
    CHECK(admission.verdict == store::Verdict::launch_failed);
    CHECK(!admission.reason.empty());
  }
  for (int lie = 0, all = count_of_lies(Asked::sample); lie < all; ++lie) {
    CAPTURE(lie);
    liar.be_honest();
    REQUIRE(bed.admit(*bench, 0).verdict == store::Verdict::ok);
    liar.lie_about(Asked::sample, lie);
    const std::vector<tune::Samples> samples = bench->sample(one_point, 2);
    REQUIRE(samples.size() == 1);
    CHECK(samples[0].ns.empty());
    CHECK(!samples[0].failure.empty());
  }
  liar.be_honest();
  REQUIRE(bed.admit(*bench, 0).verdict == store::Verdict::ok);
  CHECK(bench->sample(one_point, 2)[0].ns.size() == 2);
  tally(92, count_of_lies(Asked::admit) + count_of_lies(Asked::sample), "lies about a candidate");
}

TEST_CASE("fault 92: lies about lengths end, and the tune with them") {
  const Liar liar;
  TrialBed bed(liar.program());
  const auto bench = bed.bench();
  for (int lie = 0, all = count_of_lies(Asked::lengths); lie < all; lie += 3) {
    CAPTURE(lie);
    liar.lie_about(Asked::lengths, lie);
    bench->set_sizes({bed.bucket});
    CHECK(error_of([&] { bed.admit(*bench, 0); }).kind() == ErrorKind::driver_failed);
  }
  tally(92, count_of_lies(Asked::lengths) / 3, "lies about lengths");
}

TEST_CASE("fault 92: a compile about which a worker lies fails alone with an error") {
  const Liar liar;
  jit::CompilePool pool({.workers = 1, .program = liar.program()});
  for (int lie = 0, all = count_of_lies(Asked::compile); lie < all; ++lie) {
    CAPTURE(lie);
    liar.lie_about(Asked::compile, lie);
    jit::Specialisation asked = compile_of({64, 1}).specialisation;
    asked.label += std::to_string(lie);
    const auto answer = pool.submit({std::byte(lie)}, asked);
    const Error error = error_of([&] { answer.get(); });
    CHECK((error.kind() == ErrorKind::io || error.kind() == ErrorKind::compile_failed));
  }
  tally(92, count_of_lies(Asked::compile), "lies about a compile");
}
