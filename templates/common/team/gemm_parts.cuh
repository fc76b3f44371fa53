// Where the rows of all ranks lie, for products of them. Each rank has a part, all with equal room, in chunks of rows
// that arrive one by one.
#pragma once

#include "common/length.cuh"
#include "common/team/chunks.cuh"
#include "common/team/copy.cuh"

namespace kiln::team {

/// Parts in each rank's symmetric workspace: part r has room for `most_rows` rows and is written by rank r. A chunk's flag says how many
/// rows the whole part has. A part without rows has one chunk all the same.
struct PushedParts {
  const Peers& of;
  int row_words;  // of 16 bytes
  int most_rows, chunk_rows;

  __device__ __forceinline__ int chunks(int rows) const { return max((rows + chunk_rows - 1) / chunk_rows, 1); }
  /// In the workspace of `at` in the half that is `half` bytes on: row `row` of `rank`'s part.
  __device__ __forceinline__ uint4* row(int at, unsigned long long half, int rank, int row) const {
    return reinterpret_cast<uint4*>(of.of[at] + half) + (static_cast<long long>(rank) * most_rows + row) * row_words;
  }
};

/// How many rows each rank has, as a launch was told.
struct PartRows {
  const int* counts;  // by rank; -1 where unknown; null: all have as many as this one
  int rank, own;      // this rank and its rows
  int most;           // that y has room for, of each rank

  __device__ __forceinline__ int of(int each) const {
    if (counts == nullptr || each == rank) return own;
    const int count = counts[each];
    return count < 0 ? most : min(count, most);
  }
  template <int World>
  __device__ __forceinline__ int longest_of_peers() const {
    int longest = 0;
#pragma unroll
    for (int i = 1; i < World; ++i) longest = max(longest, of(following<World>(rank, i)));
    return longest;
  }
};

/// Where gathered rows go, in this rank's own memory.
struct GatheredRows {
  uint4* first;
  long long rank_rows;  // from one rank's rows to the next's; those past it are not written
  int* counts;          // by rank: its rows, -1 where they did not come
};

template <int World>
struct GatherStorage {
  Epoch::storage epoch;
  int rows_of[World];  // -1 where they did not come
};

/// A launch that gathers, as one block has part in it: pushes its share of this rank's chunks, then copies its share of the others'.
template <int World, int Threads>
__device__ __forceinline__ void gather_rows(const uint4* x, const GatheredRows& to, const axis_length& length,
                                            const PushedParts& parts, const Team& team, GatherStorage<World>& shared) {
  constexpr int peers = World - 1;
  Epoch epoch(team, shared.epoch);
  const int own_rows = length.read(), first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const auto words_from = [&](int row, int rows) {
    return max(min(parts.chunk_rows, rows - row), 0) * parts.row_words;
  };
  const auto kept = [&](int rank, int row) { return to.first + (rank * to.rank_rows + row) * parts.row_words; };

  for (int chunk = first; chunk < parts.chunks(own_rows); chunk += step) {
    const int row = chunk * parts.chunk_rows, words = words_from(row, own_rows);
    uint4* targets[World] = {kept(team.rank, row)};
    if (epoch.failed()) {
      poison_words<Threads>(targets[0], words);
      continue;
    }
#pragma unroll
    for (int i = 1; i < World; ++i)
      targets[i] = parts.row(following<World>(team.rank, i), epoch.half(), team.rank, row);
    copy_words<Threads>(x + static_cast<long long>(row) * parts.row_words, targets, words);
    __syncthreads();
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < peers) epoch.send(following<World>(team.rank, thread + 1), chunk, own_rows);
  }
  launch_dependents();

  if (threadIdx.x < World) shared.rows_of[threadIdx.x] = static_cast<int>(threadIdx.x) == team.rank ? own_rows : -1;
  __syncthreads();
  epoch.await_all(peers, [&](int thread) {
    const int peer = following<World>(team.rank, thread + 1);
    return (shared.rows_of[peer] = epoch.await(peer, 0)) >= 0;
  });
  if (first == 0 && threadIdx.x < World) to.counts[threadIdx.x] = shared.rows_of[threadIdx.x];
  const int room = static_cast<int>(min(to.rank_rows, static_cast<long long>(parts.most_rows)));
  for (int index = first; index < parts.chunks(room) * peers; index += step) {
    const int chunk = index / max(peers, 1), peer = following<World>(team.rank, 1 + index % max(peers, 1));
    const int row = chunk * parts.chunk_rows, rows = shared.rows_of[peer];
    const int words = words_from(row, rows < 0 ? room : min(rows, room));
    if (words == 0) continue;
    const bool came = epoch.await_all(1, [&](int) { return rows >= 0 && epoch.await(peer, chunk) >= 0; });
    uint4* targets[1] = {kept(peer, row)};
    if (came) {
      copy_words<Threads>(parts.row(team.rank, epoch.half(), peer, row), targets, words);
    } else {
      poison_words<Threads>(targets[0], words);
    }
  }
  epoch.end();
}

}  // namespace kiln::team
