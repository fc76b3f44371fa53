// What the fake driver puts into a CUtensorMap, for twins to read.
#pragma once

#include <cstdint>

#include "cuda/driver_types.hpp"

namespace fake_cuda {

struct TensorMap {
  CUdeviceptr address;
  std::uint32_t rank;
  CUtensorMapDataType type;
  std::uint64_t shape[5];         // elements, innermost first
  std::uint64_t stride_bytes[4];  // of every dimension but the innermost
  std::uint32_t box[5];           // elements
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  std::uint32_t magic;  // marks a map that this driver made
};
inline constexpr std::uint32_t tensor_map_magic = 0x7e4503a9;
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));

}  // namespace fake_cuda
