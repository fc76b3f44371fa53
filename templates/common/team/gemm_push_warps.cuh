// Rows pushed to peers by the loads and stores of warps, which do nothing else, while the rest of the block multiplies.
#pragma once

#include "common/reduce.cuh"
#include "common/team/copy.cuh"
#include "common/team/gemm_pieces.cuh"

namespace kiln::team {

/// A warp that pushes this rank's rows, and copies what `gathered` is to hold of others'. All of its lanes call its
/// functions. `batch`: words of a lane under way at once.
template <int World, int Slices, int batch>
struct WarpPusher : PushedPieces<World, Slices> {
  /// Claimed pieces of the own part.
  __device__ __forceinline__ void push(const unsigned char* x, int rows, unsigned char* kept, int piece_bytes) const {
    const Pieces<Slices> pieces(this->parts, rows, piece_bytes);
    const bool sends = this->sends(), claims = lane() == 0;
    unsigned* const claimed = &this->control().claimed[0];
    const unsigned count = static_cast<unsigned>(pieces.count());
    unsigned ahead = claims ? atomicAdd(claimed, 1u) : 0;
#pragma unroll 1
    for (;;) {
      const unsigned piece = __shfl_sync(full_warp, ahead, 0);
      if (piece >= count) return;
      if (claims) ahead = atomicAdd(claimed, 1u);
      const auto place = pieces.at(static_cast<int>(piece));
      const long long in_rows = pieces.in_rows(place), in_workspace = pieces.in_workspace(place);
      const int words = static_cast<int>(place.size / 16);
#pragma unroll 1
      for (int first = lane(); first < words; first += 32 * batch) {
        uint4 held[batch];
        load<true>(held, x + in_rows, pieces, first, words);
        if (kept != nullptr) store<true>(held, kept + in_rows, pieces, first, words);
#pragma unroll 1
        for (int step = 1; sends && step < World; ++step)
          store<false>(held, this->at_peer(step) + in_workspace, pieces, first, words);
      }
      __syncwarp();
      if (claims) this->tell(place.flag(), pieces.in_chunk(place.chunk), rows, sends);
    }
  }

  /// Pieces `begin`, `begin` + `step`, ... of `peer`'s part of `rows` rows, as they arrive. NaN where they do not.
  __device__ __forceinline__ void keep(int peer, int rows, unsigned char* kept, const Arrivals<World>& arrivals,
                                       int piece_bytes, int begin, int step) const {
    const Pieces<Slices> pieces(this->parts, rows, piece_bytes);
    const int count = pieces.count();
#pragma unroll 1
    for (int piece = begin; piece < count; piece += step) {
      const auto place = pieces.at(piece);
      if (lane() == 0) this->await_flag(arrivals, peer, place.flag());
      __syncwarp();
      const bool came = this->sends();
      const int words = static_cast<int>(place.size / 16);
#pragma unroll 1
      for (int first = lane(); first < words; first += 32 * batch) {
        uint4 held[batch];
        load<false>(held, this->first_byte(this->team.rank, peer) + pieces.in_workspace(place), pieces, first, words);
#pragma unroll
        for (uint4& each : held) {
          if (!came) each = poison();
        }
        store<true>(held, kept + pieces.in_rows(place), pieces, first, words);
      }
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x % 32); }

  /// Words `first`, `first` + 32, ... of a piece of `count` words, that begins at `from`: of rows, or of the workspace.
  template <bool of_rows>
  static __device__ __forceinline__ void load(uint4 (&held)[batch], const unsigned char* from,
                                              const Pieces<Slices>& pieces, int first, int count) {
    const auto* const words = reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int word = first + 32 * i;
      if (word < count) held[i] = __ldcg(words + (of_rows ? pieces.word_in_rows(word) : word));
    }
  }
  template <bool of_rows>
  static __device__ __forceinline__ void store(const uint4 (&held)[batch], unsigned char* to,
                                               const Pieces<Slices>& pieces, int first, int count) {
    auto* const words = reinterpret_cast<uint4*>(to);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int word = first + 32 * i;
      if (word < count) words[of_rows ? pieces.word_in_rows(word) : word] = held[i];
    }
  }
};

}  // namespace kiln::team
