// Inputs for verification and timing: those of any cache, and scales of its heads.
#pragma once

#include "common/attention/cache_prepare.cuh"

/// grid (1), block (256): a key head's scales of 8-bit k and v, from 3 / 4 to 5 / 4.
__global__ __launch_bounds__(256) void attention_decode_scales(float* k_scale, float* v_scale, long long key_heads,
                                                               unsigned long long seed) {
  for (long long i = threadIdx.x; i < key_heads; i += 256) {
    k_scale[i] = 1.0f + 0.25f * kiln::attention::drawn_value(~seed, 2 * i);
    v_scale[i] = 1.0f + 0.25f * kiln::attention::drawn_value(~seed, 2 * i + 1);
  }
}
