// Matrices as products take them by TMA.
#pragma once

#include "emulator/tensor_map.hpp"
#include "matrices.hpp"

namespace test {

template <typename T>
kiln::tensor_map map_of(Matrix<T>& of, std::uint32_t box_rows, std::uint32_t box_columns, std::uint32_t swizzle) {
  return emulator::tensor_map<kiln::tensor_map>(
      of.data(), sizeof(T), {static_cast<std::uint32_t>(of.columns()), static_cast<std::uint32_t>(of.rows())},
      {static_cast<std::uint64_t>(of.stride()) * sizeof(T)}, {box_columns, box_rows}, swizzle);
}

/// Of `planes` matrices that lie one under the other in `of`.
template <typename T>
kiln::tensor_map map_of_planes(Matrix<T>& of, std::int64_t planes, std::uint32_t box_rows, std::uint32_t box_columns,
                               std::uint32_t swizzle) {
  const auto rows = static_cast<std::uint32_t>(of.rows() / planes);
  const auto pitch = static_cast<std::uint64_t>(of.stride()) * sizeof(T);
  return emulator::tensor_map<kiln::tensor_map>(
      of.data(), sizeof(T), {static_cast<std::uint32_t>(of.columns()), rows, static_cast<std::uint32_t>(planes)},
      {pitch, pitch * rows}, {box_columns, box_rows, 1}, swizzle);
}

/// An operand as it lies, with rows that begin at multiples of 16 bytes.
template <typename T>
Matrix<T> stored(std::int64_t outer, std::int64_t k, bool along_k, std::uint32_t seed) {
  const std::int64_t rows = along_k ? outer : k, columns = along_k ? k : outer;
  return Matrix<T>::random(rows, columns, (columns + 47) / 16 * 16, seed);
}

}  // namespace test
