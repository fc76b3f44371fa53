// The order in which a launch's blocks push parts to other ranks and take what arrives: what team ops share. An op says by callbacks what
// is copied or computed.
#pragma once

#include "common/team/chunks.cuh"
#include "common/team/copy.cuh"

namespace kiln::team {

/// One block's share of a launch that exchanges parts of at most `most_rows` rows, of `row_words` words. All threads of the block make one,
/// before their first access to global memory, and call each function alike, end() last. Callbacks are called by all threads, with barriers
/// between calls. The first `pushers` blocks push first, the others begin with what comes after: a device starts blocks of lower numbers
/// first.
template <int World, int Threads>
class Exchange {
 public:
  static constexpr int peers = World - 1;
  struct storage {
    int rows_of[World];  // by rank: the rows that it said to have sent here, -1 before
    Epoch::storage epoch;
    Claims::storage pushes, receives, kept;
  };

  const Team& team;
  const Peers& workspace;
  const Chunks<World> chunks;
  const int row_words, most_rows;

  __device__ __forceinline__ Exchange(const Team& its_team, const Peers& its_workspace, storage& its_storage,
                                      Chunks<World> its_chunks, int words_of_row, int rows_of_longest, int pushers)
      : team(its_team),
        workspace(its_workspace),
        chunks(its_chunks),
        row_words(words_of_row),
        most_rows(rows_of_longest),
        shared_(cleared(its_storage)),
        pushes_(static_cast<int>(blockIdx.x) < pushers),
        claims_(team, pushes_ ? 0 : 1, pushes_ ? shared_.pushes : shared_.receives),
        epoch_(team, shared_.epoch) {}

  /// Whether this block gives NaN for its share of outputs. It may come to that in receive_each() and receive_together() alone.
  __device__ __forceinline__ bool failed() const { return epoch_.failed(); }
  /// After the last of the calls below.
  __device__ __forceinline__ void end() const { epoch_.end(); }

  /// The rank that follows this one by `steps`.
  __device__ __forceinline__ int peer(int steps) const { return following<World>(team.rank, steps); }
  __device__ __forceinline__ long long words_of(int rows) const { return static_cast<long long>(rows) * row_words; }
  /// In `at`'s memory: a chunk of what `of` sends there.
  __device__ __forceinline__ uint4* place(int at, int chunk, int of) const {
    return chunks.place(workspace.of[at] + epoch_.half(), chunk, of);
  }

  /// Pushes claimed chunks of a part of `rows` rows to all peers: push(chunk) writes to each one's place.
  template <typename Push>
  __device__ __forceinline__ void push_to_all(int rows, Push push) {
    if (!pushes_) return;
    const unsigned count = chunks.count(words_of(rows));
    for (unsigned claimed = claims_.next(), next; claimed < count; claimed = next) {
      const int chunk = static_cast<int>(claimed);
      push(chunk);
      next = claims_.next();
      if (static_cast<int>(threadIdx.x) < peers && !epoch_.failed())
        epoch_.send(peer(static_cast<int>(threadIdx.x) + 1), chunk, rows);
    }
  }

  /// Pushes claimed chunks of a part for each peer: push(rank, chunk). Part `rank` has rows_for(rank) rows.
  template <typename Rows, typename Push>
  __device__ __forceinline__ void push_to_each(Rows rows_for, Push push) {
    if constexpr (peers > 0) {
      if (!pushes_) return;
      int most = 0;
      for (int i = 1; i < World; ++i) most = max(most, rows_for(peer(i)));
      const unsigned count = chunks.count(words_of(most)) * peers;
      for (unsigned claimed = claims_.next(), next; claimed < count; claimed = next) {
        const int chunk = static_cast<int>(claimed / peers), to = peer(1 + static_cast<int>(claimed % peers));
        const int rows = rows_for(to);
        const bool sends = chunk < chunks.count(words_of(rows)) && !epoch_.failed();
        if (sends) push(to, chunk);
        next = claims_.next();
        if (sends && threadIdx.x == 0) epoch_.send(to, chunk, rows);
      }
    }
  }

