// Overlap of a kernel with the end of the one before it, for passes that are launched with `programmatic = true` (sm_90
// and later). Without such a launch, and on older chips, kernels follow each other whole and these do nothing.
#pragma once

namespace kiln {

/// griddepcontrol.launch_dependents: once every block of this grid has said so, the next grid may take free
/// multiprocessors.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// griddepcontrol.wait: until the grid before this one has ended and its writes are seen. Before the first use of them.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace kiln
