// Rows pushed to peers by one thread and the copy engine, piece by piece through shared memory, while the rest of the block multiplies.
#pragma once

#include "common/bulk_copy.cuh"
#include "common/team/gemm_arrivals.cuh"
#include "common/tma.cuh"

namespace kiln::team {

/// cp.async.bulk: `bytes` bytes of shared memory to global memory, a peer's or this rank's. Both addresses and the count are multiples of 16.
/// One thread issues it for the block, in a group of tma_store_commit.
__device__ __forceinline__ void bulk_store(void* to, unsigned from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

/// Waits until all but this thread's `pending` latest groups are written, as this thread then sees them.
template <int pending>
__device__ __forceinline__ void bulk_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory");
}

/// Two places in shared memory, through which pieces pass in turn. For one thread, which made the barriers.
class PiecePlaces {
 public:
  __device__ __forceinline__ PiecePlaces(unsigned places, unsigned barriers, unsigned bytes)
      : places_(places), barriers_(barriers), bytes_(bytes) {}

  /// Copies the pieces that next() numbers, until it returns -1. It calls from(piece) before a piece is read, and
  /// done(piece) once it is written. Between them store(piece, shared address) issues what writes it.
  template <typename Next, typename Size, typename From, typename Store, typename Done>
  __device__ __forceinline__ void copy(Next next, Size size, From from, Store store, Done done) {
    const auto load = [&](int place, int piece) {
      if (piece < 0) return;
      const void* const first = from(piece);
      mbarrier_arrive_expect_tx(barrier(place), size(piece));
      bulk_load(at(place), first, size(piece), barrier(place));
    };
    int current = next(), previous = -1, place = 0;
    if (current < 0) return;
    load(0, current);
    int following = next();
    load(1, following);
#pragma unroll 1
    for (;;) {
      mbarrier_wait(barrier(place), parities_ >> place & 1);
      parities_ ^= 1u << place;
      store(current, at(place));
      tma_store_commit();
      if (previous >= 0) {
        bulk_store_wait<1>();
        done(previous);
        following = next();
        load(place ^ 1, following);
      }
      previous = current;
      current = following;
      if (current < 0) break;
      place ^= 1;
    }
    bulk_store_wait<0>();
    done(previous);
  }

  /// Copies runs of pieces: next() numbers runs, and runs.pieces(run) and runs.piece(run, index) give their pieces. A
  /// place is free once its piece has left shared memory, and done(run) is called once all of a run is written.
  template <typename Runs, typename Next, typename Size, typename From, typename Store, typename Done>
  __device__ __forceinline__ void copy_runs(const Runs& runs, Next next, Size size, From from, Store store, Done done) {
    struct Turn {
      int run, index;
    };
    const auto load = [&](int place, const Turn& turn) {
      if (turn.run < 0) return;
      const int piece = runs.piece(turn.run, turn.index);
      mbarrier_arrive_expect_tx(barrier(place), size(piece));
      bulk_load(at(place), from(piece), size(piece), barrier(place));
    };
    const auto after = [&](const Turn& turn) {
      return turn.index + 1 < runs.pieces(turn.run) ? Turn{turn.run, turn.index + 1} : Turn{next(), 0};
    };
    Turn current = {next(), 0};
    if (current.run < 0) return;
    load(0, current);
    Turn following = after(current);
    load(1, following);
#pragma unroll 1
    for (int place = 0;; place ^= 1) {
      mbarrier_wait(barrier(place), parities_ >> place & 1);
      parities_ ^= 1u << place;
      store(runs.piece(current.run, current.index), at(place));
      tma_store_commit();
      if (following.run != current.run) {
        bulk_store_wait<0>();
        done(current.run);
      }
      if (following.run < 0) break;
      current = following;
      following = after(current);
      tma_store_wait_read<0>();
      load(place, following);
    }
  }

 private:
  __device__ __forceinline__ unsigned at(int place) const { return places_ + place * bytes_; }
  __device__ __forceinline__ unsigned barrier(int place) const { return barriers_ + place * 8; }
  unsigned places_, barriers_, bytes_;
  unsigned parities_ = 0;  // by place
};

/// A part's rows in pieces, a whole number of them in each chunk but the last.
struct Pieces {
  long long part_bytes, chunk_bytes;
  int bytes;     // of a piece
  int of_chunk;  // pieces

  __device__ __forceinline__ Pieces(int rows, int chunk_rows, int row_words, int piece_bytes)
      : part_bytes(static_cast<long long>(rows) * row_words * 16),
        chunk_bytes(static_cast<long long>(chunk_rows) * row_words * 16),
        bytes(piece_bytes),
        of_chunk(static_cast<int>((chunk_bytes + piece_bytes - 1) / piece_bytes)) {}

  __device__ __forceinline__ int in_chunk(int chunk) const {
    const long long left = min(part_bytes - chunk * chunk_bytes, chunk_bytes);
    return static_cast<int>((max(left, 0ll) + bytes - 1) / bytes);
  }
  /// The number of all chunks.
  __device__ __forceinline__ int count() const {
    const int whole = static_cast<int>(part_bytes / chunk_bytes);
    return whole * of_chunk + in_chunk(whole);
  }
  __device__ __forceinline__ long long first(int piece) const {
    return piece / of_chunk * chunk_bytes + static_cast<long long>(piece % of_chunk) * bytes;
  }
  __device__ __forceinline__ unsigned size(int piece) const {
    const int chunk = piece / of_chunk;
    const long long end = min(part_bytes, (chunk + 1) * chunk_bytes);
    return static_cast<unsigned>(min(end - first(piece), static_cast<long long>(bytes)));
  }
};

/// The pieces of a part in runs of up to `Run`, each within a chunk.
template <int Run>
struct PieceRuns {
  Pieces of;

