// From the sums that a warpgroup holds to y: through shared memory, where neighbours in a row of y
// meet.
//
// A warpgroup works by itself, on one piece of its part of the tile at a time. A piece is one 64-row product by up to
// 64 of its other dimension. A piece is `rows` of y by `columns`, whichever of the two the product's 64 rows are.
#pragma once

#include "common/cluster.cuh"
#include "common/gemm/epilogue.cuh"
#include "common/gemm/wgmma_tile.cuh"
#include "common/named_barrier.cuh"
#include "common/reduce.cuh"
#include "common/stmatrix.cuh"

namespace kiln::gemm {

template <typename Tiles>
struct Piece {
  static constexpr bool swap = Tiles::swap;
  static constexpr int along_b =
      least_of(64, Tiles::B::extent & -Tiles::B::extent);  // a power of two, so that pieces fill the tile
  static constexpr int rows = swap ? along_b : wgmma_rows, columns = swap ? wgmma_rows : along_b;
  static constexpr int of_product = Tiles::B::extent / along_b;
  static constexpr int fragments = along_b / 8;  // of 64 x 8, 4 sums of a thread each

  /// Pieces that are filled and stored at once, so that the warpgroup meets once for all.
  static constexpr int most_at_once =
      least_of(Tiles::consumers == 3 || Tiles::B::extent % 16 != 0 ? 32 : 64, Tiles::B::extent);  // of b
  static constexpr int at_once = along_b > most_at_once ? 1 : most_at_once / along_b;
  static_assert(at_once <= warpgroup / 32);  // a warp copies one
  /// Bytes of a warpgroup: a piece in f32, or twice as many as are stored at once in 16 bits.
  static constexpr int staging_bytes = at_once * rows * columns * 4;
};

/// What a warpgroup stores its tiles through.
struct WgmmaStaging {
  char* ring;    // of the block, which cluster_k takes once it is read
  char* pieces;  // of the warpgroup
  int turn;      // of the two halves of `pieces`
};

/// Whether a thread's sums leave it few other registers.
template <typename Tiles>
inline constexpr bool many_sums = Tiles::row_blocks* Tiles::B::extent / 2 > 128;

__device__ __forceinline__ int warpgroup_thread() { return static_cast<int>(threadIdx.x) % warpgroup; }

/// Waits for the threads of the consuming warpgroup alone, by barrier 1, 2 or 3.
__device__ __forceinline__ void warpgroup_sync() {
  named_barrier_sync(static_cast<int>(threadIdx.x) / warpgroup, warpgroup);
}

/// Calls `each(row, column, sums)` for each piece of this warpgroup's part of the tile at (row, column). It gives the
/// piece's corner and the thread's sums of its fragments. `first`: of the warpgroup's rows of a in the tile.
template <typename Tiles, typename Each>
__device__ __forceinline__ void for_each_piece(const WgmmaSums<Tiles>& sums, int row, int column, int first,
                                               Each each) {
  using P = Piece<Tiles>;
#pragma unroll
  for (int i = 0; i < Tiles::row_blocks; ++i) {
#pragma unroll
    for (int piece = 0; piece < P::of_product; ++piece) {
      const int along_a = first + i * wgmma_rows, along_b = piece * P::along_b;
      each(row + (P::swap ? along_b : along_a), column + (P::swap ? along_a : along_b),
           &sums[i][piece * P::fragments * 4]);
    }
  }
}

/// A piece of finished results of 16 bits in shared memory, as the copy engine takes it: rows whose chunks of 16 bytes
/// are permuted.
template <typename Tiles, typename Epilogue>
struct RoundedPiece {
  using P = Piece<Tiles>;
  using Out = typename Epilogue::Out;
  static constexpr int pitch = P::columns * 2, bytes = P::rows * pitch;
  static_assert(sizeof(Out) == 2 && (pitch == 128 || pitch == 64 || pitch == 32));

  static __device__ __forceinline__ unsigned offset(int row, int chunk) {
    const int permutation = pitch == 128 ? row & 7 : pitch == 64 ? row >> 1 & 3 : row >> 2 & 1;
    return row * pitch + (chunk ^ permutation) * 16;
  }

