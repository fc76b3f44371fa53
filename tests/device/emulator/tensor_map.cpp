#include "emulator/tensor_map.hpp"

#include "emulator/fault.hpp"

namespace emulator {

std::size_t TensorMap::box_bytes() const {
  std::size_t bytes = element_bytes;
  for (std::uint32_t d = 0; d < rank; ++d) bytes *= box[d];
  return bytes;
}

TensorMap describe(const void* base, std::size_t element_bytes, const std::vector<std::uint32_t>& extents,
                   const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
                   std::uint32_t swizzle) {
  const std::size_t rank = extents.size();
  if (rank < 1 || rank > 5 || strides.size() + 1 != rank || box.size() != rank)
    fault("a tensor map of {} extents, {} strides and a box of {}", rank, strides.size(), box.size());
  if (std::bit_cast<std::uintptr_t>(base) % 16 != 0)
    fault("a tensor map of address {}, which is no multiple of 16", base);
  TensorMap map;
  map.base = static_cast<std::byte*>(const_cast<void*>(base));
  map.rank = static_cast<std::uint32_t>(rank);
  map.element_bytes = static_cast<std::uint32_t>(element_bytes);
  map.swizzle = swizzle;
  for (std::size_t d = 0; d < rank; ++d) {
    if (box[d] < 1 || box[d] > 256) fault("a tensor map's box of {} in dimension {}", box[d], d);
    map.extents[d] = extents[d];
    map.box[d] = box[d];
    if (d == 0) continue;
    if (strides[d - 1] % 16 != 0)
      fault("a tensor map's stride of {} bytes, which is no multiple of 16", strides[d - 1]);
    map.strides[d - 1] = strides[d - 1];
  }
  const std::size_t row = box[0] * element_bytes;
  if (row % 16 != 0) fault("a tensor map whose box has rows of {} bytes, which is no multiple of 16", row);
  if (swizzle != 0 && row != swizzle)
    fault("a tensor map whose box has rows of {} bytes under the {}-byte swizzle", row, swizzle);
  return map;
}

std::uint32_t rows_outside(const TensorMap& map, const std::int32_t (&at)[5]) {
  std::int64_t rows = 1, inside = 1;
  for (std::uint32_t d = 1; d < map.rank; ++d) {
    const std::int64_t begin = std::max<std::int64_t>(at[d], 0);
    const std::int64_t end = std::min(std::int64_t{at[d]} + map.box[d], std::int64_t{map.extents[d]});
    rows *= map.box[d];
    inside *= std::max<std::int64_t>(end - begin, 0);
  }
  return static_cast<std::uint32_t>(rows - inside);
}

}  // namespace emulator
