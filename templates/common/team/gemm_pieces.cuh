// A rank's rows cut into pieces, in the order in which they are pushed to its peers while blocks multiply.
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

/// A part's rows in pieces: those of the first chunk, slice by slice, then those of the next. A slice is as many columns
/// of all rows, one after another in the workspace.
template <int Slices>
struct Pieces {
  long long part_bytes, chunk_bytes;  // of a slice
  long long slice_stride;             // bytes from one slice to the next in the workspace
  int slice_bytes;                    // of a row
  int bytes;                          // of a piece: whole rows of a slice where there are several
  int of_chunk;                       // pieces of a slice of a whole chunk

  __device__ __forceinline__ Pieces(const PushedParts& parts, int rows, int piece_bytes)
      : slice_bytes(parts.row_words * 16 / Slices),
        bytes(Slices == 1 ? piece_bytes : piece_bytes / slice_bytes * slice_bytes) {
    part_bytes = static_cast<long long>(rows) * slice_bytes;
    chunk_bytes = static_cast<long long>(parts.chunk_rows) * slice_bytes;
    slice_stride = static_cast<long long>(parts.most_rows) * slice_bytes;
    of_chunk = static_cast<int>((chunk_bytes + bytes - 1) / bytes);
  }

  struct Place {
    int chunk, slice;
    long long first;  // of the slice
    unsigned size;
    __device__ __forceinline__ int flag() const { return chunk * Slices + slice; }
  };

  __device__ __forceinline__ int whole_chunks() const { return static_cast<int>(part_bytes / chunk_bytes); }
  /// Pieces of one slice of a chunk.
  __device__ __forceinline__ int in_chunk(int chunk) const {
    const long long left = min(part_bytes - chunk * chunk_bytes, chunk_bytes);
    return static_cast<int>((max(left, 0ll) + bytes - 1) / bytes);
  }
  /// The number of all pieces.
  __device__ __forceinline__ int count() const {
    const int whole = whole_chunks();
    return (whole * of_chunk + in_chunk(whole)) * Slices;
  }
  __device__ __forceinline__ Place at(int piece) const {
    Place place;
    place.chunk = piece / (of_chunk * Slices);
    int within = piece - place.chunk * (of_chunk * Slices);
    const int each = Slices == 1 ? 0 : in_chunk(place.chunk);
    place.slice = Slices == 1 ? 0 : within / each;
    within -= place.slice * each;
    place.first = place.chunk * chunk_bytes + static_cast<long long>(within) * bytes;
    const long long end = min(part_bytes, (place.chunk + 1) * chunk_bytes);
    place.size = static_cast<unsigned>(min(end - place.first, static_cast<long long>(bytes)));
    return place;
  }

  /// Where a piece lies from the first byte of a part on: in the workspace, and in rows as x and y have them.
  __device__ __forceinline__ long long in_workspace(const Place& place) const {
    return place.slice * slice_stride + place.first;
  }
  __device__ __forceinline__ long long in_rows(const Place& place) const {
    return place.first * Slices + static_cast<long long>(place.slice) * slice_bytes;
  }

  /// Where a word of 16 bytes of a piece lies from the piece's first word in rows on.
  __device__ __forceinline__ int word_in_rows(int word) const {
    if (Slices == 1) return word;
    const unsigned of_row = static_cast<unsigned>(slice_bytes) / 16, row = static_cast<unsigned>(word) / of_row;
    return static_cast<int>(row * of_row * (Slices - 1)) + word;
  }

  /// Reads a piece of rows to shared memory, or writes it to rows.
  __device__ __forceinline__ void read_rows(const unsigned char* rows, const Place& place, unsigned to,
                                            unsigned barrier) const {
    mbarrier_arrive_expect_tx(barrier, place.size);
    const unsigned char* const from = rows + in_rows(place);
    if constexpr (Slices == 1) {
      bulk_load(to, from, place.size, barrier);
    } else {
#pragma unroll 1
      for (unsigned at = 0; at < place.size; at += slice_bytes)
        bulk_load(to + at, from + static_cast<long long>(at) * Slices, slice_bytes, barrier);
    }
  }
  __device__ __forceinline__ void write_rows(unsigned char* rows, const Place& place, unsigned from) const {
    unsigned char* const to = rows + in_rows(place);
    if constexpr (Slices == 1) {
      bulk_store(to, from, place.size);
    } else {
#pragma unroll 1
      for (unsigned at = 0; at < place.size; at += slice_bytes)
        bulk_store(to + static_cast<long long>(at) * Slices, from + at, slice_bytes);
    }
  }
};

