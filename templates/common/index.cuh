// An index into a table, as a tensor in device memory has them: whatever it is, the table is not left.
#pragma once

namespace kiln {

/// The row that `index` names of a table whose last row is `last`: one outside counts as the nearer end. That is told to the host at what
/// `{ report = "TENSOR" }` passes, as axis_length tells lengths: the rows above, the index below, in 32 bits. `report` may be null, and is
/// in all threads but one for each index.
template <typename Index>
__device__ __forceinline__ Index row_in_table(Index index, Index last, unsigned long long* report) {
  const Index row = min(max(index, Index{0}), last);
  if (row != index && report != nullptr) {
    constexpr long long least = -2147483648ll, most = 2147483647ll;
    const auto told = static_cast<int>(min(max(static_cast<long long>(index), least), most));
    const auto rows = static_cast<unsigned long long>(min(static_cast<long long>(last) + 1, most));
    *static_cast<volatile unsigned long long*>(report) = rows << 32 | static_cast<unsigned>(told);
  }
  return row;
}

/// The last of `rows` rows, as far as indices of this type reach.
template <typename Index>
__device__ __forceinline__ Index last_row(long long rows) {
  return static_cast<Index>(sizeof(Index) == 8 ? rows - 1 : min(rows - 1, 2147483647ll));
}

}  // namespace kiln
