// Which group's tile a block computes, where the rows of x are cut into groups by offsets in device memory.
#pragma once

#include "common/gemm/epilogue.cuh"
#include "common/reduce.cuh"

namespace kiln::gemm {

/// Rows [first_row, end_row) of x and y are the group's; `tile` counts its tiles from 0.
struct GroupTile {
  int group, first_row, end_row, tile;
};

/// The tile number `index` of all groups' tiles, of `tile_m` rows each and `tiles_n` across, group by group; group -1 past
/// the last. `offsets` are groups + 1 numbers, taken as between 0 and m whatever they are. All lanes of a warp take part
/// and get the same.
__device__ __forceinline__ GroupTile find_group_tile(const int* offsets, int groups, int m, int tile_m, int tiles_n,
                                                     int index) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int before = 0;
#pragma unroll 1
  for (int first = 0; first < groups; first += 32) {
    const int group = first + lane;
    const int begin = group < groups ? min(max(offsets[group], 0), m) : 0;
    const int end = group < groups ? min(max(offsets[group + 1], begin), m) : 0;
    const int own = (end - begin + tile_m - 1) / tile_m * tiles_n;
    int until = own;  // tiles of this lane's group and those of the lanes before
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int others = __shfl_up_sync(full_warp, until, distance);
      if (lane >= distance) until += others;
    }
    const unsigned past = __ballot_sync(full_warp, index < before + until);
    if (past != 0) {
      const int source = __ffs(static_cast<int>(past)) - 1;
      return {first + source, __shfl_sync(full_warp, begin, source), __shfl_sync(full_warp, end, source),
              index - before - __shfl_sync(full_warp, until - own, source)};
    }
    before += __shfl_sync(full_warp, until, 31);
  }
  return {-1, 0, 0, 0};
}

/// How many there are. All lanes of a warp take part and get the same.
__device__ __forceinline__ int count_group_tiles(const int* offsets, int groups, int m, int tile_m, int tiles_n) {
  int tiles = 0;
  for (int group = static_cast<int>(threadIdx.x) % 32; group < groups; group += 32) {
    const int begin = min(max(offsets[group], 0), m), end = min(max(offsets[group + 1], begin), m);
    tiles += (end - begin + tile_m - 1) / tile_m;
  }
  return warp_reduce(tiles, add{}) * tiles_n;
}

/// What one group's product has of its own: rows of x and y from `first_row` on, and its part of all that is [groups, ...].
struct GroupStrides {
  long long w, bias, w_scale;
};

/// `first` with all that differs moved on to the group, whose rows are counted from 0.
template <class Config, int alignment>
__device__ __forceinline__ epilogue<Config, alignment> epilogue_of_group(epilogue<Config, alignment> first,
                                                                         const GroupStrides& strides,
                                                                         const GroupTile& of) {
  first.y += of.first_row * first.y_stride;
  if (first.bias != nullptr) first.bias += of.group * strides.bias;
  if constexpr (Config::residual == Residual::add) first.residual += of.first_row * first.residual_stride;
  if constexpr (Config::scaling != Scaling::none) first.w_scale += of.group * strides.w_scale;
  if constexpr (Config::scaling == Scaling::row || Config::scaling == Scaling::block)
    first.x_scale += of.first_row * first.x_scale_stride;
  first.rows = of.end_row - of.first_row;
  return first;
}

}  // namespace kiln::gemm
