// Rows pushed to peers by one thread and the copy engine, piece by piece through shared memory, while the rest of the block multiplies.
#pragma once

#include "common/team/copy.cuh"
#include "common/team/gemm_pieces.cuh"

namespace kiln::team {

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

  /// Copies the pieces that next() numbers, until it returns -1. read(piece, shared address, barrier) issues what reads
  /// a piece, store(piece, shared address) what writes it, and done(piece) is called once it is written.
  template <typename Next, typename Read, typename Store, typename Done>
  __device__ __forceinline__ void copy(Next next, Read read, Store store, Done done) {
    const auto load = [&](int place, int piece) {
      if (piece >= 0) read(piece, at(place), barrier(place));
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
  template <typename Runs, typename Next, typename Read, typename Store, typename Done>
  __device__ __forceinline__ void copy_runs(const Runs& runs, Next next, Read read, Store store, Done done) {
    struct Turn {
      int run, index;
    };
    const auto load = [&](int place, const Turn& turn) {
      if (turn.run >= 0) read(runs.piece(turn.run, turn.index), at(place), barrier(place));
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

/// The thread of a block that pushes this rank's rows, and copies all that `gathered` is to hold.
template <int World, int Slices>
struct Pusher : PushedPieces<World, Slices> {
  using Base = PushedPieces<World, Slices>;

  /// Claimed pieces of the own part. `Run`: pieces that are claimed, waited for and counted as one. 0: each alone, before the next but one is
  /// loaded.
  template <int Run>
  __device__ __forceinline__ void push(const unsigned char* x, int rows, unsigned char* kept, PiecePlaces& places,
                                       int piece_bytes) const {
    const Pieces<Slices> pieces(this->parts, rows, piece_bytes);
    const bool sends = Base::sends();
    unsigned* const claims = &this->control().claimed[0];
    const PieceRuns<Run == 0 ? 1 : Run, Slices> runs = {pieces};
    const unsigned count = static_cast<unsigned>(Run == 0 ? pieces.count() : runs.count());
    unsigned ahead = atomicAdd(claims, 1u);
    const auto next = [&] {
      const unsigned claimed = ahead;
      if (claimed >= count) return -1;
      ahead = atomicAdd(claims, 1u);
      return static_cast<int>(claimed);
    };
    const auto read = [&](int piece, unsigned to, unsigned barrier) {
      pieces.read_rows(x, pieces.at(piece), to, barrier);
    };
    const auto store = [&](int piece, unsigned from) {
      const auto place = pieces.at(piece);
      if (kept != nullptr) pieces.write_rows(kept, place, from);
      if (!sends) return;
#pragma unroll 1
      for (int step = 1; step < World; ++step)
        bulk_store(this->at_peer(step) + pieces.in_workspace(place), from, place.size);
    };
    if constexpr (Run == 0) {
      places.copy(next, read, store, [&](int piece) {
        const auto place = pieces.at(piece);
        Base::tell(place.flag(), pieces.in_chunk(place.chunk), rows, sends);
      });
    } else {
      places.copy_runs(runs, next, read, store, [&](int run) {
        const int chunk = runs.chunk(run);
        Base::tell(chunk * Slices + runs.slice(run), runs.in_chunk(chunk), rows, sends);
      });
    }
  }

  /// This block's pieces of `peer`'s part of `rows` rows, as they arrive.
  __device__ __forceinline__ void keep(int peer, int rows, unsigned char* kept, const Arrivals<World>& arrivals,
                                       PiecePlaces& places, int piece_bytes) const {
    const Pieces<Slices> pieces(this->parts, rows, piece_bytes);
    const int count = pieces.count();
    int ahead = static_cast<int>(blockIdx.x);
    places.copy(
        [&] {
          const int piece = ahead < count ? ahead : -1;
          ahead += static_cast<int>(gridDim.x);
          return piece;
        },
        [&](int piece, unsigned to, unsigned barrier) {
          const auto place = pieces.at(piece);
          this->await_flag(arrivals, peer, place.flag());
          mbarrier_arrive_expect_tx(barrier, place.size);
          bulk_load(to, this->first_byte(this->team.rank, peer) + pieces.in_workspace(place), place.size, barrier);
        },
        [&](int piece, unsigned from) { pieces.write_rows(kept, pieces.at(piece), from); },
        [&](int piece) {
          if (this->shared->failed != 0) spoil(kept, pieces, pieces.at(piece));
        });
  }

 private:
  static __device__ __forceinline__ void spoil(unsigned char* rows, const Pieces<Slices>& pieces,
                                               const typename Pieces<Slices>::Place& place) {
    uint4* const first = reinterpret_cast<uint4*>(rows + pieces.in_rows(place));
#pragma unroll 1
    for (int word = 0; word < static_cast<int>(place.size / 16); ++word) first[pieces.word_in_rows(word)] = poison();
  }
};

}  // namespace kiln::team
