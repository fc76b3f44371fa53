// What the twins of gemm and its like have in common: a product in doubles, and what follows it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "twins/twin.hpp"

namespace fake_cuda {

/// templates/common/gemm/choices.cuh, by the numbers that stand in demangled names.
enum Layout : std::uint8_t { nt, nn, tn, tt };
enum Activation : std::uint8_t { no_activation, relu, gelu, silu, swiglu };
enum Scaling : std::uint8_t { unscaled, by_tensor, by_row, by_block };

/// The template argument kiln::gemm::Ending<Out, activation, residual, scaling, accumulate>.
struct Ending {
  std::string out;
  std::int64_t activation, residual, scaling, accumulate;

  static Ending read(const Invocation& call, std::size_t argument);
  [[nodiscard]] std::int64_t joined() const noexcept { return activation == swiglu ? 2 : 1; }
};

/// One product as a kernel is asked for it: addresses, distances in elements, sizes.
struct Product {
  Ending ending;
  std::int64_t layout = nt;
  std::string x_type, w_type;
  CUdeviceptr x = 0, w = 0, y = 0, bias = 0, residual = 0, x_scale = 0, w_scale = 0, y_scale = 0;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t x_stride = 0, w_stride = 0, y_stride = 0, residual_stride = 0;
  std::int64_t x_scale_stride = 0, w_scale_stride = 0, x_scale_k_stride = 1, w_scale_k_stride = 1;
  double scale = 1;

  /// The addresses from parameter `x` on, in the order of the members; without x and w for a kernel that has sums already.
  void read_addresses(const Invocation& call, std::size_t first, bool operands = true);
  /// n, k and the distances from parameter `first` on, with those between the scales of blocks where a kernel has them. Returns the
  /// parameter after them.
  std::size_t read_sizes(const Invocation& call, std::size_t first, bool block_scales);
  std::size_t read_strides(const Invocation& call, std::size_t first, bool block_scales);
  std::size_t read_scale(const Invocation& call, std::size_t at);

  /// [m, n] in doubles, of k in [first_k, last_k).
  [[nodiscard]] std::vector<double> sums(const Invocation& call, std::int64_t first_k, std::int64_t last_k) const;
  /// From the sums to y, whose elements are of type `y_type`: its own, or float for a reference.
  void finish(const Invocation& call, const std::vector<double>& sums, std::string_view y_type) const;
  void run(const Invocation& call, std::string_view y_type) const { finish(call, sums(call, 0, k), y_type); }
  /// The sums of each split of k, [splits, m, round_up(n, 8)] floats.
  void write_partial(const Invocation& call, CUdeviceptr to, std::int64_t splits, std::int64_t k_a_split) const;

  [[nodiscard]] Traffic traffic(double efficiency) const;
  /// x, w, y and the residual begin at multiples of 16 bytes, and so do their rows.
  void require_aligned_rows() const;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b);
/// How much of the device is busy, by whole waves of tiles, and how well a tile of that size reuses what it loads.
double tile_efficiency(const Invocation& call, std::int64_t tile_m, std::int64_t tile_n, double peak);
/// The launch is as templates/common/gemm/reference.cuh needs it: 16 x 16 threads for each 64 columns of the product.
void require_reference(const Invocation& call, std::int64_t n);
/// tile_efficiency for templates/common/gemm/stream_tile.cuh, by the bytes on their way from memory. The kernel's template arguments after
/// the Ending are rows_of_x, warp_rows, warps_n, warps_k, stages, blocks and y_alignment; `tiles_m` is the least that the launch is
/// to have of them. Throws Failure where the launch is not as the kernel needs it.
double stream_efficiency(const Invocation& call, const Product& product, std::int64_t tiles_m);

}  // namespace fake_cuda
