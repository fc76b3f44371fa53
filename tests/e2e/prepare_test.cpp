// Engine::prepare and Engine::coverage: nothing left to miss in a capture, and what there is to miss before it.
#include <algorithm>

#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Coverage;
using kiln::Engine;
using kiln::ErrorKind;
using kiln::MissPolicy;
using kiln::Origin;
using kiln::Problem;

namespace {

std::int64_t work_done() {
  return query("calls cuModuleLoadDataEx") + query("calls cuMemAlloc_v2") + query("launches");
}

/// f32, of the op `scale`.
Problem problem(const kiln::Op& op, std::int64_t rows, std::int64_t cols) {
  return op.problem({{"rows", rows}, {"cols", cols}, {"dtype", "f32"}});
}

}  // namespace

TEST_CASE("after prepare a capture finds everything, also the default that serves where a record is not legal") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall whole(engine, 64, 128), part(engine, 50, 100), odd(engine, 64, 127), other(engine, 300, 128);
  const std::vector<Problem> problems = {whole.problem, part.problem, odd.problem, other.problem};
  const Coverage coverage = engine.prepare(whole.op, problems, machine.stream());
  CHECK(coverage.total == 4);
  CHECK(coverage.hits == 3);
  CHECK(coverage.capturable());
  REQUIRE(coverage.gaps.size() == 1);
  CHECK(coverage.gaps[0].op == "scale");
  CHECK(coverage.gaps[0].problem == "rows=64 cols=127 dtype=f32");
  CHECK(coverage.gaps[0].bucket == "rows=64 cols=128 dtype=f32");
  CHECK(coverage.gaps[0].serves == Origin::default_);
  CHECK(contains(coverage.gaps[0].why, "cols % vector == 0"));
  CHECK(engine.stats().tunes == 2);
  const std::int64_t before = work_done(), unsafe = query("unsafe");
  const Graph graph(machine, Graph::global, [&] {
    for (const ScaleCall* each : {&whole, &part, &other})
      CHECK_FALSE(is_fallback(each->op.launch(each->problem, each->arguments, machine.stream())));
    CHECK(odd.op.launch(odd.problem, odd.arguments, machine.stream()) == Origin::default_);
  });
  CHECK(work_done() == before);
  CHECK(query("unsafe") == unsafe);
  for (const ScaleCall* each : {&whole, &part, &odd, &other}) each->poison();
  graph.replay();
  for (const ScaleCall* each : {&whole, &part, &odd, &other}) each->check();
}

TEST_CASE("coverage says what a capture would miss and why, and does nothing about it") {
  const Machine machine;
  const TemporaryFolder folder;
  ScaleCall(Engine(options(folder / "overlay.kiln")), 64, 128).launch(machine.stream());
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::nearest));
  const kiln::Op op = engine.op("scale");
  const std::vector<Problem> problems = {problem(op, 64, 128), problem(op, 500, 128), problem(op, 64, 127)};
  const std::int64_t before = work_done();
  Coverage coverage = engine.coverage(op, problems, machine.stream());
  CHECK(coverage.hits == 0);
  REQUIRE(coverage.gaps.size() == 3);
  CHECK_FALSE(coverage.capturable());
  CHECK(std::ranges::none_of(coverage.gaps, [](const kiln::Gap& gap) { return gap.serves.has_value(); }));
  CHECK(contains(coverage.gaps[0].why, "its record of the overlay, tiled threads=128 vector=4, is not loaded"));
  CHECK(contains(coverage.gaps[1].why, "its bucket has no record"));
  CHECK(work_done() == before);
  CHECK(engine.coverage().total == 0);

  static_cast<void>(op.plan(problems[0], machine.stream()));
  const std::int64_t then = work_done();
  coverage = engine.coverage(op, problems, machine.stream());
  CHECK(work_done() == then);
  CHECK(coverage.hits == 1);
  REQUIRE(coverage.gaps.size() == 2);
  CHECK(coverage.gaps[0].serves == Origin::nearest);  // the plan that was just made
  CHECK(contains(coverage.gaps[0].why, "of rows=64 cols=128 dtype=f32 would stand in"));
  CHECK_FALSE(coverage.gaps[1].serves.has_value());
  CHECK(contains(coverage.gaps[1].why, "the default of tiled serves, which is not loaded; a capture would be refused"));
}