  /// What a lane loads for the sums of a piece. It is for two columns of all lanes or, where a thread's sums are of two
  /// columns alone, for these.
  using OfOne = decltype(Epilogue().template terms<1>(0));
  struct OfTwo {
    OfOne left, right;
  };
  using Terms = typename detail::choose<P::swap, OfTwo, decltype(Epilogue().template terms<2>(0))>::type;
  static __device__ __forceinline__ Terms terms(int column, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32;
    if constexpr (P::swap) {
      const int left = column + warpgroup_thread() / 32 * 16 + lane / 4;
      return {epilogue.template terms<1>(left), epilogue.template terms<1>(left + 8)};
    } else {
      return epilogue.template terms<2>(column + lane * 2 % P::columns);
    }
  }

  /// Finishes and rounds what this thread holds of the piece at (row, column) of y.
  static __device__ __forceinline__ void put(unsigned piece, const float* sums, int row, int column, const Terms& terms,
                                             const Epilogue& epilogue) {
    if constexpr (P::swap) {
      put_transposed(piece, sums, row, column, terms, epilogue);
    } else {
      put_straight(piece, sums, row, column, terms, epilogue);
    }
  }

  /// Stores the rows before `rows` of y, where the copy engine would store all.
  static __device__ __forceinline__ void copy_rows(const char* piece, int row, int column, const Epilogue& epilogue) {
    constexpr int chunks = pitch / 16;
#pragma unroll 1
    for (int i = warpgroup_thread(); i < P::rows * chunks && row + i / chunks < epilogue.rows; i += warpgroup) {
      const int at = column + i % chunks * 8;
      const Out* const from = reinterpret_cast<const Out*>(piece + offset(i / chunks, i % chunks));
      Out* const to = epilogue.y + (row + i / chunks) * epilogue.y_stride + at;
      if (at + 8 <= epilogue.columns) {
        store(to, load<8>(from));
      } else {
#pragma unroll 1
        for (int j = 0; at + j < epilogue.columns; ++j) to[j] = from[j];
      }
    }
  }

 private:
  /// Fragments of which what is added to them is loaded before the first of it is used: as many as registers allow.
  static constexpr int batch = Epilogue::addends_count < 2 ? P::fragments
                               : many_sums<Tiles>          ? 2
                               : OfOne::scaled             ? 4
                                                           : P::fragments;
  struct Added {
    typename Epilogue::template addends<2> at[batch][2];
  };
  /// From the fragment at `column` on, whose columns are y's if `whole`.
  template <bool whole>
  static __device__ __forceinline__ Added load_added(int upper, int lower, int column, const Epilogue& epilogue) {
    Added added = {};
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int at = column + i * 8 + threadIdx.x % 4 * 2;
      added.at[i][0] = epilogue.template load_addends<2, whole>(upper, at);
      added.at[i][1] = epilogue.template load_addends<2, whole>(lower, at);
    }
    return added;
  }

  static __device__ __forceinline__ unsigned pair(float low, float high) { return from_floats<Out, 2>({low, high}); }

  static __device__ __forceinline__ void put_straight(unsigned piece, const float* sums, int row, int column,
                                                      const Terms& of_lane, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, first = warpgroup_thread() / 32 * 16;  // of the warp's 16 rows
    const int upper = min(row + first + lane / 4, epilogue.rows - 1), lower = min(upper + 8, epilogue.rows - 1);
    const bool whole = column + P::columns <= epilogue.columns;
    Added added = {};
#pragma unroll
    for (int i = 0; i < P::fragments; i += 2) {
      if (Epilogue::adds && i % batch == 0)
        added = whole ? load_added<true>(upper, lower, column + i * 8, epilogue)
                      : load_added<false>(upper, lower, column + i * 8, epilogue);
      unsigned matrices[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const four = sums + (i + half) * 4;
        const int pair_index = (i + half) * 4 + lane % 4, at = column + pair_index * 2;
        const auto terms = from_lane(of_lane, pair_index);
        const auto above =
            epilogue.template finish<2>(upper, at, terms, {four[0], four[1]}, &added.at[(i + half) % batch][0]);
        const auto below =
            epilogue.template finish<2>(lower, at, terms, {four[2], four[3]}, &added.at[(i + half) % batch][1]);
        matrices[half * 2] = pair(above.at[0], above.at[1]);
        matrices[half * 2 + 1] = pair(below.at[0], below.at[1]);
      }
      stmatrix_x4(piece + offset(first + lane % 16, i + lane / 16), matrices);
    }
  }

