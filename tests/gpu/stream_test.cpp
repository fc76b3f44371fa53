// A stream's life on a device: handles that are given again, threads that end, graphs that outlive their stream, memory that returns.
#include <thread>

#include "gpu/fixture.hpp"
#include "gpu/graph.hpp"

namespace kiln::gpu_tests {
namespace {

/// attention_backward with inputs of its own, which sums dq in a workspace; a launch takes a millisecond.
struct Gradients {
  Gradients(Fixture& fixture, const Engine& engine, std::uint64_t seed)
      : op(engine.op("attention_backward")),
        problem(fixture.problem(fixture.op("attention_backward"), {{"batch", "1"},
                                                                   {"heads", "1"},
                                                                   {"key_heads", "1"},
                                                                   {"queries", "8192"},
                                                                   {"keys", "8192"},
                                                                   {"head_dim", "128"},
                                                                   {"value_dim", "128"},
                                                                   {"dtype", "bf16"}})),
        stream(fixture.stream.handle()),
        verified({fixture.op("attention_backward"), fixture.facts()}, problem, fixture.arch(), fixture.cubins, seed,
                 stream) {}
  void launch(CUstream on) { op.launch(problem, verified.arguments(), on); }
  void poison() {
    verified.poison(stream);
    synchronize();
  }
  static void synchronize() { cuda::check(cuda::Driver::get().cuCtxSynchronize(), "cuCtxSynchronize"); }
  void check() {
    synchronize();
    const tune::Check found = verified.check(stream);
    CHECK_MESSAGE(found.right, found.reason);
  }

  Op op;
  Problem problem;
  CUstream stream;
  tune::VerificationCase verified;
};

CUstream new_stream() {
  CUstream stream = nullptr;
  cuda::check(cuda::Driver::get().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

struct TwoGradients {
  TwoGradients() {
    one.launch(one.stream);
    MESSAGE("workspace ", one.op.plan(one.problem).workspace_bytes());
  }
  void poison() {
    one.poison();
    other.poison();
  }
  void check() {
    one.check();
    other.check();
  }
  Fixture fixture;
  Engine engine{options(MissPolicy::nearest, "")};
  Gradients one{fixture, engine, 3}, other{fixture, engine, 4};
};

}  // namespace

TEST_CASE("a stream that has the handle of a destroyed one, whose work runs, shares no workspace with it") {
  TwoGradients calls;
  int given_again = 0;
  for (int round = 0; round < 60; ++round) {
    calls.poison();
    const CUstream gone = new_stream();
    calls.one.launch(gone);
    cuda::Driver::get().cuStreamDestroy_v2(gone);
    std::vector<CUstream> next{new_stream()};
    while (next.back() != gone && next.size() < 64) next.push_back(new_stream());
    given_again += next.back() == gone ? 1 : 0;
    calls.other.launch(next.back());
    calls.check();
    for (CUstream each : next) cuda::Driver::get().cuStreamDestroy_v2(each);
  }
  MESSAGE(given_again, " of 60 handles given again");
}

TEST_CASE("threads that end with work on their own default streams share no workspace") {
  TwoGradients calls;
  for (int round = 0; round < 10; ++round) {
    calls.poison();
    for (Gradients* call : {&calls.one, &calls.other})
      std::thread([&] {
        const cuda::Context::Scope scope(calls.fixture.context);
        call->launch(reinterpret_cast<CUstream>(std::uintptr_t{2}));
      }).join();
    calls.check();
  }
}

TEST_CASE("graphs of one stream, which is gone, run at once and beside a stream that has its handle") {
  TwoGradients calls;
  const CUstream captured = new_stream();
  const cuda::Stream first, second;
  const Graph one(captured, CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { calls.one.launch(captured); });
  const Graph other(captured, CU_STREAM_CAPTURE_MODE_RELAXED, [&] { calls.other.launch(captured); });
  cuda::Driver::get().cuStreamDestroy_v2(captured);
  const CUstream next = new_stream();
  for (int round = 0; round < 20; ++round) {
    calls.poison();
    one.replay(first.handle());
    other.replay(second.handle());
    calls.check();
    calls.poison();
    one.replay(first.handle());
    calls.other.launch(next);
    calls.check();
  }
  cuda::Driver::get().cuStreamDestroy_v2(next);
}

TEST_CASE("device memory of bursts of streams is bounded, and trim gives it back") {
  TwoGradients calls;
  static_cast<void>(calls.engine.trim());
  const std::int64_t each = calls.one.op.plan(calls.one.problem).workspace_bytes();
  static_cast<void>(calls.engine.trim());
  for (int burst = 0; burst < 6; ++burst) {
    std::vector<CUstream> streams;
    for (int i = 0; i < 50; ++i) calls.one.launch(streams.emplace_back(new_stream()));
    for (CUstream stream : streams) cuda::Driver::get().cuStreamDestroy_v2(stream);
    const std::int64_t held = calls.engine.stats().workspace_bytes;
    MESSAGE(burst, ": ", held);
    CHECK(held <= 150 * each + (std::int64_t{64} << 20));
  }
  CHECK(calls.engine.trim() > 0);
  CHECK(calls.engine.stats().workspace_bytes == 0);
  calls.one.poison();
  calls.one.launch(calls.one.stream);
  calls.one.check();
}

}  // namespace kiln::gpu_tests
