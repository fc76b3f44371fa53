// A size of 0 on the host: nothing is launched, and the call returns.
#include <fmt/format.h>
#include <unistd.h>

#include <functional>

#include "cli/problem_set.hpp"
#include "faults/engine/fixture.hpp"
#include "kiln/team.hpp"

namespace kiln::faults {
namespace {

std::int64_t launches() { return query("launches"); }

/// An engine of a team of one, which launches every op.
class AnyOp {
 public:
  AnyOp()
      : team(std::make_shared<Team>(0, 1, fmt::format("kiln-zero-{}", getpid()),
                                    TeamOptions{.device = 0, .bytes = 1 << 20, .timeout = std::chrono::seconds(30)})),
        engine([&] {
          Options chosen = e2e::options(folder_ / "overlay.kiln", MissPolicy::error);
          chosen.team = team;
          return chosen;
        }()) {}

 private:
  TemporaryFolder folder_;

 public:
  const std::shared_ptr<Team> team;
  const Engine engine;
};

/// A legal problem of the op.
Problem sample_of(const manifest::Op& op) {
  Problem problem = cli::sample_problem(op, {});
  if (op.is_of_team()) problem.axes[static_cast<std::size_t>(op.team_axis())] = 1;
  return problem;
}

void check_does_nothing(const Engine& engine, const Op& op, const Problem& problem, Stream stream) {
  const std::int64_t before = launches();
  CHECK(op.launch(problem, {}, stream) == Origin::hot);
  const Plan plan = op.plan(problem, stream);
  CHECK(plan.launch(problem, {}, stream) == Origin::hot);
  CHECK(plan.implementation().empty());
  CHECK(plan.config().empty());
  CHECK(plan.workspace_bytes() == 0);
  CHECK(plan.footprint().registers == 0);
  CHECK(engine.prepare(op, {&problem, 1}, stream).hits == 1);
  CHECK(engine.coverage(op, {&problem, 1}, stream).gaps.empty());
  const Explanation explanation = engine.explain(op, problem);
  CHECK(contains(explanation.why, "is 0: a launch does nothing"));
  CHECK(explanation.bucket.empty());
  CHECK(launches() == before);
}

}  // namespace

TEST_CASE("fault 81: a size of 0 on any axis of any op launches nothing, whatever the arguments") {
  const Machine machine;
  const AnyOp any;
  const manifest::Catalogue ops(test_ops());
  std::int64_t cases = 0;
  for (const manifest::Op& described : ops.all()) {
    const Op op = any.engine.op(described.name);
    for (std::size_t i = 0; i < described.axes.size(); ++i) {
      CAPTURE(described.name);
      CAPTURE(described.axes[i].name);
      Problem problem = sample_of(described);
      problem.axes[i] = 0;
      if (described.axes[i].team) {
        CHECK(error_of([&] { op.launch(problem, {}, machine.stream()); }).kind() == ErrorKind::bad_input);
      } else {
        check_does_nothing(any.engine, op, problem, machine.stream());
      }
      ++cases;
    }
  }
  CHECK(any.engine.stats().launches() == 0);
  CHECK(any.engine.stats().misses.absent == 0);
  tally(81, cases, "axes of ops");
}

TEST_CASE("fault 81: what is wrong beside a size of 0 stays an error") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(tuned_overlay(folder), MissPolicy::error));
  const ScaleCall call(engine, 64, 128);
  const Plan plan = call.op.plan(call.problem), nothing = call.op.plan(call.op.problem({{"rows", 0}, {"cols", 128}}));
  const std::int64_t before = launches();
  std::int64_t cases = 0;
  const auto refuses = [&](const Problem& problem, const char* said) {
    for (const auto& work : std::initializer_list<std::function<void()>>{
             [&] { call.op.launch(problem, call.arguments, machine.stream()); },
             [&] { plan.launch(problem, call.arguments, machine.stream()); }, [&] { (void)call.op.plan(problem); },
             [&] { (void)engine.explain(call.op, problem); }}) {
      const Error error = error_of(work);
      CHECK(error.kind() == ErrorKind::bad_input);
      CHECK_MESSAGE(contains(error.what(), said), std::string(error.what()));
      ++cases;
    }
  };
  Problem problem = call.problem;
  problem[call.op.axis("rows")] = 0;
  problem[call.op.axis("cols")] = -1;
  refuses(problem, "axis 'cols' is -1");
  problem[call.op.axis("cols")] = 4097;
  refuses(problem, "axis 'cols' is 4097");
  problem[call.op.axis("cols")] = 128;
  problem.selections[0] = 200;
  refuses(problem, "is number 200");
  problem = call.problem;
  CHECK(contains(error_of([&] { nothing.launch(problem, call.arguments, machine.stream()); }).what(),
                 "is not of this plan's bucket, which has a size of 0"));
  const Op gather = engine.op("all_gather");  // this engine has no team
  const Problem rows = gather.problem({{"rows", 0}, {"cols", 64}, {"world", 2}, {"dtype", "f32"}});
  CHECK(contains(error_of([&] { gather.launch(rows, {}, machine.stream()); }).what(), "set Options::team"));
  CHECK(launches() == before);
  problem[call.op.axis("rows")] = 0;
  CHECK(plan.launch(problem, {}, machine.stream()) == Origin::hot);  // a batch without rows, by the plan of the others
  CHECK(call.launch(machine.stream()) == Origin::overlay);
  tally(81, cases + 4, "problems that are wrong beside a size of 0");
}

