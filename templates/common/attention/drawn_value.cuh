// Values at random for prepared inputs.
#pragma once

namespace kiln::attention {

/// Uniform in [-1, 1), by SplitMix64's finaliser.
__device__ inline float drawn_value(unsigned long long seed, unsigned long long index) {
  unsigned long long z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<float>(static_cast<unsigned>((z ^ (z >> 31)) >> 40)) * 0x1p-23f - 1.0f;
}

}  // namespace kiln::attention
