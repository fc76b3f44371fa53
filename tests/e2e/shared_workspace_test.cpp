// Workspaces that all plans of a stream share: one block, which grows outside captures, and older ones that graphs hold.
#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::ErrorKind;

namespace {

ScaleCall call_of(const Engine& engine, std::int64_t rows) { return {engine, rows, 128, 0, "shared_scale"}; }

}  // namespace

TEST_CASE("plans of several buckets take one block of a stream") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall small = call_of(engine, 64), large = call_of(engine, 256);
  kiln::Stream tuning = nullptr;
  REQUIRE(driver_call<kiln::Stream*, unsigned>("cuStreamCreate", &tuning, 1U) == 0);
  static_cast<void>(large.op.plan(large.problem, tuning));
  static_cast<void>(small.op.plan(small.problem, tuning));
  CHECK(small.op.plan(small.problem, tuning).workspace_bytes() == 64 * 128 * 4);
  const std::int64_t before = query("allocations");
  small.launch(machine.stream());
  CHECK(query("allocations") == before + 1);
  large.launch(machine.stream());
  small.launch(machine.stream());
  CHECK(query("allocations") == before + 1);
}

TEST_CASE("a captured graph goes on using its block after a larger plan has been given a larger one") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall small = call_of(engine, 64), large = call_of(engine, 256);
  static_cast<void>(small.op.plan(small.problem, machine.stream()));
  const Graph graph(machine, Graph::global, [&] { small.op.launch(small.problem, small.arguments, machine.stream()); });
  large.launch(machine.stream());
  small.poison();
  graph.replay();
  machine.synchronize();
  small.check();
  small.launch(machine.stream());
}

TEST_CASE("a capture that needs a larger block than its stream has is told so, until the plan is made ready for it") {
  const Machine machine;
  const Engine engine(options(""));
  const ScaleCall small = call_of(engine, 64), large = call_of(engine, 256);
  static_cast<void>(small.op.plan(small.problem, machine.stream()));
  static_cast<void>(large.op.plan(large.problem));
  const Graph without(machine, Graph::global, [&] {
    CHECK(error_of([&] { large.op.launch(large.problem, large.arguments, machine.stream()); }).kind() ==
          ErrorKind::capture);
    small.op.launch(small.problem, small.arguments, machine.stream());
  });
  static_cast<void>(large.op.plan(large.problem, machine.stream()));
  large.poison();
  const Graph graph(machine, Graph::global, [&] { large.op.launch(large.problem, large.arguments, machine.stream()); });
  graph.replay();
  machine.synchronize();
  large.check();
}

}  // namespace e2e
