#include <array>
#include <thread>

#include "fake_cuda/fixture.hpp"

namespace fake_cuda_tests {
namespace {

struct Capture {
  explicit Capture(const Fixture& of, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) : fixture(of) {
    REQUIRE(driver().cuStreamBeginCapture_v2(fixture.stream, mode) == CUDA_SUCCESS);
  }
  CUresult end() { return driver().cuStreamEndCapture(fixture.stream, &graph); }
  void replay() const {
    CUgraphExec executable = nullptr;
    REQUIRE(driver().cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    REQUIRE(driver().cuGraphLaunch(executable, fixture.stream) == CUDA_SUCCESS);
    CHECK(driver().cuGraphExecDestroy(executable) == CUDA_SUCCESS);
  }
  const Fixture& fixture;
  CUgraph graph = nullptr;
};

double elapsed_ns(CUevent begin, CUevent end) {
  float milliseconds = 0;
  REQUIRE(driver().cuEventElapsedTime_v2(&milliseconds, begin, end) == CUDA_SUCCESS);
  return static_cast<double>(milliseconds) * 1e6;
}

}  // namespace

TEST_CASE("a launch runs the host twin on the real parameters and takes virtual time") {
  const Fixture fixture;
  const FillKernel kernel;
  const CUdeviceptr out = fixture.allocate(400);
  CUevent begin = nullptr, end = nullptr;
  REQUIRE(driver().cuEventCreate(&begin, 0) == CUDA_SUCCESS);
  REQUIRE(driver().cuEventCreate(&end, 0) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(begin, fixture.stream) == CUDA_SUCCESS);
  CHECK(kernel.launch(out, 100, 2.5, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(end, fixture.stream) == CUDA_SUCCESS);
  CHECK(fixture.download<float>(out, 100) == std::vector<float>(100, 2.5F));
  const double once = elapsed_ns(begin, end);
  CHECK(once > 1000);
  control("kernel slow 10 fill_values");
  CHECK(driver().cuEventRecord(begin, fixture.stream) == CUDA_SUCCESS);
  CHECK(kernel.launch(out, 100, 2.5, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(end, fixture.stream) == CUDA_SUCCESS);
  CHECK(elapsed_ns(begin, end) > 9 * once);
}

TEST_CASE("with a footprint, launches run no kernel") {
  const Fixture fixture;
  const FillKernel kernel;
  const CUdeviceptr out = fixture.allocate(400);
  CHECK(kernel.launch(out, 100, 2.5F, fixture.stream) == CUDA_SUCCESS);
  for (const char* footprint : {"footprint 100", "footprint 65536"}) {
    control(footprint);
    CHECK(kernel.launch(out, 100, 7, fixture.stream) == CUDA_SUCCESS);
  }
  control("footprint 0");
  CHECK(fixture.download<float>(out, 100) == std::vector<float>(100, 2.5F));
  CHECK(kernel.launch(out, 100, 7, fixture.stream) == CUDA_SUCCESS);
  CHECK(fixture.download<float>(out, 100) == std::vector<float>(100, 7));
}

TEST_CASE("a launch that the device could not hold is refused") {
  const Fixture fixture;
  const FillKernel kernel;
  CHECK(kernel.launch(fixture.allocate(64), 16, 1, fixture.stream, 512) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("a kernel that leaves its tensor breaks the context, which later calls tell") {
  {
    const Fixture fixture;
    const FillKernel kernel;
    CHECK(kernel.launch(fixture.allocate(64), 17, 1, fixture.stream) == CUDA_SUCCESS);
    CHECK(driver().cuStreamSynchronize(fixture.stream) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr pointer = 0;
    CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  const Fixture fresh;
  fresh.allocate(64);
}

TEST_CASE("a kernel can be made to write a wrong value, or to fault") {
  const Fixture fixture;
  const FillKernel kernel;
  const CUdeviceptr out = fixture.allocate(64);
  control("kernel wrong fill_values<float>");
  CHECK(kernel.launch(out, 16, 1, fixture.stream) == CUDA_SUCCESS);
  const std::vector<float> values = fixture.download<float>(out, 16);
  CHECK(values[0] != 1.0F);
  CHECK(values[1] == 1.0F);
  control("heal; kernel fault fill_values<float>");
  CHECK(kernel.launch(out, 16, 1, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("a captured launch runs when its graph does, with the parameters of the capture") {
  const Fixture fixture;
  const FillKernel kernel;
  REQUIRE(driver().cuFuncLoad(kernel.function) == CUDA_SUCCESS);
  const CUdeviceptr out = fixture.upload(std::vector<float>(16, 0.0F));
  Capture capture(fixture);
  CHECK(kernel.launch(out, 16, 3, fixture.stream) == CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  CHECK(driver().cuStreamIsCapturing(fixture.stream, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(capture.end() == CUDA_SUCCESS);
  CHECK(fixture.download<float>(out, 16) == std::vector<float>(16, 0.0F));
  capture.replay();
  CHECK(fixture.download<float>(out, 16) == std::vector<float>(16, 3.0F));
}

TEST_CASE("a capture forbids allocating and synchronising, and is lost by either") {
  const Fixture fixture;
  CUdeviceptr pointer = 0;
  Capture first(fixture);
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(first.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Capture second(fixture, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_SUCCESS);
  CHECK(driver().cuStreamSynchronize(fixture.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(second.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Capture third(fixture);
  CHECK(third.end() == CUDA_SUCCESS);
}

TEST_CASE("which modes of a thread and of another's capture let it allocate, and which end the capture") {
  const Fixture fixture;
  struct Case {
    CUstreamCaptureMode capture, thread;
    bool allowed;
  };
  constexpr auto global = CU_STREAM_CAPTURE_MODE_GLOBAL, local = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                 relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  for (const Case& each : {Case{global, global, false}, Case{global, local, true}, Case{global, relaxed, true},
                           Case{local, global, true}, Case{relaxed, global, true}}) {
    CAPTURE(static_cast<int>(each.capture));
    CAPTURE(static_cast<int>(each.thread));
    const std::int64_t broken = query("broken"), unsafe = query("unsafe");
    Capture capture(fixture, each.capture);
    CUresult result = CUDA_SUCCESS;
    std::thread([&] {
      CUdeviceptr pointer = 0;
      driver().cuCtxPushCurrent_v2(fixture.context);
      CUstreamCaptureMode mode = each.thread;
      driver().cuThreadExchangeStreamCaptureMode(&mode);
      result = driver().cuMemAlloc_v2(&pointer, 64);
      driver().cuCtxPopCurrent_v2(nullptr);
    }).join();
    CHECK((result == CUDA_SUCCESS) == each.allowed);
    CHECK((capture.end() == CUDA_SUCCESS) == each.allowed);
    CHECK(query("broken") == broken + (each.allowed ? 0 : 1));
    CHECK(query("unsafe") == unsafe);  // that thread captured nothing
  }
}

TEST_CASE("a thread that says that it knows may allocate while it captures, but not wait for the device") {
  const Fixture fixture;
  CUdeviceptr pointer = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const std::int64_t unsafe = query("unsafe");
  driver().cuThreadExchangeStreamCaptureMode(&mode);
  Capture first(fixture);
  CHECK(driver().cuMemAlloc_v2(&pointer, 64) == CUDA_SUCCESS);
  CHECK(query("unsafe") == unsafe + 1);
  CHECK(first.end() == CUDA_SUCCESS);
  Capture second(fixture);
  CHECK(driver().cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(second.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  driver().cuThreadExchangeStreamCaptureMode(&mode);
}

TEST_CASE("a function is loaded by what asks for it, or by its first launch, which a capture forbids") {
  const Fixture fixture;
  const FillKernel lazy;
  const CUdeviceptr out = fixture.allocate(64);
  Capture first(fixture);
  CHECK(lazy.launch(out, 16, 1, fixture.stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(first.end() == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  REQUIRE(driver().cuFuncLoad(lazy.function) == CUDA_SUCCESS);
  Capture second(fixture);
  CHECK(lazy.launch(out, 16, 1, fixture.stream) == CUDA_SUCCESS);
  CHECK(second.end() == CUDA_SUCCESS);
}

TEST_CASE("work on the legacy stream, and every synchronous copy, ends captures of streams in order with it") {
  const Fixture fixture;
  const CUdeviceptr memory = fixture.allocate(64);
  CUstream blocking = nullptr;
  REQUIRE(driver().cuStreamCreate(&blocking, CU_STREAM_DEFAULT) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  const auto relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
  REQUIRE(driver().cuStreamBeginCapture_v2(blocking, relaxed) == CUDA_SUCCESS);
  CUstreamCaptureStatus status{};
  CHECK(driver().cuStreamIsCapturing(nullptr, &status) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CHECK(driver().cuMemsetD8Async(memory, 0, 64, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuStreamEndCapture(blocking, &graph) == CUDA_SUCCESS);  // asking ended nothing
  CHECK(driver().cuGraphDestroy(graph) == CUDA_SUCCESS);
  for (const int kind : {0, 1, 2}) {
    CAPTURE(kind);
    std::array<char, 64> host{};
    REQUIRE(driver().cuStreamBeginCapture_v2(blocking, relaxed) == CUDA_SUCCESS);
    const CUresult result = kind == 0   ? driver().cuMemsetD8Async(memory, 0, 64, nullptr)
                            : kind == 1 ? driver().cuMemcpyDtoH_v2(host.data(), memory, host.size())
                                        : driver().cuStreamSynchronize(nullptr);
    CHECK(result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    CHECK(driver().cuStreamEndCapture(blocking, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_CASE("a stream tells whose it is, and a reset of its device ends it") {
  const Fixture fixture;
  const FillKernel kernel;
  CUcontext owner = nullptr;
  CHECK(driver().cuStreamGetCtx(fixture.stream, &owner) == CUDA_SUCCESS);
  CHECK(owner == fixture.context);
  CHECK(extra<CUresult (*)(CUdevice)>("cuDevicePrimaryCtxReset_v2")(0) == CUDA_SUCCESS);
  CHECK(driver().cuStreamGetCtx(fixture.stream, &owner) == CUDA_ERROR_INVALID_HANDLE);
  CHECK(kernel.launch(fixture.allocate(64), 16, 1, nullptr) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("an event joins two streams' clocks") {
  const Fixture fixture;
  const FillKernel kernel;
  CUstream other = nullptr;
  CUevent begin = nullptr, done = nullptr, end = nullptr;
  REQUIRE(driver().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  for (CUevent* event : {&begin, &done, &end}) REQUIRE(driver().cuEventCreate(event, 0) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(begin, other) == CUDA_SUCCESS);
  CHECK(kernel.launch(fixture.allocate(64), 16, 1, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(done, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuStreamWaitEvent(other, done, 0) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(end, other) == CUDA_SUCCESS);
  CHECK(elapsed_ns(begin, end) > 1000);
}

}  // namespace fake_cuda_tests
