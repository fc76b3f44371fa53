// Tensors that kernels are given as descriptors of the copy engine.
#pragma once

#include <algorithm>
#include <cstring>

#include "module/tensor_map.hpp"
#include "twins/product.hpp"

namespace fake_cuda {

/// Parameter i, a descriptor that this driver made, of that many dimensions.
inline TensorMap map_at(const Invocation& call, std::size_t i, std::uint32_t rank) {
  const auto raw = call.value<CUtensorMap>(i);
  TensorMap map;
  std::memcpy(&map, &raw, sizeof map);
  require(map.magic == tensor_map_magic && map.rank == rank, CUDA_ERROR_LAUNCH_FAILED);
  return map;
}

/// Elements from one row to the next, or (1) from one matrix to the next.
inline std::int64_t stride_of(const TensorMap& map, std::string_view type, std::size_t dimension = 0) {
  return static_cast<std::int64_t>(map.stride_bytes[dimension]) / element_bytes(type);
}

/// Rows of a box of x, of which `shares` blocks load one each for all, where k runs along memory: together a tile's, or where x has
/// fewer all of x, in whole atoms of eight.
inline std::int64_t x_box_rows(const TensorMap& x, std::int64_t tile_m, std::int64_t shares) {
  return std::min(tile_m / shares, ceil_div(static_cast<std::int64_t>(x.shape[1]), 8 * shares) * 8);
}

}  // namespace fake_cuda