/// The pieces of a part in runs of up to `Run`, each within a slice of a chunk.
template <int Run, int Slices>
struct PieceRuns {
  Pieces<Slices> of;

  __device__ __forceinline__ int of_chunk() const { return (of.of_chunk + Run - 1) / Run; }
  __device__ __forceinline__ int in_chunk(int chunk) const { return (of.in_chunk(chunk) + Run - 1) / Run; }
  __device__ __forceinline__ int chunk(int run) const { return run / (of_chunk() * Slices); }
  __device__ __forceinline__ int count() const {
    const int whole = of.whole_chunks();
    return (whole * of_chunk() + in_chunk(whole)) * Slices;
  }
  /// Within its chunk.
  __device__ __forceinline__ int slice(int run) const {
    return Slices == 1 ? 0 : run % (of_chunk() * Slices) / in_chunk(chunk(run));
  }
  /// The run's first piece, within its slice of the chunk.
  __device__ __forceinline__ int first(int run) const {
    const int within = run % (of_chunk() * Slices);
    return (Slices == 1 ? within : within % in_chunk(chunk(run))) * Run;
  }
  __device__ __forceinline__ int pieces(int run) const { return min(Run, of.in_chunk(chunk(run)) - first(run)); }
  __device__ __forceinline__ int piece(int run, int index) const {
    return chunk(run) * of.of_chunk * Slices + slice(run) * of.in_chunk(chunk(run)) + first(run) + index;
  }
};

/// Waits for a slice of rows [first, end) of `peer`, for copies that this thread then starts. Each slice of a chunk has
/// a flag, in place of the chunk.
template <int Slices, int World>
__device__ __forceinline__ void await_slice(const Arrivals<World>& arrivals, const PushedParts& parts, int peer,
                                            int first, int end, int slice) {
  if constexpr (Slices == 1) {
    arrivals.await(peer, first, end);
  } else {
#pragma unroll 1
    for (int chunk = first / parts.chunk_rows; chunk * parts.chunk_rows < end; ++chunk) {
      const int flag = chunk * Slices + slice;
      arrivals.await(peer, flag * parts.chunk_rows, flag * parts.chunk_rows + 1);
    }
  }
}

/// What a block needs to push this rank's rows, and to keep others'.
template <int World, int Slices>
struct PushedPieces {
  const Team& team;
  const PushedParts& parts;
  const Epoch& epoch;
  ArrivalStorage* shared;

  __device__ __forceinline__ Control& control() const { return *team.control[team.rank]; }
  /// Whether the launch had not failed when it began.
  __device__ __forceinline__ bool sends() const { return *static_cast<volatile int*>(&shared->failed) == 0; }
  /// The first byte of `of`'s part in `at`'s memory.
  __device__ __forceinline__ unsigned char* first_byte(int at, int of) const {
    return reinterpret_cast<unsigned char*>(parts.row(at, epoch.half(), of, 0));
  }
  /// Of this rank's part in the memory of the peer that follows by `step`.
  __device__ __forceinline__ unsigned char* at_peer(int step) const {
    return first_byte(following<World>(team.rank, step), team.rank);
  }

  /// Waits for what a flag of `peer` tells of. For one thread.
  __device__ __forceinline__ void await_flag(const Arrivals<World>& arrivals, int peer, int flag) const {
    arrivals.await(peer, flag * parts.chunk_rows, flag * parts.chunk_rows + 1);
  }

  /// One of so many parts of a flag's rows is written. After the last one the flag is sent to all peers. For one
  /// thread.
  __device__ __forceinline__ void tell(int flag, int parts_of_flag, int rows, bool sends) const {
    unsigned* const pushed = control().pushed[team.rank];  // the same pieces go to all peers
    const unsigned last = static_cast<unsigned>(parts_of_flag) - 1;
    __threadfence_system();
    if (atomicInc(pushed + flag, last) != last || !sends) return;
    __threadfence_system();
#pragma unroll 1
    for (int step = 1; step < World; ++step) epoch.send(following<World>(team.rank, step), flag, rows);
  }
};

}  // namespace kiln::team