  /// Each lane has the terms of two columns, which all rows of the piece need.
  static __device__ __forceinline__ Terms from_lane(const Terms& of_lane, int lane) {
    Terms terms = {};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      terms.shift[i] = __shfl_sync(full_warp, of_lane.shift[i], lane);
      if constexpr (OfOne::scaled) terms.factor[i] = __shfl_sync(full_warp, of_lane.factor[i], lane);
    }
    return terms;
  }

  /// The thread's sums are of two columns of y, which is what the 64 rows of the product are, and of neighbouring rows.
  static __device__ __forceinline__ void put_transposed(unsigned piece, const float* sums, int row, int column,
                                                        const Terms& terms, const Epilogue& epilogue) {
    const int lane = threadIdx.x % 32, warp = warpgroup_thread() / 32;
    const int left = column + warp * 16 + lane / 4, right = left + 8;
    const auto finish_pair = [&](int at, int column, const OfOne& of, float first, float second) {
      const int last = epilogue.rows - 1;
      return pair(epilogue.template finish<1>(min(at, last), column, of, {first}).at[0],
                  epilogue.template finish<1>(min(at + 1, last), column, of, {second}).at[0]);
    };
    const int stored_row = lane % 8 + lane / 16 * 8, chunk = warp * 2 + lane / 8 % 2;
#pragma unroll
    for (int i = 0; i < P::fragments; i += 2) {
      unsigned matrices[4];
#pragma unroll
      for (int half = 0; half < 2 && i + half < P::fragments; ++half) {
        const float* const four = sums + (i + half) * 4;
        const int at = row + (i + half) * 8 + lane % 4 * 2;
        matrices[half * 2] = finish_pair(at, left, terms.left, four[0], four[1]);
        matrices[half * 2 + 1] = finish_pair(at, right, terms.right, four[2], four[3]);
      }
      if constexpr (P::fragments == 1) {
        stmatrix_x2_trans(piece + offset(lane % 8, chunk), {matrices[0], matrices[1]});
      } else {
        stmatrix_x4_trans(piece + offset(i * 8 + stored_row, chunk), matrices);
      }
    }
  }
};

/// Where y lies for the copy engine: the product's first row, and its plane where there are several.
struct StoredRows {
  const tensor_map* map;
  int first_row, plane;
  bool bounded;  // the product's rows end before those that the map knows
};

/// Stores `count` pieces that all of the warpgroup have filled and that follow each other along b. The first is for
/// (row, column) of y. `by_rows`: y has not all their rows, and the copy engine does not know. `warp`: of the
/// warpgroup.
template <typename Tiles, typename Epilogue>
__device__ __forceinline__ void store_rounded(const StoredRows& y, const char* pieces, int count, bool by_rows, int row,
                                              int column, int warp, const Epilogue& epilogue) {
  using P = Piece<Tiles>;
  using Rounded = RoundedPiece<Tiles, Epilogue>;
  const auto row_of = [&](int i) { return row + (P::swap ? i * P::along_b : 0); };
  const auto column_of = [&](int i) { return column + (P::swap ? 0 : i * P::along_b); };
  const auto is_in_y = [&](int i) { return row_of(i) < epilogue.rows && column_of(i) < epilogue.columns; };
  if (__builtin_expect(by_rows, false)) {
#pragma unroll 1
    for (int i = 0; i < count && is_in_y(i); ++i)
      Rounded::copy_rows(pieces + i * Rounded::bytes, row_of(i), column_of(i), epilogue);
  } else if (threadIdx.x % 32 == 0 && warp < count && is_in_y(warp)) {  // of each warp: one piece
    const unsigned from = shared_address(pieces + warp * Rounded::bytes);
    if constexpr (Tiles::y_planes) {
      tma_store_3d(y.map, from, column_of(warp), y.first_row + row_of(warp), y.plane);
    } else {
      tma_store_2d(y.map, from, column_of(warp), y.first_row + row_of(warp));
    }
  }
  if (threadIdx.x % 32 == 0) tma_store_commit();  // a group a round, also where it is empty: waits count them
}

