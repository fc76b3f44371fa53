// The threads' own default streams, which have one handle: whose workspace is whose.
#include <thread>

#include "e2e/engine_fixture.hpp"

namespace e2e {

namespace {

kiln::Stream per_thread() { return reinterpret_cast<kiln::Stream>(std::uintptr_t{2}); }  // CU_STREAM_PER_THREAD

/// A call whose plan has a workspace, launched by threads that come and go.
struct Threads {
  Threads() {
    control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
    REQUIRE(call.op.plan(call.problem, machine.stream()).implementation() == "plain");
    control("heal");
    while (made_by_one() != 0) {  // until none takes the place of a thread of other tests
    }
  }

  /// Workspaces that are made while one more thread launches, does `work`, and ends.
  template <typename Work>
  std::int64_t made_by_one(Work work) {
    const std::int64_t before = query("calls cuMemAlloc_v2");
    std::thread([&] {
      CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", machine.context()) == 0);
      CHECK_FALSE(is_fallback(call.op.launch(call.problem, call.arguments, per_thread())));
      work();
    }).join();
    return query("calls cuMemAlloc_v2") - before;
  }
  std::int64_t made_by_one() {
    return made_by_one([] {});
  }

  Machine machine;
  kiln::Engine engine{options("")};
  ScaleCall call{engine, 64, 128};
};

}  // namespace

TEST_CASE("a thread whose own stream was idle at its end leaves its workspace to another") {
  Threads threads;
  CHECK(threads.made_by_one() == 0);
  CHECK(threads.made_by_one([&] { CHECK(threads.made_by_one() == 1); }) == 1);  // two at once
  CHECK(threads.made_by_one([&] { CHECK(threads.made_by_one() == 0); }) == 0);
}

TEST_CASE("a thread whose own stream may still run at its end leaves its workspace to nobody") {
  Threads threads;
  const auto ends_busy = [] { control("fail cuStreamQuery 600"); };  // CUDA_ERROR_NOT_READY
  const auto ends_without_context = [] { driver_call<CUctx_st**>("cuCtxPopCurrent_v2", nullptr); };
  CHECK(threads.made_by_one(ends_busy) == 0);
  CHECK(threads.made_by_one(ends_without_context) == 1);
  CHECK(threads.made_by_one() == 1);
  CHECK(threads.made_by_one() == 0);
}

TEST_CASE("what a capture on a thread's own stream missed is made for that thread") {
  Threads threads;
  const ScaleCall missed(threads.engine, 1000, 128);
  std::thread([&] {
    CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", threads.machine.context()) == 0);
    control("kernel wrong scale_tiled");
    const auto captured = [&](auto work) {
      CHECK(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", per_thread(), 2) == 0);
      work();
      CUgraph_st* graph = nullptr;
      CHECK(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", per_thread(), &graph) == 0);
      driver_call<CUgraph_st*>("cuGraphDestroy", graph);
    };
    const auto launch = [&] { return missed.op.launch(missed.problem, missed.arguments, per_thread()); };
    captured([&] { CHECK(error_of(launch).kind() == kiln::ErrorKind::capture); });
    std::thread([&] {
      CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", threads.machine.context()) == 0);
      static_cast<void>(missed.op.plan(missed.problem));
    }).join();
    captured([&] { CHECK_FALSE(is_fallback(launch())); });
  }).join();
}

}  // namespace e2e
