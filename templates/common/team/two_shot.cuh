// All-reduce in two exchanges (two-shot): each rank adds up a share of the words for all ranks, and sends them the sums. A rank receives
// 2 (World - 1) / World times its part, where one exchange brings World - 1 times. all_reduce's kernel for many bytes, and gemm_all_reduce's last.
#pragma once

#include "common/length.cuh"
#include "common/team/sum.cuh"

namespace kiln::team {

/// One block's share of a launch. Words are cut into rounds of `World` chunks: chunk r of each round is added up by rank r, its owner. So each
/// round loads all links alike, and short parts are shared evenly too. All threads of the block call the functions in the order below.
///
/// What a rank sends another has slots, a place and a flag each. Slot s is the part of round s's chunk, and slot `rounds` + s its sum.
///
/// Parts are pushed before any wait, and whoever sends sums waits for parts alone. A block waits for sums when no chunk is left to add up. So a
/// rank's first block, which starts before the others, can push all parts and send all sums by itself. Nobody waits for a copy.
template <typename T, int World, int Threads>
class TwoShot {
 public:
  struct storage {
    int rows_of[World];  // by rank: the rows that it said to have, -1 before
    Epoch::storage epoch;
    Claims::storage pushes, sums, copies;
  };

  /// x and y: this rank's, in words of 16 bytes. `rounds`: of the bucket's longest part.
  __device__ __forceinline__ TwoShot(const Team& team, const Peers& workspace, storage& shared, const uint4* x,
                                     uint4* y, axis_length rows, int row_words, int chunk_words, int rounds,
                                     int pushers)
      : team_(team),
        workspace_(workspace),
        chunks_{chunk_words, rounds * World},
        x_(x),
        y_(y),
        row_words_(row_words),
        rounds_(rounds),
        shared_(cleared(shared)),
        pushes_(static_cast<int>(blockIdx.x) < pushers),
        claims_(team, pushes_ ? 0 : 1, pushes_ ? shared.pushes : shared.sums),
        copies_(team, 2, shared.copies),
        epoch_(team, shared.epoch),
        rows_(rows.read()),
        words_(words_of(rows_)) {}

  /// Sends each owner this rank's part of its chunks. Round 0's flags say how many rows the rank has, also where there are none.
  __device__ __forceinline__ void push_parts() {
    if constexpr (World > 1) {
      if (!pushes_) return;
      const int count = max(rounds_of(words_), 1);
      for (int round = claimed(claims_), next; round < count; round = next) {
        if (!epoch_.failed()) push_round(round);
        next = claimed(claims_);
        const int to = peer(static_cast<int>(threadIdx.x) + 1);
        if (static_cast<int>(threadIdx.x) < peers && !epoch_.failed() && (round == 0 || size(round, to, words_) > 0))
          epoch_.send(to, round, rows_);
      }
    }
  }

  /// Adds up this rank's chunks, as far as the longest part reaches, and sends each peer the sums that it has rows for.
  __device__ __forceinline__ void push_sums() {
    launch_dependents();
    Claims claims = pushes_ ? Claims(team_, 1, shared_.sums) : claims_;
    for (int round = claimed(claims), next; round < rounds_; round = next) {
      const bool came = epoch_.await_all(peers, [&](int thread) { return await_part(peer(thread + 1), round); });
      heard_ = true;
      const int count = size(round, team_.rank, came ? longest() : words_);
      if (count == 0) return;  // rounds after this one have nothing either
      if (came)
        push_sum(round, count);
      else
        poison_words<Threads>(y_ + first(round, team_.rank), count);
      next = claimed(claims);
      const int to = peer(static_cast<int>(threadIdx.x) + 1);
      if (came && static_cast<int>(threadIdx.x) < peers && size(round, team_.rank, words_of(shared_.rows_of[to])) > 0)
        epoch_.send(to, rounds_ + round, rows_);
    }
  }

  /// Copies the sums of the peers' chunks to y.
  __device__ __forceinline__ void copy_sums() {
    if constexpr (World > 1) {
      const int count = rounds_of(words_);
      for (int round = claimed(copies_); round < count; round = claimed(copies_)) {
        // Before its sums, so that this rank names a peer that never comes, rather than an owner that waits for it.
        if (!heard_) epoch_.await_all(peers, [&](int thread) { return await_rows(peer(thread + 1)); });
        heard_ = true;
        copy_round(round, epoch_.await_all(peers, [&](int thread) {
          const int owner = peer(thread + 1);
          return size(round, owner, words_) == 0 || epoch_.await(owner, rounds_ + round) >= 0;
        }));
      }
    }
  }

  __device__ __forceinline__ void end() const { epoch_.end(); }

 private:
  static constexpr int peers = World - 1;

  static __device__ __forceinline__ storage& cleared(storage& shared) {
    if (threadIdx.x < World) shared.rows_of[threadIdx.x] = -1;
    wait_for_predecessor();
    return shared;
  }
  static __device__ __forceinline__ int claimed(Claims& claims) { return static_cast<int>(claims.next()); }

