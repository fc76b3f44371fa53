// One lane of a warp (sm_90 and later).
#pragma once

namespace kiln {

/// elect.sync: true in one lane, the same at each call. All 32 lanes must call it together.
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile(
      "{\n"
      ".reg .pred elected;\n"
      "elect.sync _|elected, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, elected;\n"
      "}"
      : "=r"(elected)::"memory");
  return elected != 0;
}

}  // namespace kiln
