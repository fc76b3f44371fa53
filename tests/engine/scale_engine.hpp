// An engine of the op `scale` (tests/e2e/ops) on the fake driver: for tests of what launches do with loaded plans. Its records are the test's.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "answer/shelf.hpp"
#include "cuda/nvrtc_api.hpp"
#include "engine/state.hpp"
#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "plan/hit_path.hpp"

namespace kiln::engine::testing {

using namespace kiln::answer::testing;
using namespace kiln::plan;

using fake_cuda_tests::control;
using fake_cuda_tests::driver;
using fake_cuda_tests::query;

/// Whether the fake driver or NVRTC is missing; plans are loaded with both.
inline bool no_plans() {
  static const bool missing = [] {
    const char* path = std::getenv("KILN_CUDA_LIBRARY");
    if (path == nullptr || cuda::Driver::find() == nullptr || cuda::Nvrtc::find() == nullptr) return true;
    void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return library == nullptr || dlsym(library, "fake_cuda_control") == nullptr;
  }();
  return missing;
}

/// The error that `work` throws. Fails the test where it throws none.
template <class Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error was thrown");
  std::abort();
}

/// Choices of the op `scale`: one pass without a workspace, and two passes through one.
inline Chosen tiled(const std::string& config, const std::string& sizes = "") { return {sizes, config, 1000, "tiled"}; }
inline Chosen plain(const std::string& sizes = "") { return {sizes, "", 2000, "plain"}; }

class ScaleEngine {
 public:
  explicit ScaleEngine(MissPolicy on_miss = MissPolicy::error) : ScaleEngine(options(on_miss)) {}
  explicit ScaleEngine(const Options& chosen) : engine(chosen), op(engine.op_state(engine.ops.find("scale").value())) {
    x_ = machine.allocate(most_bytes);
    y_ = machine.allocate(most_bytes);
  }

  /// Stores a record of the bucket, tuned on this device.
  void put(const Problem& bucket, const std::vector<Chosen>& choices) {
    engine.layers.put_all(std::vector{record_with(op.op, bucket, choices, op.device())}, {});
  }
  [[nodiscard]] TensorId tensor(const char* name) const {
    const auto found = std::ranges::find(op.op.tensors, name, &manifest::Tensor::name);
    TensorId id{static_cast<std::uint8_t>(found - op.op.tensors.begin())};
    for (const manifest::Expression& each : found->strides)
      if (const auto value = op.op.runtime_of(each)) id.stride[id.strides++] = static_cast<std::uint8_t>(*value);
    return id;
  }
  /// y = 2 x, with x so many bytes past an address that every config takes.
  [[nodiscard]] Arguments arguments(std::size_t misalignment = 0) const {
    Arguments given;
    given.set(tensor("x"), reinterpret_cast<const void*>(x_ + misalignment));
    given.set(tensor("y"), reinterpret_cast<const void*>(y_));
    return given.set(RuntimeId{0, RuntimeId::Kind::real32}, 2.0);
  }
  Origin launch(const Problem& problem, const Arguments& given) {
    return plan::launch(op, problem, given, machine.stream);
  }
  Origin launch(const Problem& problem) { return launch(problem, arguments()); }
  [[nodiscard]] Stats stats() const { return engine.counters.read(); }
  /// Kernels run so far whose name has this part.
  [[nodiscard]] static std::int64_t runs(const std::string& part) { return query(("launches " + part).c_str()); }

  fake_cuda_tests::Fixture machine;
  EngineState engine;
  OpState& op;

  static Options options(MissPolicy on_miss) {
    Options chosen;
    chosen.overlay = "";
    chosen.on_miss = on_miss;
    chosen.template_paths = {std::filesystem::path(KILN_SOURCE_DIR) / "tests/e2e/ops"};
    chosen.isolation = Isolation::in_process;
    chosen.compile_workers = 1;
    return chosen;
  }

 private:
  static constexpr std::size_t most_bytes = 4096 * 128 * sizeof(float);
  CUdeviceptr x_ = 0, y_ = 0;
};

/// Captures what is enqueued on the stream while it lives; checks that nothing ended the capture before.
class Capture {
 public:
  explicit Capture(CUstream stream) : stream_(stream) {
    REQUIRE(driver().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  }
  ~Capture() {
    CUgraph graph = nullptr;
    CHECK(driver().cuStreamEndCapture(stream_, &graph) == CUDA_SUCCESS);
    if (graph != nullptr) driver().cuGraphDestroy(graph);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

 private:
  CUstream stream_;
};

}  // namespace kiln::engine::testing
