// What a TMA descriptor says, in the emulator's own layout.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator {

/// As wide as the descriptor that kernels take. Innermost dimension first.
struct alignas(64) TensorMap {
  std::byte* base = nullptr;
  std::uint32_t rank = 0, element_bytes = 0;
  std::uint32_t swizzle = 0;      // bytes: 0, 32, 64 or 128
  std::uint32_t extents[5] = {};  // elements
  std::uint32_t box[5] = {};      // elements
  std::uint64_t strides[4] = {};  // bytes, from the second dimension on

  [[nodiscard]] std::size_t box_bytes() const;
};
static_assert(sizeof(TensorMap) == 128);

/// With the conditions of cuTensorMapEncodeTiled; `Map` is the kernels' type. Throws Fault where one does not hold.
TensorMap describe(const void* base, std::size_t element_bytes, const std::vector<std::uint32_t>& extents,
                   const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                   std::uint32_t swizzle);
template <typename Map>
Map tensor_map(const void* base, std::size_t element_bytes, const std::vector<std::uint32_t>& extents,
               const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
               std::uint32_t swizzle) {
  return std::bit_cast<Map>(describe(base, element_bytes, extents, strides, box, swizzle));
}

/// Where the swizzle puts what lies at `address`: chunks of 16 bytes change places by the address's bits from 7 on.
inline unsigned swizzled(unsigned address, unsigned swizzle) {
  const unsigned chunks = swizzle / 16;
  return chunks == 0 ? address : address ^ (address >> 7 & (chunks - 1)) << 4;
}

/// Rows of the box at `at` that lie outside of the tensor; a row runs along the innermost dimension.
std::uint32_t rows_outside(const TensorMap& map, const std::int32_t (&at)[5]);

/// visit(element's place in the box in bytes, its address or null outside of the tensor) for the box at `at`.
template <typename Visit>
void each_element(const TensorMap& map, const std::int32_t (&at)[5], Visit visit) {
  const std::size_t elements = map.box_bytes() / map.element_bytes;
  std::uint32_t within[5] = {};
  for (std::size_t i = 0; i < elements; ++i) {
    std::byte* address = map.base;
    for (std::uint32_t d = 0; d < map.rank; ++d) {
      const std::int64_t coordinate = std::int64_t{at[d]} + within[d];
      if (coordinate < 0 || coordinate >= map.extents[d]) {
        address = nullptr;
        break;
      }
      address += coordinate * static_cast<std::int64_t>(d == 0 ? map.element_bytes : map.strides[d - 1]);
    }
    visit(i * map.element_bytes, address);
    for (std::uint32_t d = 0; d < map.rank && ++within[d] == map.box[d]; ++d) within[d] = 0;
  }
}

}  // namespace emulator
