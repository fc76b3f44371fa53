// Rows pushed to peers, and arrived rows kept, by warps through registers, while the rest of the block multiplies. This takes no shared memory,
// which the ring then has.
#pragma once

#include "common/team/gemm_arrivals.cuh"
#include "common/vector.cuh"

namespace kiln::team {

/// A part in units of whole rows. Those of a chunk follow each other.
struct RowUnits {
  int part_rows, chunk_rows, row_words;
  int rows;      // of a unit, at most
  int of_chunk;  // units of a whole chunk

  __device__ __forceinline__ RowUnits(int rows_of_part, const PushedParts& parts)
      : part_rows(rows_of_part),
        chunk_rows(parts.chunk_rows),
        row_words(parts.row_words),
        rows(static_cast<int>(max(most_words / static_cast<unsigned>(row_words), 1u))),
        of_chunk(ceil_div(chunk_rows, rows)) {}

  struct Unit {
    int chunk;
    int row, rows;  // of the part
  };

  /// Of a part as long as this.
  __device__ __forceinline__ unsigned count() const {
    return static_cast<unsigned>(ceil_div(part_rows, chunk_rows) * of_chunk);
  }
  /// Unit `index` as far as a part of `most` rows has it: past its end it has no rows.
  __device__ __forceinline__ Unit at(unsigned index, int most) const {
    Unit unit;
    unit.chunk = static_cast<int>(index / static_cast<unsigned>(of_chunk));
    const int within = (static_cast<int>(index) - unit.chunk * of_chunk) * rows;
    unit.row = unit.chunk * chunk_rows + within;
    unit.rows = min(min(rows, chunk_rows - within), most - unit.row);
    return unit;
  }
  /// How many units of a chunk the part has.
  __device__ __forceinline__ unsigned in_chunk(int chunk) const {
    return static_cast<unsigned>(ceil_div(min(part_rows - chunk * chunk_rows, chunk_rows), rows));
  }

 private:
  static constexpr unsigned most_words = 512;  // of a unit of more than one row

  static __device__ __forceinline__ int ceil_div(int a, int b) {
    return static_cast<int>((static_cast<unsigned>(a) + static_cast<unsigned>(b) - 1) / static_cast<unsigned>(b));
  }
};

/// Numbers that the warps of a launch claim. All lanes make one and call next(), which gives them all the same.
class WarpClaims {
 public:
  __device__ __forceinline__ explicit WarpClaims(unsigned* counter) : counter_(counter), ahead_(claim()) {}
  __device__ __forceinline__ unsigned next() { return __shfl_sync(full_warp, ahead_, 0); }
  /// While the warp works on the number that next() gave last.
  __device__ __forceinline__ void go_on() { ahead_ = claim(); }

 private:
  __device__ __forceinline__ unsigned claim() const { return lane() == 0 ? atomicAdd(counter_, 1u) : 0; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  unsigned* counter_;
  unsigned ahead_;
};

/// A warp that moves rows. All lanes call all of it.
template <int World>
struct WarpMover {
  const Team& team;
  const PushedParts& parts;
  const Epoch& epoch;

  /// Claimed units of the own part, to all peers and to `kept`, which may be null. A block that began in a failed team sends none and counts
  /// none: no flag may follow what it left out.
  __device__ __forceinline__ void push(const unsigned char* x, int rows, unsigned char* kept) const {
    const RowUnits units(rows, parts);
    const unsigned count = units.count();
    const bool sends = !epoch.failed();  // the same in all lanes: a wait that fails meanwhile changes nothing here
    Control& own = *team.control[team.rank];
    WarpClaims claims(&own.claimed[0]);
#pragma unroll 1
    for (unsigned claimed = claims.next(); claimed < count; claimed = claims.next()) {
      claims.go_on();
      const RowUnits::Unit unit = units.at(claimed, rows);
      if (unit.rows <= 0) continue;
      copy(reinterpret_cast<const uint4*>(x), unit, [&](long long at, const uint4(&words)[batch], int left) {
        if (kept != nullptr) store(reinterpret_cast<uint4*>(kept) + at, words, left);
        if (!sends) return;
#pragma unroll 1
        for (int step = 1; step < World; ++step)
          store(parts.row(following<World>(team.rank, step), epoch.half(), team.rank, 0) + at, words, left);
      });
      __syncwarp();
      if (sends && lane() == 0) {
        const unsigned last = units.in_chunk(unit.chunk) - 1;
        __threadfence_system();
        if (atomicInc(own.pushed[team.rank] + unit.chunk, last) == last) {
          __threadfence_system();
#pragma unroll 1
          for (int step = 1; step < World; ++step) epoch.send(following<World>(team.rank, step), unit.chunk, rows);
        }
      }
    }
  }

  /// Claimed units of the peers' parts as they arrive, to `gathered`, where a rank's rows follow the one's before by `rank_bytes`. NaN for
  /// those that did not come.
  __device__ __forceinline__ void keep(const ArrivingRows& rows, unsigned char* gathered, long long rank_bytes,
                                       const Arrivals<World>& arrivals) const {
    constexpr unsigned peers = World - 1;
    const RowUnits units(rows.template longest_of_peers<World>(), parts);
    const unsigned count = units.count() * peers;
    WarpClaims claims(&team.control[team.rank]->claimed[1]);
#pragma unroll 1
    for (unsigned claimed = claims.next(); claimed < count; claimed = claims.next()) {
      claims.go_on();
      const unsigned index = claimed / peers;
      const int peer = following<World>(team.rank, 1 + static_cast<int>(claimed - index * peers));
      const RowUnits::Unit unit = units.at(index, rows.of(peer));
      if (unit.rows <= 0) continue;
      bool came = true;
      if (lane() == 0) came = arrivals.await(peer, unit.row, unit.row + 1);
      __syncwarp();  // all lanes read what lane 0 was told of
      came = __shfl_sync(full_warp, came, 0);
      uint4* const to = reinterpret_cast<uint4*>(gathered + peer * rank_bytes);
      copy(parts.row(team.rank, epoch.half(), peer, 0), unit, [&](long long at, uint4(&words)[batch], int left) {
#pragma unroll
        for (int i = 0; i < batch; ++i) words[i] = came ? words[i] : poison();
        store(to + at, words, left);
      });
    }
  }

 private:
  static constexpr int batch = 4;  // loads of a lane under way at once

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }

  /// Reads a unit of the part at `from`. done(at, words, left) takes those of a lane: word i is the part's word `at` + i * 32, and it has those
  /// for which i * 32 < left.
  template <typename Done>
  __device__ __forceinline__ void copy(const uint4* from, const RowUnits::Unit& unit, Done done) const {
    long long at = static_cast<long long>(unit.row) * parts.row_words + lane();
#pragma unroll 1
    for (int left = unit.rows * parts.row_words - lane(); left > 0; left -= 32 * batch, at += 32 * batch) {
      uint4 words[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        if (i * 32 < left) words[i] = __ldcg(from + at + i * 32);
      }
      done(at, words, left);
    }
  }
  static __device__ __forceinline__ void store(uint4* to, const uint4 (&words)[batch], int left) {
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (i * 32 < left) __stwb(to + i * 32, words[i]);
    }
  }
};

}  // namespace kiln::team