TEST_CASE("coverage of all that is ready names the buckets that a fallback serves") {
  const Machine machine;
  const TemporaryFolder folder;
  ScaleCall(Engine(options(folder / "overlay.kiln")), 64, 128).launch(machine.stream());
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::nearest));
  ScaleCall(engine, 60, 100).launch(machine.stream());
  ScaleCall(engine, 500, 128).launch(machine.stream());
  const Coverage coverage = engine.coverage();
  CHECK(coverage.total == 2);
  CHECK(coverage.hits == 1);
  REQUIRE(coverage.gaps.size() == 1);
  CHECK(coverage.gaps[0].bucket == "rows=512 cols=128 dtype=f32");
  CHECK(coverage.gaps[0].serves == Origin::nearest);
}

TEST_CASE("a workspace is missing on streams that it was not made for, and coverage says so") {
  const Machine machine;
  control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
  const Engine engine(options(""));
  const kiln::Op op = engine.op("scale");
  const std::vector<Problem> problems = {problem(op, 64, 128)};
  kiln::Stream other = nullptr;
  REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &other, 1U) == 0);
  CHECK(engine.prepare(op, problems, machine.stream()).hits == 1);
  const Coverage coverage = engine.coverage(op, problems, other);
  REQUIRE(coverage.gaps.size() == 1);
  CHECK(coverage.gaps[0].workspace_missing);
  CHECK(coverage.gaps[0].serves == Origin::overlay);  // a capture allocates its own
  CHECK(contains(coverage.gaps[0].why, "no workspace for this stream yet"));
  CHECK(engine.coverage(op, problems, machine.stream()).hits == 1);
  CHECK(engine.coverage().hits == 1);
  CHECK(engine.prepare(op, problems, other).hits == 1);
}

TEST_CASE("prepare is refused on a capturing stream, and the capture goes on") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall call(engine, 64, 128);
  static_cast<void>(call.op.plan(call.problem, machine.stream()));
  const std::vector<Problem> problems = {call.problem, problem(call.op, 256, 128)};
  const Graph graph(machine, Graph::global, [&] {
    const kiln::Error error = error_of([&] { engine.prepare(call.op, problems, machine.stream()); });
    CHECK(error.kind() == ErrorKind::capture);
    CHECK(engine.coverage(call.op, problems, machine.stream()).hits == 1);
    call.op.launch(call.problem, call.arguments, machine.stream());
  });
  CHECK(engine.stats().tunes == 1);
  call.poison();
  graph.replay();
  call.check();
}

TEST_CASE("prepare goes on past what fails, tries no bucket twice, and says what failed") {
  const Machine machine;
  const TemporaryFolder folder;
  ScaleCall(Engine(options(folder / "overlay.kiln")), 64, 128).launch(machine.stream());
  const Engine engine(options(folder / "overlay.kiln", MissPolicy::error));
  const kiln::Op op = engine.op("scale");
  Problem outside = problem(op, 1, 128);
  outside[op.axis("rows")] = 5000;
  const std::vector<Problem> problems = {problem(op, 300, 128), outside, problem(op, 400, 128), problem(op, 64, 128)};
  const Coverage coverage = engine.prepare(op, problems, machine.stream());
  CHECK(coverage.total == 4);
  CHECK(coverage.hits == 1);
  REQUIRE(coverage.gaps.size() == 3);
  CHECK(contains(coverage.gaps[0].why, "no record for"));
  CHECK(contains(coverage.gaps[1].why, "4096"));
  CHECK(coverage.gaps[1].problem.empty());
  CHECK(contains(coverage.gaps[2].why, "no record for"));
  CHECK(engine.stats().misses.absent == 1);
}

TEST_CASE("prepare under the policy of fallbacks compiles each config once, and covers all") {
  const Machine machine;
  const Engine engine(options("", MissPolicy::nearest));
  const kiln::Op op = engine.op("scale");
  std::vector<Problem> problems;
  for (std::int64_t rows = 1; rows <= 4096; rows *= 2) problems.push_back(problem(op, rows, 128));
  const Coverage coverage = engine.prepare(op, problems, machine.stream());
  CHECK(coverage.hits == 0);
  CHECK(coverage.capturable());
  CHECK(engine.stats().compiles == 1);
}

TEST_CASE("another engine's op is refused") {
  const Machine machine;
  const Engine engine(options("")), other(options(""));
  const kiln::Op op = other.op("scale");
  const std::vector<Problem> problems = {problem(op, 64, 128)};
  CHECK(error_of([&] { engine.prepare(op, problems); }).kind() == ErrorKind::bad_input);
  CHECK(error_of([&] { static_cast<void>(engine.coverage(op, problems)); }).kind() == ErrorKind::bad_input);
}

}  // namespace e2e
