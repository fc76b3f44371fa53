#include "module/tensor_map.hpp"

#include <algorithm>
#include <cstring>

#include "driver/entry.hpp"

using fake_cuda::require;
using fake_cuda::TensorMap;

namespace {

std::uint64_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    default: return 4;
  }
}

constexpr std::uint64_t swizzle_bytes[] = {0, 32, 64, 128};

}  // namespace

// The limits are those that the driver's reference gives for cuTensorMapEncodeTiled.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, unsigned int rank, void* address,
                                const std::uint64_t* shape, const std::uint64_t* strides, const std::uint32_t* box,
                                const std::uint32_t* element_strides, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill) {
  return fake_cuda::entry(__func__, [&](fake_cuda::Machine& machine) {
    require(machine.settings.sm >= 90, CUDA_ERROR_NOT_SUPPORTED);
    require(reinterpret_cast<std::uintptr_t>(map) % 64 == 0 && rank >= 1 && rank <= 5, CUDA_ERROR_INVALID_VALUE);
    TensorMap made{reinterpret_cast<CUdeviceptr>(address),
                   rank,
                   type,
                   {},
                   {},
                   {},
                   swizzle,
                   promotion,
                   fake_cuda::tensor_map_magic};
    require(made.address != 0 && made.address % 16 == 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < rank; ++i) {
      require(shape[i] >= 1 && shape[i] <= std::uint64_t{1} << 32 && box[i] >= 1 && box[i] <= 256 &&
                  element_strides[i] == 1,
              CUDA_ERROR_INVALID_VALUE);
      made.shape[i] = shape[i];
      made.box[i] = box[i];
    }
    for (unsigned i = 0; i + 1 < rank; ++i) {
      require(strides[i] % 16 == 0 && strides[i] < std::uint64_t{1} << 40, CUDA_ERROR_INVALID_VALUE);
      made.stride_bytes[i] = strides[i];
    }
    const std::uint64_t inner = box[0] * element_bytes(type);
    require(inner % 16 == 0 && (swizzle == CU_TENSOR_MAP_SWIZZLE_NONE || inner <= swizzle_bytes[swizzle]),
            CUDA_ERROR_INVALID_VALUE);
    std::memset(map, 0, sizeof *map);
    std::memcpy(map, &made, sizeof made);
  });
}
