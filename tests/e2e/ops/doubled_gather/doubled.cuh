#pragma once

#include "common/length.cuh"
#include "common/team/protocol.cuh"

__global__ void doubled_rows_reference(const float* x, float* y, long long rows, long long cols, long long rank_stride,
                                       long long world) {
  for (long long i = threadIdx.x; i < world * rows * cols; i += blockDim.x)
    y[i / (rows * cols) * rank_stride * cols + i % (rows * cols)] = 2 * x[i];
}

/// By one block.
template <int threads>
__global__ void doubled_rows(const float* x, float* y, long long count) {
  for (long long i = threadIdx.x; i < count; i += threads) y[i] = 2 * x[i];
}

/// The fake driver has what templates/all_gather computes under this name.
template <int World, int Threads>
__global__ void all_gather_push(const uint4* x, uint4* y, int* counts, kiln::axis_length rows, long long rank_stride,
                                int row_words, int most_rows, int chunk_words, int most_chunks, int pushers,
                                const __grid_constant__ kiln::team::Peers parts,
                                const __grid_constant__ kiln::team::Team team) {
  if (rows.read() > rank_stride + row_words + most_rows + chunk_words + most_chunks + pushers + team.rank)
    y[0] = counts == nullptr ? x[0] : *reinterpret_cast<const uint4*>(parts.of[0]);
}
