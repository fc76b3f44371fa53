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
  CHECK(kernel.launch(out, 100, 2.5F, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(end, fixture.stream) == CUDA_SUCCESS);
  CHECK(fixture.download<float>(out, 100) == std::vector<float>(100, 2.5F));
  const double once = elapsed_ns(begin, end);
  CHECK(once > 1000);
  control("kernel slow 10 fill_values");
  CHECK(driver().cuEventRecord(begin, fixture.stream) == CUDA_SUCCESS);
  CHECK(kernel.launch(out, 100, 2.5F, fixture.stream) == CUDA_SUCCESS);
  CHECK(driver().cuEventRecord(end, fixture.stream) == CUDA_SUCCESS);
  CHECK(elapsed_ns(begin, end) > 9 * once);
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