/// Stores the warpgroup's part of the tile at (row, column) by TMA, whose copies go on while the warpgroup multiplies
/// again.
template <typename Tiles, typename Epilogue>
__device__ __forceinline__ void store_by_tma(const WgmmaSums<Tiles>& sums, const StoredRows& y, WgmmaStaging& staging,
                                             int row, int column, int first, const Epilogue& epilogue) {
  using Rounded = RoundedPiece<Tiles, Epilogue>;
  using P = Piece<Tiles>;
  const int warp = __shfl_sync(full_warp, warpgroup_thread() / 32, 0);  // seen to be the same in all lanes
  const bool by_rows = y.bounded && row + Tiles::tile_m > epilogue.rows;
  constexpr bool all_terms = !P::swap && !many_sums<Tiles>;  // of all pieces before the first is finished
  typename Rounded::Terms terms[all_terms ? P::of_product : 1] = {};
  if constexpr (all_terms) {
#pragma unroll
    for (int i = 0; i < P::of_product; ++i) terms[i] = Rounded::terms(column + i * P::columns, epilogue);
  }
  int piece = 0;  // of the product
  for_each_piece<Tiles>(sums, row, column, first, [&](int at_row, int at_column, const float* fragments) {
    const int in_turn = piece % P::at_once;
    const bool last = in_turn == P::at_once - 1 || piece == P::of_product - 1;
    if (!all_terms && (!P::swap || piece == 0)) terms[0] = Rounded::terms(at_column, epilogue);
    const auto of_piece = terms[all_terms ? piece : 0];
    piece = piece == P::of_product - 1 ? 0 : piece + 1;
    char* const half = staging.pieces + staging.turn * (P::at_once * Rounded::bytes);
    if (in_turn == 0) {
      if (threadIdx.x % 32 == 0) tma_store_wait_read<1>();  // of this half: only the other's may still be under way
      warpgroup_sync();
    }
    if (at_row < epilogue.rows && at_column < epilogue.columns)
      Rounded::put(shared_address(half + in_turn * Rounded::bytes), fragments, at_row, at_column, of_piece, epilogue);
    if (!last) return;
    staging.turn ^= 1;
    fence_proxy_async();
    warpgroup_sync();
    const int back = in_turn * P::along_b;
    store_rounded<Tiles>(y, half, in_turn + 1, by_rows, at_row - (P::swap ? back : 0), at_column - (P::swap ? 0 : back),
                         warp, epilogue);
  });
}

/// A piece of sums in shared memory, row by row. Each 8 neighbours stay together, but groups of a row are permuted
/// against bank conflicts.
template <typename Tiles>
struct SumsPiece {
  using P = Piece<Tiles>;
  static constexpr int groups = P::columns / 8;

  static __device__ __forceinline__ int offset(int row, int column) {  // floats
    return row * P::columns + ((column / 8) ^ (row & (groups - 1))) * 8 + column % 8;
  }

  static __device__ __forceinline__ void put(float* piece, const float* sums) {
    const int lane = threadIdx.x % 32, along_a = warpgroup_thread() / 32 * 16 + lane / 4, along_b = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < P::fragments; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int a = along_a + half * 8, b = along_b + i * 8;
        const float first = sums[i * 4 + half * 2], second = sums[i * 4 + half * 2 + 1];
        if constexpr (P::swap) {
          piece[offset(b, a)] = first;
          piece[offset(b + 1, a)] = second;
        } else {
          store(piece + offset(a, b), vec<float, 2>{first, second});
        }
      }
    }
  }

  static __device__ __forceinline__ void get(float (&values)[8], const float* piece, int row, int group) {
    const float* const from = piece + offset(row, group * 8);
    const vec<float, 4> low = load<4>(from), high = load<4>(from + 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      values[i] = low.at[i];
      values[4 + i] = high.at[i];
    }
  }
};

