// Captures on a device: every mode, hits and misses, beside other threads' work, replayed among eager launches.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "gpu/fixture.hpp"
#include "gpu/graph.hpp"

namespace kiln::gpu_tests {
namespace {

/// A stream that is in order with the legacy one, as cudaStreamCreate makes them.
class BlockingStream {
 public:
  BlockingStream() { REQUIRE(cuda::Driver::get().cuStreamCreate(&stream_, CU_STREAM_DEFAULT) == CUDA_SUCCESS); }
  ~BlockingStream() { cuda::Driver::get().cuStreamDestroy_v2(stream_); }
  BlockingStream(const BlockingStream&) = delete;
  BlockingStream& operator=(const BlockingStream&) = delete;
  [[nodiscard]] CUstream handle() const noexcept { return stream_; }

 private:
  CUstream stream_ = nullptr;
};

/// One problem of an op with its tensors and what the reference made of them.
struct Call {
  Call(Fixture& fixture, const Engine& engine, const char* name, std::initializer_list<manifest::Setting> settings)
      : op(engine.op(name)),
        problem(fixture.problem(fixture.op(name), settings)),
        stream(fixture.stream.handle()),
        verified({fixture.op(name), fixture.facts()}, problem, fixture.arch(), fixture.cubins, 3, stream) {}
  Origin launch(CUstream on) { return op.launch(problem, verified.arguments(), on); }
  void poison() {
    verified.poison(stream);
    cuda::check(cuda::Driver::get().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  void check(CUstream after) {
    cuda::check(cuda::Driver::get().cuStreamSynchronize(after), "cuStreamSynchronize");
    const tune::Check found = verified.check(stream);
    CHECK_MESSAGE(found.right, found.reason);
  }

  Op op;
  Problem problem;
  CUstream stream;
  tune::VerificationCase verified;
};

}  // namespace

TEST_CASE("in every capture mode, hits and misses with a stand-in give graphs that compute what launches do") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  Call ready(fixture, engine, "rms_norm", {{"rows", "64"}, {"cols", "512"}, {"dtype", "bf16"}});
  Call missed(fixture, engine, "rms_norm", {{"rows", "1000"}, {"cols", "512"}, {"dtype", "bf16"}});
  ready.op.plan(ready.problem, ready.stream);
  for (const CUstreamCaptureMode mode : capture_modes) {
    CAPTURE(static_cast<int>(mode));
    ready.poison();
    missed.poison();
    const Graph graph(ready.stream, mode, [&] {
      ready.launch(ready.stream);
      CHECK(missed.launch(ready.stream) == Origin::nearest);
    });
    graph.replay();
    ready.check(ready.stream);
    missed.check(ready.stream);
  }
}

TEST_CASE("in every capture mode, a miss that nothing can serve is refused and the capture goes on") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  Call ready(fixture, engine, "gemm", {{"m", "64"}, {"n", "256"}, {"k", "512"}, {"dtype", "bf16"}});
  Call missed(fixture, engine, "gemm", {{"m", "64"}, {"n", "256"}, {"k", "512"}, {"dtype", "f16"}});
  const std::vector<Problem> problems = {ready.problem, missed.problem};
  CHECK(engine.prepare(ready.op, {problems.data(), 1}, ready.stream).capturable());
  CHECK_FALSE(engine.coverage(ready.op, problems, ready.stream).capturable());
  for (const CUstreamCaptureMode mode : capture_modes) {
    CAPTURE(static_cast<int>(mode));
    ready.poison();
    const Graph graph(ready.stream, mode, [&] {
      CHECK_THROWS_AS(missed.launch(ready.stream), Error);
      ready.launch(ready.stream);
    });
    graph.replay();
    ready.check(ready.stream);
  }
}

TEST_CASE("while another thread tunes, loads, makes and ends engines, captures on any stream end in graphs") {
  Fixture fixture;
  Options in_process = options(MissPolicy::tune, "");
  in_process.isolation = Isolation::in_process;  // candidates run in this very context
  const Engine tuned(in_process), engine(options(MissPolicy::nearest, ""));
  Call ready(fixture, engine, "softmax", {{"rows", "64"}, {"cols", "1024"}, {"dtype", "f32"}});
  Call missed(fixture, engine, "softmax", {{"rows", "500"}, {"cols", "1024"}, {"dtype", "f32"}});
  const BlockingStream blocking;
  ready.op.plan(ready.problem, blocking.handle());
  ready.op.plan(ready.problem, ready.stream);
  ready.poison();
  missed.poison();
  std::atomic<bool> over{false};
  std::atomic<int> failures{0};
  std::thread other([&] {
    try {
      const cuda::Context::Scope scope(fixture.context);
      const cuda::Stream stream;
      for (const char* rows : {"8", "128", "2000"}) {
        const Op op = tuned.op("softmax");
        op.plan(fixture.problem(fixture.op("softmax"), {{"rows", rows}, {"cols", "768"}, {"dtype", "f32"}}),
                stream.handle());
        const Engine brief(options(MissPolicy::nearest, ""));
        brief.op("rms_norm")
            .plan(fixture.problem(fixture.op("rms_norm"), {{"rows", rows}, {"cols", "768"}, {"dtype", "f32"}}));
      }
    } catch (const std::exception& error) {
      ++failures;
      std::fprintf(stderr, "%s\n", error.what());
    }
    over = true;
  });
  std::int64_t captures = 0;
  while (!over || captures < 6)
    for (const CUstream stream : {ready.stream, blocking.handle()})
      for (const CUstreamCaptureMode mode : capture_modes) {
        const Graph graph(stream, mode, [&] {
          ready.launch(stream);
          missed.launch(stream);
        });
        graph.replay();
        ++captures;
      }
  other.join();
  CHECK(failures == 0);
  CHECK(tuned.stats().tunes == 3);
  ready.check(blocking.handle());
  missed.check(blocking.handle());
  MESSAGE(captures, " captures");
}

TEST_CASE("graphs and eager launches of one plan follow each other on a stream, workspace and all") {
  Fixture fixture;
  Options chosen = options(MissPolicy::tune, "");
  chosen.search.trials = 24;
  const Engine engine(chosen);
  Call captured(fixture, engine, "gemm", {{"m", "16"}, {"n", "256"}, {"k", "8192"}, {"dtype", "bf16"}});
  Call eager(fixture, engine, "gemm", {{"m", "13"}, {"n", "256"}, {"k", "8192"}, {"dtype", "bf16"}});
  const Plan plan = captured.op.plan(captured.problem, captured.stream);
  MESSAGE(std::string(plan.implementation()), " ", std::string(plan.config()), ", workspace ", plan.workspace_bytes());
  const Graph graph(captured.stream, CU_STREAM_CAPTURE_MODE_GLOBAL, [&] { captured.launch(captured.stream); });
  for (int i = 0; i < 20; ++i) {
    captured.poison();
    eager.poison();
    graph.replay();
    eager.launch(captured.stream);
    graph.replay();
    captured.check(captured.stream);
    eager.check(captured.stream);
  }
}

TEST_CASE("a miss on the legacy stream does not end the capture of a stream in order with it") {
  Fixture fixture;
  const Engine engine(options(MissPolicy::nearest, ""));
  Call ready(fixture, engine, "rms_norm", {{"rows", "64"}, {"cols", "512"}, {"dtype", "bf16"}});
  const BlockingStream blocking;
  ready.op.plan(ready.problem, blocking.handle());
  Problem missed = ready.problem;
  missed[ready.op.axis("rows")] = 3;
  ready.poison();
  const Graph graph(blocking.handle(), CU_STREAM_CAPTURE_MODE_RELAXED, [&] {
    CHECK_THROWS_AS(ready.op.launch(missed, ready.verified.arguments(), nullptr), Error);
    ready.launch(blocking.handle());
  });
  graph.replay();
  ready.check(blocking.handle());
}

TEST_CASE("a stream of another device is refused with whose it is") {
  Fixture fixture;
  if (cuda::devices().size() < 2) {
    MESSAGE("skipped: one device");
    return;
  }
  const cuda::Context other(1);
  std::unique_ptr<cuda::Stream> stream;
  {
    const cuda::Context::Scope scope(other);
    stream = std::make_unique<cuda::Stream>();
  }
  const Engine engine(options(MissPolicy::nearest, ""));
  Call call(fixture, engine, "rms_norm", {{"rows", "64"}, {"cols", "512"}, {"dtype", "bf16"}});
  const auto refused = [&](const char* lane) {
    CAPTURE(lane);
    try {
      call.launch(stream->handle());
      FAIL("launched");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::bad_input);
      CHECK_MESSAGE(std::string(error.what()).find("of device 1") != std::string::npos, error.what());
    }
  };
  refused("a miss");
  call.op.plan(call.problem);
  refused("a hit");
  call.poison();
  call.launch(call.stream);
  call.check(call.stream);
}

}  // namespace kiln::gpu_tests
