// Graphs: captured work in its order.
#pragma once

#include <utility>
#include <vector>

#include "stream/stream.hpp"

struct CUgraph_st {
  explicit CUgraph_st(std::vector<fake_cuda::Work> captured) : nodes(std::move(captured)) {}
  std::vector<fake_cuda::Work> nodes;
};

struct CUgraphExec_st {
  explicit CUgraphExec_st(std::vector<fake_cuda::Work> captured) : nodes(std::move(captured)) {}
  std::vector<fake_cuda::Work> nodes;
};