  __device__ __forceinline__ int peer(int steps) const { return following<World>(team_.rank, steps); }
  __device__ __forceinline__ long long words_of(int rows) const { return static_cast<long long>(rows) * row_words_; }
  /// Rounds that a part of so many words has chunks in.
  __device__ __forceinline__ int rounds_of(long long words) const {
    const long long each = static_cast<long long>(chunks_.words) * World;
    return static_cast<int>((words + each - 1) / each);
  }
  /// The first word of the owner's chunk.
  __device__ __forceinline__ long long first(int round, int owner) const {
    return chunks_.first(round * World + owner);
  }
  /// Words of the owner's chunk that a part of `words` words has.
  __device__ __forceinline__ int size(int round, int owner, long long words) const {
    return chunks_.size(round * World + owner, words);
  }
  /// In `at`'s memory: a slot of what `of` sends there.
  __device__ __forceinline__ uint4* place(int at, int slot, int of) const {
    return chunks_.place(workspace_.of[at] + epoch_.half(), slot, of);
  }
  /// Once all have said how many rows they have.
  __device__ __forceinline__ long long longest() const {
    int rows = rows_;
#pragma unroll
    for (int i = 1; i < World; ++i) rows = max(rows, shared_.rows_of[peer(i)]);
    return words_of(rows);
  }

  // By single threads, within await_all().
  __device__ __forceinline__ bool await_rows(int from) const {
    if (shared_.rows_of[from] < 0) shared_.rows_of[from] = epoch_.await(from, 0);
    return shared_.rows_of[from] >= 0;
  }
  __device__ __forceinline__ bool await_part(int from, int round) const {
    if (!await_rows(from)) return false;
    return round == 0 || size(round, team_.rank, words_of(shared_.rows_of[from])) == 0 ||
           epoch_.await(from, round) >= 0;
  }

  __device__ __forceinline__ void push_round(int round) const {
    const uint4* from[peers];
    uint4* to[peers];
    int counts[peers];
#pragma unroll
    for (int i = 0; i < peers; ++i) {
      const int owner = peer(i + 1);
      from[i] = x_ + first(round, owner);
      to[i] = place(owner, round, team_.rank);
      counts[i] = size(round, owner, words_);
    }
    copy_parts<Threads>(from, to, counts);
  }

  __device__ __forceinline__ void push_sum(int round, int count) const {
    const uint4* parts[World];
    int sizes[World], counts[World];
    uint4* to[World];
#pragma unroll
    for (int of = 0; of < World; ++of) {
      const bool own = of == team_.rank;
      parts[of] = own ? x_ + first(round, of) : place(team_.rank, round, of);
      sizes[of] = size(round, team_.rank, own ? words_ : words_of(shared_.rows_of[of]));
    }
#pragma unroll
    for (int i = 0; i < World; ++i) {  // beginning with the next rank, so that ranks store to different ones
      const int at = peer(i + 1);
      to[i] = i < peers ? place(at, rounds_ + round, team_.rank) : y_ + first(round, at);
      counts[i] = size(round, team_.rank, i < peers ? words_of(shared_.rows_of[at]) : words_);
    }
    sum_each_word<T, World, Threads>(parts, sizes, count, [&](int at, const uint4& sum) {
#pragma unroll
      for (int i = 0; i < World; ++i) {
        if (at < counts[i]) to[i][at] = sum;
      }
    });
  }

  __device__ __forceinline__ void copy_round(int round, bool came) const {
    const uint4* from[peers];
    uint4* to[peers];
    int counts[peers];
#pragma unroll
    for (int i = 0; i < peers; ++i) {
      const int owner = peer(i + 1);
      from[i] = place(team_.rank, rounds_ + round, owner);
      to[i] = y_ + first(round, owner);
      counts[i] = size(round, owner, words_);
    }
    if (came) return copy_parts<Threads>(from, to, counts);
#pragma unroll
    for (int i = 0; i < peers; ++i) poison_words<Threads>(to[i], counts[i]);
  }

  const Team& team_;
  const Peers& workspace_;
  const Chunks<World> chunks_;
  const uint4* const x_;
  uint4* const y_;
  const int row_words_, rounds_;
  storage& shared_;
  const bool pushes_;
  Claims claims_;  // of pushes, where this block pushes, else of sums
  Claims copies_;  // one is claimed from the start: nobody waits for it
  Epoch epoch_;
  const int rows_;
  const long long words_;
  bool heard_ = false;  // from every peer how many rows it has
};

}  // namespace kiln::team

namespace kiln {

/// x and y in words of 16 bytes. A round has `World` chunks.
template <typename T, int World, int Threads>
__global__ __launch_bounds__(Threads) void all_reduce_two_shot(const uint4* x, uint4* y, axis_length rows,
                                                               int row_words, int chunk_words, int rounds, int pushers,
                                                               const __grid_constant__ team::Peers workspace,
                                                               const __grid_constant__ team::Team team) {
  using TwoShot = team::TwoShot<T, World, Threads>;
  __shared__ typename TwoShot::storage storage;
  TwoShot two_shot(team, workspace, storage, x, y, rows, row_words, chunk_words, rounds, pushers);
  two_shot.push_parts();
  two_shot.push_sums();
  two_shot.copy_sums();
  two_shot.end();
}

}  // namespace kiln
