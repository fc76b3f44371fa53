// A CUDA graph of what a test enqueues.
#pragma once

#include <utility>

#include "e2e/machine.hpp"

namespace e2e {

/// Captures what `work` enqueues on a stream, and runs it on that stream.
class Graph {
 public:
  static constexpr int global = 0, thread_local_ = 1, relaxed = 2;  // CUstreamCaptureMode
  template <typename Work>
  Graph(kiln::Stream stream, int mode, Work work) : stream_(stream) {
    REQUIRE(driver_call<kiln::Stream, int>("cuStreamBeginCapture_v2", stream, mode) == 0);
    work();
    REQUIRE(driver_call<kiln::Stream, CUgraph_st**>("cuStreamEndCapture", stream, &graph_) == 0);
    REQUIRE(driver_call<CUgraphExec_st**, CUgraph_st*, unsigned long long>("cuGraphInstantiateWithFlags", &executable_,
                                                                           graph_, 0ULL) == 0);
  }
  template <typename Work>
  Graph(const Machine& machine, int mode, Work work) : Graph(machine.stream(), mode, work) {}
  ~Graph() { destroy(); }
  void destroy() {
    if (CUgraphExec_st* const executable = std::exchange(executable_, nullptr))
      driver_call<CUgraphExec_st*>("cuGraphExecDestroy", executable);
    if (CUgraph_st* const graph = std::exchange(graph_, nullptr)) driver_call<CUgraph_st*>("cuGraphDestroy", graph);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay() const { replay(stream_); }
  void replay(kiln::Stream stream) const {
    REQUIRE(driver_call<CUgraphExec_st*, kiln::Stream>("cuGraphLaunch", executable_, stream) == 0);
  }

 private:
  kiln::Stream stream_;
  CUgraph_st* graph_ = nullptr;
  CUgraphExec_st* executable_ = nullptr;
};

}  // namespace e2e
