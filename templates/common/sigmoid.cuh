#pragma once

namespace kiln {

/// 1 / (1 + exp(-x)), a few units in the last place from it; silu(x) = x * sigmoid(x).
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

}  // namespace kiln
