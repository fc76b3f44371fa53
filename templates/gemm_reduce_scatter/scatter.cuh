// The last pass: each rank pushes its products to the ranks that they are for, and adds up what arrives for itself.
#pragma once

#include "common/team/gemm_parts.cuh"
#include "common/vector.cuh"

namespace kiln::team {

/// Words 0 to `count` - 1 of `to`: sums over ranks in their order. Part r has `sizes[r]` words, and 0 from there on.
template <typename T, int World, int Threads>
__device__ __forceinline__ void add_parts(const uint4* const (&parts)[World], const int (&sizes)[World], uint4* to,
                                          int count) {
  constexpr int width = 16 / sizeof(T);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += Threads) {
    uint4 words[World];
#pragma unroll
    for (int rank = 0; rank < World; ++rank)
      words[rank] = i < sizes[rank] ? __ldcg(parts[rank] + i) : make_uint4(0, 0, 0, 0);
    vec<float, width> sum = to_floats<T, width>(words[0]);
#pragma unroll
    for (int rank = 1; rank < World; ++rank) {
      const vec<float, width> more = to_floats<T, width>(words[rank]);
#pragma unroll
      for (int j = 0; j < width; ++j) sum.at[j] += more.at[j];
    }
    to[i] = from_floats<T, width>(sum);
  }
}

}  // namespace kiln::team

/// Tensors in words of 16 bytes. Part r of `products`, with room for `most_rows` rows, is for rank r.
template <typename T, int World, int Threads>
__global__ __launch_bounds__(Threads) void gemm_reduce_scatter_exchange(
    const uint4* products, uint4* y, const int* counts, kiln::axis_length length, long long part_stride, int row_words,
    int most_rows, int chunk_rows, const __grid_constant__ kiln::team::Peers pushed,
    const __grid_constant__ kiln::team::Team team) {
  using namespace kiln::team;
  constexpr int peers = World - 1;
  __shared__ Epoch::storage epoch_storage;
  __shared__ int rows_of[World];
  Epoch epoch(team, epoch_storage);
  const int own_rows = length.read(), first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const PushedParts parts{pushed, row_words, most_rows, chunk_rows};
  const PartRows rows{counts, team.rank, own_rows,
                      static_cast<int>(min(part_stride, static_cast<long long>(most_rows)))};
  const auto words_from = [&](int row, int end) { return max(min(chunk_rows, end - row), 0) * row_words; };
  const auto product = [&](int of, int row) {
    return products + (static_cast<long long>(of) * most_rows + row) * row_words;
  };

  for (int index = first; index < parts.chunks(most_rows) * peers && !epoch.failed(); index += step) {
    const int chunk = index / max(peers, 1), to = following<World>(team.rank, 1 + index % max(peers, 1));
    const int row = chunk * chunk_rows, rows_to = rows.of(to);
    if (chunk >= parts.chunks(rows_to)) continue;
    uint4* const target[1] = {parts.row(to, epoch.half(), team.rank, row)};
    copy_words<Threads>(product(to, row), target, words_from(row, rows_to));
    __syncthreads();
    if (threadIdx.x == 0) epoch.send(to, chunk, rows_to);
  }
  kiln::launch_dependents();

  for (int chunk = first; chunk < parts.chunks(own_rows); chunk += step) {
    const bool came = epoch.await_all(peers, [&](int thread) {
      const int peer = following<World>(team.rank, thread + 1);
      rows_of[peer] = epoch.await(peer, 0);
      return rows_of[peer] >= 0 && (chunk >= parts.chunks(rows_of[peer]) || epoch.await(peer, chunk) >= 0);
    });
    const int row = chunk * chunk_rows, count = words_from(row, own_rows);
    uint4* const to = y + static_cast<long long>(row) * row_words;
    if (!came) {
      poison_words<Threads>(to, count);
      continue;
    }
    const uint4* words[World];
    int sizes[World];
#pragma unroll
    for (int of = 0; of < World; ++of) {
      const bool own = of == team.rank;
      words[of] = own ? product(of, row) : parts.row(team.rank, epoch.half(), of, row);
      sizes[of] = own ? count : min(count, words_from(row, rows_of[of]));
    }
    add_parts<T, World, Threads>(words, sizes, to, count);
    __syncthreads();  // all have read rows_of
  }
  epoch.end();
}
