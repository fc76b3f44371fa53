// A block, or a cluster, has one tile of a product that all ranks add up. Each thread sends what it holds to the same
// thread of every peer.
//
// All ranks run the same config and number tiles alike. So the words of a tile lie in a peer's workspace as threads
// hold them, rounded to 16 bits. The thread that stores a word to y is the one that reads it from there.
#pragma once

#include "common/gemm/wgmma_block.cuh"
#include "common/team/chunks.cuh"

namespace kiln::team {

/// The block's shared memory, after the ring.
template <typename Tiles>
struct ReduceLayout {
  struct storage {
    Epoch::storage epoch;
    int rows_of[most_ranks];
  };
  static constexpr int barriers = gemm::Ring<Tiles>::bytes + gemm::staging_bytes<Tiles>;
  static constexpr int arrivals = barriers + gemm::Ring<Tiles>::barrier_bytes, bytes = arrivals + 64;
  static_assert(sizeof(storage) <= 64);
};

/// The tile of this block, or its cluster's part of k. Which one it is depends on the bucket alone, whatever rows a rank has: `tiles_m` counts
/// those of the bucket's upper edge. A tile without rows has no stages.
template <typename Tiles>
__device__ __forceinline__ gemm::WgmmaWork tile_of_block(int tiles_m, int rows, long long n, long long k) {
  const unsigned tile = blockIdx.x / Tiles::cluster_k, high = static_cast<unsigned>(tiles_m);
  const unsigned across = high == 1 ? tile : tile / high;
  const int row = static_cast<int>(tile - across * high) * Tiles::tile_m;
  const int part = Tiles::cluster_k == 1 ? 0 : static_cast<int>(cluster_block_rank());
  const int k_tiles = static_cast<int>((static_cast<unsigned>(k) + Tiles::tile_k - 1) / Tiles::tile_k);
  const int first = k_tiles * part / Tiles::cluster_k, end = k_tiles * (part + 1) / Tiles::cluster_k;
  return gemm::copied_inside<Tiles>(
      {row, static_cast<int>(across) * Tiles::tile_n, first, row < rows ? end - first : 0, 0, rows, 0},
      static_cast<int>(n));
}

/// Copies the work's stages from `first` to before `end`. For one warp.
template <typename Tiles>
__device__ __forceinline__ void copy_stages(const tensor_map* x_map, const tensor_map* w_map,
                                            const gemm::Ring<Tiles>& ring, const gemm::WgmmaWork& work, int x_box,
                                            int first, int end) {
  if (elect_one()) {
    gemm::RingPosition<Tiles::stages> at;
    at.advance(first);
#pragma unroll 1
    for (int tile = first; tile < end; ++tile, at.advance()) {
      mbarrier_wait(ring.empty(at.slot), at.parity ^ 1);
      gemm::copy_stage(x_map, w_map, ring, at.slot, work, tile, 0, x_box);
    }
  }
  __syncwarp();
}

/// A schedule of one work at most, which `consume` is given beside it.
struct OneWork {
  bool exists;
  static __device__ __forceinline__ int first() { return 0; }
  static __device__ __forceinline__ int step() { return 1; }
  __device__ __forceinline__ int count() const { return exists ? 1 : 0; }
  static __device__ __forceinline__ gemm::WgmmaWork at(int) { return {}; }
};

/// What a thread holds of a tile in the order of fragments, as wgmma leaves its sums.
template <typename T, typename Tiles>
struct FragmentWords {
  static constexpr int of_product = Tiles::B::extent / 2, sums = Tiles::row_blocks * of_product;
  static constexpr int width = sums % 8 == 0 ? 8 : 4, count = sums / width;  // elements of a word; words
  using Word = packed<T, width>;

  int first;  // of the warpgroup's rows of a

