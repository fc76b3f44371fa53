// Shared memory as instructions address it.
#pragma once

namespace kiln {

/// The 32-bit address that instructions on shared memory take.
__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

/// The block's dynamic shared memory. Where a kernel has no static one, it begins at a multiple of 1024 bytes. The
/// 128-byte swizzle of TMA and wgmma goes by that.
template <typename T = char>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) char kiln_dynamic_shared[];
  return reinterpret_cast<T*>(kiln_dynamic_shared);
}

}  // namespace kiln