/// Hands a piece of sums at (row, column), which all of the warpgroup have put there, to `ending`. It calls
/// `ending.store(row, column, terms, sums)` for 8 neighbours at a time.
template <typename Tiles, typename Ending>
__device__ __forceinline__ void store_piece(const float* piece, int row, int column, const Ending& ending) {
  using Sums = SumsPiece<Tiles>;
  const int group = warpgroup_thread() % Sums::groups;  // the same in every row
  const auto terms = ending.template terms<8>(column + group * 8);
#pragma unroll 1
  for (int i = warpgroup_thread() / Sums::groups; i < Piece<Tiles>::rows; i += warpgroup / Sums::groups) {
    float values[8];
    Sums::get(values, piece, i, group);
    ending.template store<8>(row + i, column + group * 8, terms, values);
  }
}

/// Stores the warpgroup's part of the tile at (row, column) by threads, piece by piece.
template <typename Tiles, typename Ending>
__device__ __forceinline__ void store_directly(const WgmmaSums<Tiles>& sums, char* staging, int row, int column,
                                               int first, const Ending& ending) {
  float* const piece = reinterpret_cast<float*>(staging);
  for_each_piece<Tiles>(sums, row, column, first, [&](int at_row, int at_column, const float* fragments) {
    if (at_row >= ending.rows || at_column >= ending.columns) return;
    warpgroup_sync();  // all have read the piece before
    SumsPiece<Tiles>::put(piece, fragments);
    warpgroup_sync();
    store_piece<Tiles>(piece, at_row, at_column, ending);
  });
}

/// Adds the sums of the cluster's blocks, which hold the same tile for parts of k, in the order of their ranks. Stores
/// the share of the tile that is this block's. `pieces` holds a tile in f32, and nothing is read or written there any
/// more. For all consumers of the block.
template <typename Tiles, typename Ending>
__device__ __forceinline__ void store_over_cluster(const WgmmaSums<Tiles>& sums, char* pieces, int row, int column,
                                                   int first, unsigned rank, const Ending& ending) {
  using P = Piece<Tiles>;
  using Sums = SumsPiece<Tiles>;
  constexpr int count = Tiles::consumers * Tiles::row_blocks * P::of_product, threads = Tiles::consumers * warpgroup;
  constexpr int groups = count * P::rows * Sums::groups;
  float* const tile = reinterpret_cast<float*>(pieces);

  float* mine = tile + first / wgmma_rows * P::of_product * P::rows * P::columns;
  for_each_piece<Tiles>(sums, 0, 0, first, [&](int, int, const float* fragments) {
    Sums::put(mine, fragments);
    mine += P::rows * P::columns;
  });
  cluster_arrive();
  cluster_wait();
#pragma unroll 1
  for (int i = static_cast<int>(rank) * threads + static_cast<int>(threadIdx.x) - warpgroup; i < groups;
       i += threads * Tiles::cluster_k) {
    const int piece = i / (P::rows * Sums::groups), in_piece = i % (P::rows * Sums::groups);
    const int piece_row = in_piece / Sums::groups, group = in_piece % Sums::groups;
    const int along_a = piece / P::of_product * wgmma_rows, along_b = piece % P::of_product * P::along_b;
    const int at_row = row + (P::swap ? along_b : along_a) + piece_row;
    const int at_column = column + (P::swap ? along_a : along_b) + group * 8;
    if (at_row >= ending.rows || at_column >= ending.columns) continue;
    const unsigned local = shared_address(tile + piece * P::rows * P::columns + Sums::offset(piece_row, group * 8));
    float values[8] = {};
#pragma unroll
    for (int block = 0; block < Tiles::cluster_k; ++block) {
      const unsigned from = mapa(local, block);
      const float4 low = ld_shared_cluster(from), high = ld_shared_cluster(from + 16);
      const float more[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int j = 0; j < 8; ++j) values[j] += more[j];
    }
    ending.template store<8>(at_row, at_column, ending.template terms<8>(at_column), values);
  }
  cluster_arrive_relaxed();  // this block has read the others' sums
  cluster_wait();
}

}  // namespace kiln::gemm
