// What a program enqueues on a stream, captured once as a CUDA graph.
#pragma once

#include "cuda/device.hpp"

namespace kiln::bench {

class Captured {
 public:
  /// `work` enqueues on `stream`. Throws Error(driver_failed) where it cannot be captured.
  template <class Work>
  Captured(CUstream stream, const Work& work) {
    const cuda::Driver& driver = cuda::Driver::get();
    cuda::check(driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    work();
    CUgraph graph = nullptr;
    cuda::check(driver.cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
    const CUresult made = driver.cuGraphInstantiateWithFlags(&executable_, graph, 0);
    driver.cuGraphDestroy(graph);
    cuda::check(made, "cuGraphInstantiate");
  }
  ~Captured() { cuda::Driver::get().cuGraphExecDestroy(executable_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  void launch(CUstream stream) const {
    cuda::check(cuda::Driver::get().cuGraphLaunch(executable_, stream), "cuGraphLaunch");
  }

 private:
  CUgraphExec executable_ = nullptr;
};

}  // namespace kiln::bench