TEST_CASE("fault 81: a size of 0 in a capture adds nothing to its graph") {
  const Machine machine;
  const TemporaryFolder folder;
  const Engine engine(e2e::options(folder / "overlay.kiln", MissPolicy::error));
  const Op op = engine.op("scale");
  const Problem problem = op.problem({{"rows", 0}, {"cols", 128}});
  REQUIRE(driver_call<Stream, int>("cuStreamBeginCapture_v2", machine.stream(), 0) == 0);
  CHECK(op.launch(problem, {}, machine.stream()) == Origin::hot);
  CUgraph_st* graph = nullptr;
  REQUIRE(driver_call<Stream, CUgraph_st**>("cuStreamEndCapture", machine.stream(), &graph) == 0);
  REQUIRE(driver_call<CUgraph_st*>("cuGraphDestroy", graph) == 0);
  tally(81, 1, "captures");
}

TEST_CASE("fault 81: the command takes a size of 0 in a problem and in a trace, and tunes none") {
  const TemporaryFolder folder;
  const CopiedOp op(folder);
  const std::string kiln = "kiln" + op.globals(tuned_overlay(folder));
  write(folder / "t", "scale rows=0 cols=128\nscale rows=64 cols=128 dtype=f32\ngemm m=16 n=64 k=0 layout=tn\n");
  for (const char* kind : {"--dry-run ", "--policy error ", "--verify "})
    CHECK(contains(expect(0, kiln + "replay " + kind + (folder / "t").string()),
                   "1 problem, 1 of them distinct, in 1 bucket; 2 more lines with a size of 0 launch nothing"));
  write(folder / "t", "scale rows=0 cols=128\n");
  for (const char* kind : {"--dry-run --json ", "--policy error --json "})
    CHECK(value_of(expect(0, kiln + "replay " + kind + (folder / "t").string()), "empty") == "1");
  CHECK(contains(expect(0, kiln + "run gemm m=0 n=64 k=64"), "nothing is launched"));
  CHECK(contains(expect(0, kiln + "explain gemm m=16 n=64 k=0"), "axis 'k' is 0: a launch does nothing"));
  CHECK(contains(expect(2, kiln + "run gemm m=-1 n=64 k=64"), "axis 'm' is -1"));
  CHECK(contains(expect(2, kiln + "tune scale rows=0 cols=128"), "axis 'rows' is 0, expected 1 or more"));
  tally(81, 9, "commands");
}

}  // namespace kiln::faults