  /// Hands out the chunks of this rank's own part, of `rows` rows: keep(chunk). Blocks that push come to it when all is pushed. Dependents may
  /// be launched from here on.
  template <typename Keep>
  __device__ __forceinline__ void keep_own(int rows, Keep keep) {
    launch_dependents();
    Claims claims(team, 2, shared_.kept);
    const unsigned count = chunks.count(words_of(rows));
    for (unsigned claimed = claims.next(); claimed < count; claimed = claims.next()) keep(static_cast<int>(claimed));
  }

  /// Takes claimed chunks of the peers' parts one by one, in the order in which they are pushed: take(rank, chunk, rows). `rows` is -1
  /// where the part did not come; each chunk of the longest part is then told of.
  template <typename Take>
  __device__ __forceinline__ void receive_each(Take take) {
    launch_dependents();
    if constexpr (peers > 0) {
      Claims claims = receives();
      for (;;) {
        const unsigned claimed = claims.next();
        const int chunk = static_cast<int>(claimed / peers), from = peer(1 + static_cast<int>(claimed % peers));
        if (chunk >= chunks.most) return;
        const bool came = epoch_.await_all(1, [&](int) { return await_chunk(from, chunk); });
        const int rows = came ? shared_.rows_of[from] : -1;
        const bool exists = !came || chunk < chunks.count(words_of(rows));
        if (!exists && none_has(chunk)) return;
        if (exists) take(from, chunk, rows);
      }
    }
  }

  /// Takes claimed chunks of all peers' parts together, as far as `rows` rows reach: take(chunk, came). rows_from() then says how many rows each
  /// peer sent.
  template <typename Take>
  __device__ __forceinline__ void receive_together(int rows, Take take) {
    launch_dependents();
    Claims claims = receives();
    const unsigned count = chunks.count(words_of(rows));
    for (unsigned claimed = claims.next(); claimed < count; claimed = claims.next()) {
      const int chunk = static_cast<int>(claimed);
      take(chunk, epoch_.await_all(peers, [&](int thread) { return await_chunk(peer(thread + 1), chunk); }));
    }
  }

  __device__ __forceinline__ int rows_from(int rank) const { return shared_.rows_of[rank]; }

 private:
  static __device__ __forceinline__ storage& cleared(storage& shared) {
    if (threadIdx.x < World) shared.rows_of[threadIdx.x] = -1;
    wait_for_predecessor();
    return shared;
  }
  __device__ __forceinline__ Claims receives() const { return pushes_ ? Claims(team, 1, shared_.receives) : claims_; }

  // By single threads, within await_all().
  __device__ __forceinline__ bool await_rows(int from) const {
    if (shared_.rows_of[from] < 0) shared_.rows_of[from] = epoch_.await(from, 0);
    return shared_.rows_of[from] >= 0;
  }
  __device__ __forceinline__ bool await_chunk(int from, int chunk) const {
    if (!await_rows(from)) return false;
    return chunk == 0 || chunk >= chunks.count(words_of(shared_.rows_of[from])) || epoch_.await(from, chunk) >= 0;
  }

  /// Whether all peers' parts end before `chunk`: waits until their lengths are known.
  __device__ __forceinline__ bool none_has(int chunk) {
    const bool known = epoch_.await_all(peers, [&](int thread) { return await_rows(peer(thread + 1)); });
    int most = 0;
    for (int i = 1; i < World; ++i) most = max(most, shared_.rows_of[peer(i)]);
    return known && chunk >= chunks.count(words_of(most));
  }

  storage& shared_;
  const bool pushes_;
  Claims claims_;  // of pushes, where this block pushes
  Epoch epoch_;
};

}  // namespace kiln::team
