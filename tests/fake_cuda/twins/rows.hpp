// What the kernels that go over a matrix row by row have in common: which rows and columns a launch covers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "twins/twin.hpp"

namespace fake_cuda {

struct RowLaunch {
  std::int64_t rows = 0;     // that blocks were launched for
  std::int64_t columns = 0;  // of a row
  std::int64_t covered = 0;  // columns that the threads have room for; the rest is neither read nor written
  std::int64_t x_stride = 0, y_stride = 0;  // elements
  double bytes_a_thread = 64;

  [[nodiscard]] std::int64_t x_extent() const { return rows == 0 ? 0 : (rows - 1) * x_stride + covered; }
  [[nodiscard]] std::int64_t y_extent() const { return rows == 0 ? 0 : (rows - 1) * y_stride + covered; }
  [[nodiscard]] Traffic traffic(const Invocation& call, std::int64_t element_bytes) const {
    return {2.0 * static_cast<double>(rows * columns * element_bytes), 0, memory_efficiency(call, bytes_a_thread)};
  }
};

/// NAME_block_row<T, Threads, N, Items>: a block a row.
inline RowLaunch block_row(const Invocation& call, std::int64_t columns) {
  const std::int64_t share = call.template_integer(2) * call.template_integer(3);
  require(call.geometry.threads() == call.template_integer(1), CUDA_ERROR_LAUNCH_FAILED);
  RowLaunch launch;
  launch.rows = call.geometry.grid[0];
  launch.columns = columns;
  launch.covered = std::min(columns, call.geometry.threads() * share);
  launch.bytes_a_thread = static_cast<double>(share * element_bytes(call.type_argument(0)));
  return launch;
}

/// NAME_warp_row<T, Threads, Lanes, N, Items>: each group of lanes takes a row.
inline RowLaunch warp_row(const Invocation& call, std::int64_t rows, std::int64_t columns) {
  const std::int64_t lanes = call.template_integer(2), share = call.template_integer(3) * call.template_integer(4);
  require(call.geometry.threads() == call.template_integer(1), CUDA_ERROR_LAUNCH_FAILED);
  RowLaunch launch;
  launch.rows = std::min(rows, call.geometry.grid[0] * (call.geometry.threads() / lanes));
  launch.columns = columns;
  launch.covered = std::min(columns, lanes * share);
  launch.bytes_a_thread = static_cast<double>(share * element_bytes(call.type_argument(0)));
  return launch;
}

/// A row in the dynamic shared memory of `blocks` blocks of `threads` threads, 16 bytes for each chunk.
inline RowLaunch shared_row(const Invocation& call, std::int64_t columns, std::int64_t blocks, std::int64_t threads) {
  require(call.geometry.threads() == threads && call.geometry.cluster == blocks, CUDA_ERROR_LAUNCH_FAILED);
  const std::int64_t element = element_bytes(call.type_argument(0));
  const std::int64_t passes = (columns * element + blocks * threads * 16 - 1) / (blocks * threads * 16);
  require(passes * threads * 16 <= call.geometry.dynamic_shared, CUDA_ERROR_ILLEGAL_ADDRESS);
  RowLaunch launch;
  launch.rows = call.geometry.grid[0] / blocks;
  launch.columns = launch.covered = columns;
  launch.bytes_a_thread = static_cast<double>(passes * 16);
  return launch;
}

/// NAME_streaming<T, Threads, N>: a block a row of any length.
inline RowLaunch streaming(const Invocation& call, std::int64_t columns) {
  require(call.geometry.threads() == call.template_integer(1), CUDA_ERROR_LAUNCH_FAILED);
  RowLaunch launch;
  launch.rows = call.geometry.grid[0];
  launch.columns = launch.covered = columns;
  launch.bytes_a_thread = static_cast<double>(call.template_integer(2) * 2 * element_bytes(call.type_argument(0)));
  return launch;
}

/// NAME_reference<T>: a block of 256 threads a row.
inline RowLaunch reference(const Invocation& call, std::int64_t columns) {
  require(call.geometry.threads() == 256, CUDA_ERROR_LAUNCH_FAILED);
  RowLaunch launch;
  launch.rows = call.geometry.grid[0];
  launch.columns = launch.covered = columns;
  return launch;
}

}  // namespace fake_cuda
