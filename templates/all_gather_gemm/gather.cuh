// The first pass: each rank pushes its rows to all others, and what arrives goes to `gathered` or, without it, to a workspace.
#pragma once

#include "common/team/gemm_parts.cuh"

/// Tensors in words of 16 bytes. `parts` has room for `most_rows` rows of each rank.
template <int World, int Threads>
__global__ __launch_bounds__(Threads) void all_gather_gemm_gather(const uint4* x, uint4* gathered, uint4* parts,
                                                                  int* counts, kiln::axis_length rows,
                                                                  long long rank_stride, int row_words, int most_rows,
                                                                  int chunk_rows,
                                                                  const __grid_constant__ kiln::team::Peers pushed,
                                                                  const __grid_constant__ kiln::team::Team team) {
  using namespace kiln::team;
  __shared__ GatherStorage<World> shared;
  const bool kept = gathered != nullptr;
  const GatheredRows to{kept ? gathered : parts, kept ? rank_stride : most_rows, counts};
  gather_rows<World, Threads>(x, to, rows, {pushed, row_words, most_rows, chunk_rows}, team, shared);
}
