// A tensor as a kernel takes it by value, for { view = "NAME" } in a pass's args.
#pragma once

namespace kiln {

/// Its address, and the strides that op.toml does not fix: in elements, outermost first. A kernel may name them by a
/// structure of its own with the same members in the same order.
template <typename T, int count>
struct view {
  T* address;
  long long strides[count];
};

/// Reads the members of a parameter of a kernel, `const __grid_constant__`, one by one where this stands. They are then compiled
/// as parameters of their own would be. The members of a structure that is copied whole are read where they are used.
template <typename T, int count>
__device__ __forceinline__ view<T, count> in_registers(const view<T, count>& of) {
  view<T, count> read;
  read.address = of.address;
#pragma unroll
  for (int i = 0; i < count; ++i) read.strides[i] = of.strides[i];
  return read;
}

/// A value of 32 bits in a { pack = [...] }, whose members have 8 bytes each.
template <typename T>
struct alignas(8) word {
  T value;
  __device__ __forceinline__ operator T() const { return value; }
};

}  // namespace kiln
