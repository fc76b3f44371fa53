// Random numbers by counter.
#pragma once

namespace kiln {

/// Philox-4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). It makes
/// 128 bits that are a function of a counter and a key alone.
__device__ __forceinline__ uint4 philox_4x32_10(uint4 counter, unsigned key_low, unsigned key_high) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const unsigned long long first = 0xd2511f53ull * counter.x, second = 0xcd9e8d57ull * counter.z;
    counter = make_uint4(static_cast<unsigned>(second >> 32) ^ counter.y ^ key_low, static_cast<unsigned>(second),
                         static_cast<unsigned>(first >> 32) ^ counter.w ^ key_high, static_cast<unsigned>(first));
    key_low += 0x9e3779b9u;
    key_high += 0xbb67ae85u;
  }
  return counter;
}

}  // namespace kiln