  __device__ __forceinline__ void take(const gemm::WgmmaSums<Tiles>& from, const gemm::WgmmaWork&, long long, char*,
                                       Word (&own)[count]) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      vec<float, width> values;
#pragma unroll
      for (int j = 0; j < width; ++j) values.at[j] = from[(i * width + j) / of_product][(i * width + j) % of_product];
      own[i] = from_floats<T, width>(values);
    }
  }

  /// Whether y may have elements of it.
  static __device__ __forceinline__ bool has(int) { return true; }
  /// Whether a rank with `rows` rows from the tile's first one on sends it.
  static __device__ __forceinline__ bool has(int, int rows) { return rows > 0; }
  /// Where it lies in the tile, in words.
  __device__ __forceinline__ int place(int i) const {
    return (first / (gemm::wgmma_rows * Tiles::row_blocks) * count + i) * gemm::warpgroup + gemm::warpgroup_thread();
  }
  /// The place of element j in the tile.
  __device__ __forceinline__ int row(int i, int j) const {
    return Tiles::swap ? along_b(i * width + j) + lane() % 4 * 2 + j % 2 : along_a(i * width + j) + lane() / 4;
  }

  /// Elements that y does not have are left out. Where operands are swapped, neighbours in a row of y are in lanes that lie four apart.
  __device__ __forceinline__ void store(int i, const Word& word, const gemm::WgmmaWork& work, T* y, long long n) const {
    const auto pairs = __builtin_bit_cast(vec<unsigned, width / 2>, word);
    const unsigned odd = lane() / 4 % 2;
#pragma unroll
    for (int pair = 0; pair < width / 2; ++pair) {
      const int sum = i * width + pair * 2;
      unsigned two = pairs.at[pair];
      int to_row = work.row + along_a(sum) + lane() / 4, to_column = work.column + along_b(sum) + lane() % 4 * 2;
      if constexpr (Tiles::swap) {
        const unsigned other = __shfl_xor_sync(full_warp, two, 4);
        two = odd != 0 ? __byte_perm(other, two, 0x7632) : __byte_perm(two, other, 0x5410);
        to_row = work.row + along_b(sum) + lane() % 4 * 2 + static_cast<int>(odd);
        to_column = work.column + along_a(sum) + lane() / 8 * 2;
      }
      if (to_row < work.rows && to_column < n) *reinterpret_cast<unsigned*>(y + to_row * n + to_column) = two;
    }
  }

 private:
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  /// The row or column of the fragment that the sum belongs to, and of the thread's warp.
  __device__ __forceinline__ int along_a(int sum) const {
    return first + sum / of_product * gemm::wgmma_rows + gemm::warpgroup_thread() / 32 * 16 + sum / 2 % 2 * 8;
  }
  static __device__ __forceinline__ int along_b(int sum) { return sum % of_product / 4 * 8; }
};

/// Words where blocks of a cluster hold the tile for parts of k. Each block takes a share of the tile and adds up its
/// sums in the order of the blocks, as gemm::store_over_cluster does. A word is of eight neighbours in a row.
template <typename T, typename Tiles>
struct ClusterWords {
  using P = gemm::Piece<Tiles>;
  using Sums = gemm::SumsPiece<Tiles>;
  static constexpr int threads = Tiles::consumers * gemm::warpgroup, width = 8;
  static constexpr int of_tile = Tiles::tile_m * Tiles::tile_n / width, of_piece = P::rows * Sums::groups;
  static constexpr int count = (of_tile + threads * Tiles::cluster_k - 1) / (threads * Tiles::cluster_k);
  using Word = packed<T, width>;

  int first;
  int block = static_cast<int>(cluster_block_rank());
  int rows = 0, columns = 0;  // of y, from the tile's corner on

  /// `ring` is read when all consumers have come here, and takes the sums. The cluster's other threads arrive and wait once meanwhile.
  __device__ __forceinline__ void take(const gemm::WgmmaSums<Tiles>& from, const gemm::WgmmaWork& work, long long n,
                                       char* ring, Word (&own)[count]) {
    rows = work.rows - work.row;
    columns = static_cast<int>(n) - work.column;
    float* const tile = reinterpret_cast<float*>(ring);
    named_barrier_sync(gemm::Turns<Tiles>::first_barrier, threads);
    float* mine = tile + first / gemm::wgmma_rows * P::of_product * P::rows * P::columns;
    gemm::for_each_piece<Tiles>(from, 0, 0, first, [&](int, int, const float* fragments) {
      Sums::put(mine, fragments);
      mine += P::rows * P::columns;
    });
    cluster_arrive();
    cluster_wait();
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if (!has(i)) continue;
      const unsigned local =
          shared_address(tile + place(i) / of_piece * P::rows * P::columns +
                         Sums::offset(place(i) % of_piece / Sums::groups, place(i) % Sums::groups * 8));
      vec<float, width> values = {};
#pragma unroll
      for (int each = 0; each < Tiles::cluster_k; ++each) {
        const unsigned there = mapa(local, each);
        const float4 low = ld_shared_cluster(there), high = ld_shared_cluster(there + 16);
        const float more[width] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int j = 0; j < width; ++j) values.at[j] += more[j];
      }
      own[i] = from_floats<T, width>(values);
    }
  }

  __device__ __forceinline__ bool has(int i) const {
    return place(i) < of_tile && row(i, 0) < rows && column(i) < columns;
  }
  __device__ __forceinline__ bool has(int i, int rows_of) const {
    return place(i) < of_tile && row(i, 0) < rows_of && column(i) < columns;
  }
  __device__ __forceinline__ int place(int i) const {
    return (i * Tiles::cluster_k + block) * threads + static_cast<int>(threadIdx.x) - gemm::warpgroup;
  }
  __device__ __forceinline__ int row(int i, int) const {
    const int piece = place(i) / of_piece, within = place(i) % of_piece / Sums::groups;
    return within + (P::swap ? piece % P::of_product * P::along_b : piece / P::of_product * gemm::wgmma_rows);
  }
  __device__ __forceinline__ void store(int i, const Word& word, const gemm::WgmmaWork& work, T* y, long long n) const {
    if (has(i)) __stwb(reinterpret_cast<Word*>(y + (work.row + row(i, 0)) * n + work.column + column(i)), word);
  }

 private:
  __device__ __forceinline__ int column(int i) const {
    const int piece = place(i) / of_piece, within = place(i) % Sums::groups * width;
    return within + (P::swap ? piece / P::of_product * gemm::wgmma_rows : piece % P::of_product * P::along_b);
  }
};

