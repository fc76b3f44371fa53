// A CUDA graph of what a test enqueues.
#pragma once

#include <doctest/doctest.h>

#include <array>

#include "cuda/device.hpp"

namespace kiln::gpu_tests {

/// Captures what `work` enqueues on a stream. A capture that does not end in a graph fails the test.
class Graph {
 public:
  template <typename Work>
  Graph(CUstream stream, CUstreamCaptureMode mode, Work work) : stream_(stream) {
    const cuda::Driver& driver = cuda::Driver::get();
    REQUIRE(driver.cuStreamBeginCapture_v2(stream, mode) == CUDA_SUCCESS);
    work();
    REQUIRE(driver.cuStreamEndCapture(stream, &graph_) == CUDA_SUCCESS);
    REQUIRE(driver.cuGraphInstantiateWithFlags(&executable_, graph_, 0) == CUDA_SUCCESS);
  }
  ~Graph() {
    const cuda::Driver& driver = cuda::Driver::get();
    if (executable_ != nullptr) driver.cuGraphExecDestroy(executable_);
    if (graph_ != nullptr) driver.cuGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay() const { replay(stream_); }
  void replay(CUstream stream) const {
    REQUIRE(cuda::Driver::get().cuGraphLaunch(executable_, stream) == CUDA_SUCCESS);
  }

 private:
  CUstream stream_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

inline constexpr std::array capture_modes = {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                             CU_STREAM_CAPTURE_MODE_RELAXED};

}  // namespace kiln::gpu_tests