  __device__ __forceinline__ int of_chunk() const { return (of.of_chunk + Run - 1) / Run; }
  __device__ __forceinline__ int in_chunk(int chunk) const { return (of.in_chunk(chunk) + Run - 1) / Run; }
  __device__ __forceinline__ int chunk(int run) const { return run / of_chunk(); }
  __device__ __forceinline__ int count() const {
    const int whole = static_cast<int>(of.part_bytes / of.chunk_bytes);
    return whole * of_chunk() + in_chunk(whole);
  }
  __device__ __forceinline__ int pieces(int run) const {
    return min(Run, of.in_chunk(chunk(run)) - run % of_chunk() * Run);
  }
  __device__ __forceinline__ int piece(int run, int index) const {
    return chunk(run) * of.of_chunk + run % of_chunk() * Run + index;
  }
};

/// The thread of a block that pushes this rank's rows, and copies all that `gathered` is to hold.
template <int World>
struct Pusher {
  const Team& team;
  const PushedParts& parts;
  const Epoch& epoch;
  ArrivalStorage* shared;

  /// Claimed pieces of the own part. `Run`: pieces that are claimed, waited for and counted as one. 0: each alone, before the next but one is
  /// loaded.
  template <int Run>
  __device__ __forceinline__ void push(const unsigned char* x, int rows, unsigned char* kept, PiecePlaces& places,
                                       int piece_bytes) const {
    const Pieces pieces(rows, parts.chunk_rows, parts.row_words, piece_bytes);
    const bool sends = shared->failed == 0;
    Control& own = *team.control[team.rank];
    unsigned* const claims = &own.claimed[0];
    unsigned* const pushed = own.pushed[team.rank];  // the same pieces go to all peers
    const PieceRuns<Run == 0 ? 1 : Run> runs = {pieces};
    const unsigned count = static_cast<unsigned>(Run == 0 ? pieces.count() : runs.count());
    unsigned ahead = atomicAdd(claims, 1u);
    const auto next = [&] {
      const unsigned claimed = ahead;
      if (claimed >= count) return -1;
      ahead = atomicAdd(claims, 1u);
      return static_cast<int>(claimed);
    };
    const auto size = [&](int piece) { return pieces.size(piece); };
    const auto from = [&](int piece) { return x + pieces.first(piece); };
    const auto store = [&](int piece, unsigned place) {
      const long long at = pieces.first(piece);
      if (kept != nullptr) bulk_store(kept + at, place, pieces.size(piece));
      if (!sends) return;
#pragma unroll 1
      for (int step = 1; step < World; ++step)
        bulk_store(first_byte(following<World>(team.rank, step), team.rank) + at, place, pieces.size(piece));
    };
    const auto written = [&](int chunk, int parts_of_chunk) {
      const unsigned last = static_cast<unsigned>(parts_of_chunk) - 1;
      __threadfence_system();
      if (atomicInc(pushed + chunk, last) != last || !sends) return;
      __threadfence_system();
#pragma unroll 1
      for (int step = 1; step < World; ++step) epoch.send(following<World>(team.rank, step), chunk, rows);
    };
    if constexpr (Run == 0) {
      places.copy(next, size, from, store, [&](int piece) {
        const int chunk = piece / pieces.of_chunk;
        written(chunk, pieces.in_chunk(chunk));
      });
    } else {
      places.copy_runs(runs, next, size, from, store,
                       [&](int run) { written(runs.chunk(run), runs.in_chunk(runs.chunk(run))); });
    }
  }

  /// This block's pieces of `peer`'s part of `rows` rows, as they arrive.
  __device__ __forceinline__ void keep(int peer, int rows, unsigned char* kept, const Arrivals<World>& arrivals,
                                       PiecePlaces& places, int piece_bytes) const {
    const Pieces pieces(rows, parts.chunk_rows, parts.row_words, piece_bytes);
    const int count = pieces.count();
    int ahead = static_cast<int>(blockIdx.x);
    places.copy(
        [&] {
          const int piece = ahead < count ? ahead : -1;
          ahead += static_cast<int>(gridDim.x);
          return piece;
        },
        [&](int piece) { return pieces.size(piece); },
        [&](int piece) {
          const int row = piece / pieces.of_chunk * parts.chunk_rows;
          arrivals.await(peer, row, row + 1);
          return first_byte(team.rank, peer) + pieces.first(piece);
        },
        [&](int piece, unsigned from) { bulk_store(kept + pieces.first(piece), from, pieces.size(piece)); },
        [&](int piece) {
          if (shared->failed != 0) spoil(kept + pieces.first(piece), pieces.size(piece));
        });
  }

 private:
  __device__ __forceinline__ unsigned char* first_byte(int at, int of) const {
    return reinterpret_cast<unsigned char*>(parts.row(at, epoch.half(), of, 0));
  }
  static __device__ __forceinline__ void spoil(unsigned char* first, unsigned bytes) {
    for (unsigned at = 0; at < bytes; at += 16) *reinterpret_cast<uint4*>(first + at) = poison();
  }
};

}  // namespace kiln::team