/// NaN in every element.
template <typename Word>
__device__ __forceinline__ Word poisoned() {
  return __builtin_bit_cast(Word,
                            vec<unsigned, sizeof(Word) / 4>().template map<unsigned>([](unsigned) { return ~0u; }));
}

/// The sum over the ranks of the thread's word i, of which rank r has parts[r] and `rows_of[r]` rows from the tile's first one on; others count as 0.
template <typename T, int World, typename Words>
__device__ __forceinline__ typename Words::Word sum_of_parts(const Words& held, int i,
                                                             const typename Words::Word (&parts)[World],
                                                             const int (&rows_of)[World]) {
  vec<float, Words::width> sum = {};
#pragma unroll
  for (int of = 0; of < World; ++of) {
    const auto more = to_floats<T, Words::width>(parts[of]);
#pragma unroll
    for (int j = 0; j < Words::width; ++j) {
      const bool sent = held.row(i, j) < rows_of[of];
      if (of == 0) {
        sum.at[j] = sent ? more.at[j] : 0.0f;
      } else if (sent) {
        sum.at[j] += more.at[j];
      }
    }
  }
  return from_floats<T, Words::width>(sum);
}

/// Words of a rank that a thread has under way at once.
template <int World>
inline constexpr int words_at_once = World > 4   ? 2
                                     : World > 2 ? 4
                                                 : 8;

/// A tile's words in the workspaces of all ranks, which hold [sending rank][tile][word].
template <typename Words, int World>
struct ExchangedTile {
  using Word = typename Words::Word;
  const Peers& slots;
  unsigned long long half;  // of this launch
  int rank;
  unsigned tile, tiles;  // its number, of so many
  int words;             // of a tile

  /// Stores this rank's words to all peers.
  __device__ __forceinline__ void push(const Words& held, const Word (&own)[Words::count]) const {
#pragma unroll
    for (int step = 1; step < World; ++step) {
      Word* const to = slot(following<World>(rank, step), rank);
#pragma unroll
      for (int i = 0; i < Words::count; ++i) {
        if (held.has(i)) __stwb(to + held.place(i), own[i]);
      }
    }
  }

  /// Adds up the words of all ranks, in the order of the ranks. Rank r sent `rows_of[r]` rows from the tile's first one on; others count as 0.
  template <typename T>
  __device__ __forceinline__ void add(const Words& held, const int (&rows_of)[World], Word (&own)[Words::count]) const {
    constexpr int batch = words_at_once<World>;
#pragma unroll
    for (int first = 0; first < Words::count; first += batch) {
      Word parts[batch][World];
#pragma unroll
      for (int i = first; i < gemm::least_of(first + batch, Words::count); ++i) {
#pragma unroll
        for (int of = 0; of < World; ++of) {
          parts[i - first][of] = own[i];
          if (of != rank && held.has(i)) parts[i - first][of] = __ldcg(slot(rank, of) + held.place(i));
        }
      }
#pragma unroll
      for (int i = first; i < gemm::least_of(first + batch, Words::count); ++i) {
        Word of_ranks[World];
#pragma unroll
        for (int of = 0; of < World; ++of) of_ranks[of] = parts[i - first][of];
        own[i] = sum_of_parts<T, World>(held, i, of_ranks, rows_of);
      }
      __syncwarp();  // no more words than these at once: registers
    }
  }

 private:
  /// In the workspace of `at`: what `from` pushes of the tile.
  __device__ __forceinline__ Word* slot(int at, int from) const {
    return reinterpret_cast<Word*>(slots.of[at] + half) +
           (static_cast<unsigned>(from) * tiles + tile) * static_cast<unsigned long long>(words);
  }
};

}  // namespace kiln::team
