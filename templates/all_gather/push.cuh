// Each rank pushes its rows to all others, chunk by chunk, and copies what arrives to y.
#pragma once

#include "common/length.cuh"
#include "common/team/chunks.cuh"
#include "common/team/copy.cuh"

namespace kiln {

/// x and y in words of 16 bytes.
struct gathered {
  const uint4* x;
  uint4* y;
  int* counts;            // rows of each rank, -1 for one that did not come; may be null
  long long rank_stride;  // words of y from one rank's rows to the next's; those past it are not written
  int row_words;
  int most_rows;  // of any rank
};

template <int World, int Threads>
struct all_gather_block {
  const gathered& tensors;
  const team::Chunks<World>& chunks;
  const team::Peers& parts;
  const team::Team& team;
  team::Epoch& epoch;

  /// Claimed chunks of this rank's rows, to its peers' workspaces and to y.
  __device__ __forceinline__ void push(int rows, team::Claims claims) const {
    const long long part_words = static_cast<long long>(rows) * tensors.row_words;
    uint4* own = tensors.y + team.rank * tensors.rank_stride;
    const unsigned count = chunks.count(part_words);
    for (unsigned claimed = claims.next(), next; claimed < count; claimed = next) {
      const int chunk = static_cast<int>(claimed), words = chunks.size(chunk, part_words);
      if (epoch.failed()) {
        team::poison_words<Threads>(own + chunks.first(chunk), words);
      } else {
        uint4* targets[World] = {own + chunks.first(chunk)};
#pragma unroll
        for (int i = 1; i < World; ++i) {
          const int peer = team::following<World>(team.rank, i);
          targets[i] = chunks.place(parts.of[peer] + epoch.half(), chunk, team.rank);
        }
        team::copy_words<Threads>(tensors.x + chunks.first(chunk), targets, words);
      }
      if (chunk == 0 && threadIdx.x == 0) tell_count(team.rank, epoch.failed() ? -1 : rows);
      next = claims.next();
      if (threadIdx.x < World - 1 && !epoch.failed())
        epoch.send(team::following<World>(team.rank, static_cast<int>(threadIdx.x) + 1), chunk, rows);
    }
  }

  /// Claimed chunks of the others' rows, in the order in which they were pushed. `rows_of` is -1 for each rank at first.
  __device__ __forceinline__ void receive(int (&rows_of)[World], team::Claims claims) const {
    constexpr int peers = World - 1;
    for (;;) {
      const unsigned claimed = claims.next();
      const int chunk = static_cast<int>(claimed / peers);
      const int from = team::following<World>(team.rank, 1 + static_cast<int>(claimed % peers));
      if (chunk >= chunks.most) return;
      const bool came = epoch.await_all(1, [&](int) {
        return await_count(from, rows_of) &&
               (chunk == 0 || chunk >= chunks.count(words_of(rows_of[from])) || epoch.await(from, chunk) >= 0);
      });
      const long long part_words = words_of(came ? rows_of[from] : tensors.most_rows);
      if (came && chunk >= chunks.count(part_words) && none_has(chunk, rows_of)) return;
      const int words = chunks.size(chunk, min(part_words, tensors.rank_stride));
      uint4* targets[1] = {tensors.y + from * tensors.rank_stride + chunks.first(chunk)};
      if (came) {
        team::copy_words<Threads>(chunks.place(parts.of[team.rank] + epoch.half(), chunk, from), targets, words);
      } else {
        team::poison_words<Threads>(targets[0], words);
      }
      if (chunk == 0 && threadIdx.x == 0) tell_count(from, came ? rows_of[from] : -1);
    }
  }

 private:
  __device__ __forceinline__ long long words_of(int rows) const {
    return static_cast<long long>(rows) * tensors.row_words;
  }
  __device__ __forceinline__ void tell_count(int rank, int rows) const {
    if (tensors.counts != nullptr) tensors.counts[rank] = rows;
  }
  /// By one thread, within await_all().
  __device__ __forceinline__ bool await_count(int from, int (&rows_of)[World]) const {
    if (rows_of[from] < 0) rows_of[from] = epoch.await(from, 0);
    return rows_of[from] >= 0;
  }
  /// Whether every peer's rows are known to end before `chunk`, for which this waits.
  __device__ __forceinline__ bool none_has(int chunk, int (&rows_of)[World]) const {
    const bool known = epoch.await_all(
        World - 1, [&](int thread) { return await_count(team::following<World>(team.rank, thread + 1), rows_of); });
    int most = 0;
    for (int i = 1; i < World; ++i) most = max(most, rows_of[team::following<World>(team.rank, i)]);
    return known && chunk >= chunks.count(words_of(most));
  }
};

/// The first `pushers` blocks push before they receive, the others receive at once. A device starts blocks of lower numbers first.
template <int World, int Threads>
__global__ __launch_bounds__(Threads) void all_gather_push(const uint4* x, uint4* y, int* counts,
                                                           axis_length rows_given, long long rank_stride, int row_words,
                                                           int most_rows, int chunk_words, int most_chunks, int pushers,
                                                           const __grid_constant__ team::Peers parts,
                                                           const __grid_constant__ team::Team team) {
  __shared__ team::Epoch::storage epoch_storage;
  __shared__ team::Claims::storage push_storage;
  __shared__ team::Claims::storage receive_storage;
  __shared__ int rows_of[World];
  if (threadIdx.x < World) rows_of[threadIdx.x] = -1;
  wait_for_predecessor();
  const bool pushes = static_cast<int>(blockIdx.x) < pushers;
  team::Claims first(team, pushes ? 0 : 1, pushes ? push_storage : receive_storage);
  team::Epoch epoch(team, epoch_storage);
  const gathered tensors{x, y, counts, rank_stride * row_words, row_words, most_rows};
  const team::Chunks<World> chunks{chunk_words, most_chunks};
  const all_gather_block<World, Threads> block{tensors, chunks, parts, team, epoch};
  if (pushes) block.push(rows_given.read(), first);
  launch_dependents();
  if constexpr (World > 1) block.receive(rows_of, pushes ? team::Claims(team, 1, receive_storage) : first);
  epoch.end();
}

}  // namespace kiln
