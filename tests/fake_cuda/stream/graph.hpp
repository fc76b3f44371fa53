// Graphs: captured work in its order.
#pragma once

#include <memory>
#include <vector>

#include "cuda/driver_types.hpp"
#include "stream/stream.hpp"

/// Calls its destructor when the last graph that retains it is gone.
struct CUuserObject_st {
  CUuserObject_st(void* of, CUhostFn ends) : pointer(of), destroy(ends) {}
  ~CUuserObject_st() { destroy(pointer); }
  CUuserObject_st(const CUuserObject_st&) = delete;
  CUuserObject_st& operator=(const CUuserObject_st&) = delete;
  void* pointer;
  CUhostFn destroy;
};

struct CUgraph_st {
  std::vector<fake_cuda::Work> nodes;
  std::vector<std::shared_ptr<CUuserObject_st>> retained;
};

struct CUgraphExec_st {
  explicit CUgraphExec_st(const CUgraph_st& graph) : nodes(graph.nodes), retained(graph.retained) {}
  std::vector<fake_cuda::Work> nodes;
  std::vector<std::shared_ptr<CUuserObject_st>> retained;
};
