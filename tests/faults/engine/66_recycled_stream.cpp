// A workspace goes by the stream, not by its handle, which the driver gives to the next stream while the work of the destroyed one runs.
#include <thread>

#include "e2e/graph.hpp"
#include "faults/engine/fixture.hpp"

namespace kiln::faults {
namespace {

constexpr unsigned non_blocking = 1;

Stream new_stream() {
  Stream stream = nullptr;
  REQUIRE(driver_call<Stream*, unsigned>("cuStreamCreate", &stream, non_blocking) == 0);
  return stream;
}
void destroy(Stream stream) { REQUIRE(driver_call<Stream>("cuStreamDestroy_v2", stream) == 0); }
/// Runs all that was enqueued, a kernel of each stream in turns.
void run_all() { REQUIRE(driver_call<>("cuCtxSynchronize") == 0); }

/// Two calls whose plan copies its input to a workspace in one pass and reads it from there in the next.
struct TwoCalls {
  TwoCalls() {
    control("kernel wrong scale_tiled");  // so that the implementation with a workspace wins
    REQUIRE(one.op.plan(one.problem, machine.stream()).implementation() == "plain");
    control("heal; late 1");
    other.add_to_input(0.5F);
    one.poison();
    other.poison();
  }
  ~TwoCalls() { control("late 0"); }
  static void launch(const ScaleCall& call, Stream stream) { call.op.launch(call.problem, call.arguments, stream); }
  void check() const {
    run_all();
    one.check();
    other.check();
  }

  Machine machine;
  Engine engine{options("")};
  ScaleCall one{engine, 64, 128}, other{engine, 60, 128};
};

}  // namespace

TEST_CASE("fault 66: a stream that has the handle of a destroyed one does not share its workspace") {
  const TwoCalls calls;
  constexpr int rounds = 20;
  int given_again = 0;
  for (int round = 0; round < rounds; ++round) {
    calls.one.poison();
    calls.other.poison();
    const Stream gone = new_stream();
    TwoCalls::launch(calls.one, gone);
    destroy(gone);
    const Stream next = new_stream();
    given_again += next == gone ? 1 : 0;
    TwoCalls::launch(calls.other, next);
    calls.check();
    destroy(next);
  }
  CHECK(given_again == rounds);
  tally(66, rounds, "streams destroyed with work on them, and made again");
}

TEST_CASE("fault 66: two threads that launch on one stream do not mix the passes of their launches") {
  const TwoCalls calls;
  control("late 0; pause 50");
  std::jthread beside([&](const std::stop_token& stop) {
    CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", calls.machine.context()) == 0);
    while (!stop.stop_requested()) TwoCalls::launch(calls.other, calls.machine.stream());
  });
  constexpr int rounds = 100;
  for (int round = 0; round < rounds; ++round) {
    TwoCalls::launch(calls.one, calls.machine.stream());
    calls.one.check();
  }
  control("pause 0");
  tally(66, rounds, "launches of two threads on one stream");
}

TEST_CASE("fault 66: threads that end with work on their own default streams share no workspace") {
  const TwoCalls calls;
  const auto per_thread = reinterpret_cast<Stream>(std::uintptr_t{2});
  for (const ScaleCall* call : {&calls.one, &calls.other})
    std::thread([&] {
      CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", calls.machine.context()) == 0);
      TwoCalls::launch(*call, per_thread);
    }).join();
  calls.check();
  tally(66, 2, "threads that end with work on their own streams");
}

TEST_CASE("fault 66: an object of a thread that launches from its destructor has its workspace") {
  const TwoCalls calls;
  struct Late {
    const ScaleCall* call = nullptr;
    ~Late() { TwoCalls::launch(*call, reinterpret_cast<Stream>(std::uintptr_t{2})); }
  };
  std::thread([&] {
    CHECK(driver_call<CUctx_st*>("cuCtxPushCurrent_v2", calls.machine.context()) == 0);
    thread_local Late late;  // before what Kiln keeps for the thread, so that it ends after that
    late.call = &calls.one;
    TwoCalls::launch(calls.other, reinterpret_cast<Stream>(std::uintptr_t{2}));
  }).join();
  calls.check();
  tally(66, 1, "launches from destructors at a thread's end");
}

TEST_CASE("fault 66: a graph keeps its workspace when its stream is gone, and shares it with nobody") {
  const TwoCalls calls;
  const Stream captured = new_stream(), replayed = new_stream();
  const e2e::Graph graph(captured, e2e::Graph::global, [&] { TwoCalls::launch(calls.one, captured); });
  destroy(captured);
  const Stream next = new_stream();
  REQUIRE(next == captured);
  graph.replay(replayed);
  TwoCalls::launch(calls.other, next);
  calls.check();
  tally(66, 1, "graphs whose stream is gone");
}

TEST_CASE("fault 66: two graphs of one stream may run at once") {
  const TwoCalls calls;
  const Stream captured = new_stream(), first = new_stream(), second = new_stream();
  const e2e::Graph one(captured, e2e::Graph::global, [&] { TwoCalls::launch(calls.one, captured); });
  const e2e::Graph other(captured, e2e::Graph::global, [&] { TwoCalls::launch(calls.other, captured); });
  one.replay(first);
  other.replay(second);
  calls.check();
  tally(66, 1, "graphs of one stream at once");
}

TEST_CASE("fault 66: branches of one capture have a workspace each") {
  const TwoCalls calls;
  const Stream captured = new_stream(), branch = new_stream();
  CUevent_st* event = nullptr;
  REQUIRE(driver_call<CUevent_st**, unsigned>("cuEventCreate", &event, 2U) == 0);
  const std::int64_t before = query("allocations");
  const e2e::Graph graph(captured, e2e::Graph::global, [&] {
    REQUIRE(driver_call<CUevent_st*, Stream>("cuEventRecord", event, captured) == 0);
    REQUIRE(driver_call<Stream, CUevent_st*, unsigned>("cuStreamWaitEvent", branch, event, 0U) == 0);
    TwoCalls::launch(calls.one, captured);
    TwoCalls::launch(calls.other, branch);
  });
  CHECK(query("allocations") == before + 2);
  graph.replay();
  calls.check();
  tally(66, 1, "captures of two branches");
}

}  // namespace kiln::faults
