// Workspaces: one block of a stream for all plans, one for each capture, and what becomes of a thread's own stream.
#include <thread>

#include "e2e/engine_fixture.hpp"
#include "e2e/graph.hpp"

namespace e2e {

using kiln::Engine;
using kiln::Origin;

namespace {

constexpr std::int64_t row_bytes = 128 * 4;

kiln::Stream per_thread() { return reinterpret_cast<kiln::Stream>(std::uintptr_t{2}); }  // CU_STREAM_PER_THREAD

Origin launch(const ScaleCall& call, kiln::Stream stream) {
  return call.op.launch(call.problem, call.arguments, stream);
}

/// Calls of two buckets whose plans, which are loaded, have workspaces.
struct Calls {
  Calls() {
    control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
    for (const ScaleCall* each : {&small, &large}) REQUIRE(each->op.plan(each->problem).implementation() == "plain");
    control("heal");
    static_cast<void>(engine.trim());
  }
  [[nodiscard]] std::int64_t held() const { return engine.stats().workspace_bytes; }

  Machine machine;
  Engine engine{options("")};
  ScaleCall small{engine, 64, 128}, large{engine, 256, 128};
};

}  // namespace

TEST_CASE("all plans of a stream take one block") {
  const Calls calls;
  CHECK(calls.small.op.plan(calls.small.problem).workspace_bytes() == 64 * row_bytes);
  static_cast<void>(calls.engine.trim());
  calls.large.launch(calls.machine.stream());
  const std::int64_t before = query("allocations");
  calls.small.launch(calls.machine.stream());
  calls.large.launch(calls.machine.stream());
  CHECK(query("allocations") == before);
  CHECK(calls.held() == 256 * row_bytes);
}

TEST_CASE("a capture allocates the workspaces that it needs, in every mode, and ends no capture") {
  const Calls calls;
  for (const int mode : {Graph::global, Graph::thread_local_, Graph::relaxed}) {
    const std::int64_t broken = query("broken");
    Graph graph(calls.machine, mode, [&] {
      CHECK_FALSE(is_fallback(launch(calls.small, calls.machine.stream())));
      CHECK_FALSE(is_fallback(launch(calls.large, calls.machine.stream())));
      CHECK_FALSE(is_fallback(launch(calls.small, calls.machine.stream())));
    });
    CHECK(query("broken") == broken);
    CHECK(calls.held() == (64 + 256) * row_bytes);
    CHECK(calls.engine.trim() == 0);  // the graph keeps them
    calls.small.poison();
    calls.large.poison();
    graph.replay();
    calls.small.check();
    calls.large.check();
    graph.destroy();
    CHECK(calls.engine.trim() == (64 + 256) * row_bytes);
  }
}

TEST_CASE("a capture that memory lacks for is told so, and goes on") {
  const Calls calls;
  const Graph graph(calls.machine, Graph::global, [&] {
    control("fail cuMemAlloc_v2 CUDA_ERROR_OUT_OF_MEMORY");
    CHECK(error_of([&] { launch(calls.small, calls.machine.stream()); }).kind() == kiln::ErrorKind::out_of_memory);
    control("heal");
    launch(calls.small, calls.machine.stream());
  });
  calls.small.poison();
  graph.replay();
  calls.small.check();
}

TEST_CASE("a thread's own stream has a workspace of its own, which goes with the thread") {
  const Calls calls;
  for (const bool has_context : {true, false, true})
    std::thread([&] {
      if (has_context) CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", calls.machine.context()) == 0);
      CHECK_FALSE(is_fallback(launch(calls.small, per_thread())));
    }).join();
  CHECK(calls.held() == 3 * 64 * row_bytes);
  launch(calls.small, calls.machine.stream());
  CHECK(calls.engine.trim() == 4 * 64 * row_bytes);
}

TEST_CASE("a capture on a thread's own stream has its workspace") {
  const Calls calls;
  std::thread([&] {
    CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", calls.machine.context()) == 0);
    const Graph graph(per_thread(), Graph::relaxed,
                      [&] { CHECK_FALSE(is_fallback(launch(calls.small, per_thread()))); });
    calls.small.poison();
    graph.replay();
    calls.small.check();
  }).join();
}

}  // namespace e2e
