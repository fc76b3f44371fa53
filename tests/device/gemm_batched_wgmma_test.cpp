#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm_batched/wgmma.cuh"
#include "operands.hpp"

namespace {

using kiln::bf16;
using kiln::gemm::Layout;

constexpr std::int64_t batch = 3;

struct Shape {
  int tile_m, tile_n, stages;
  int cluster_m = 1, cluster_n = 1;
  bool swap = false, pingpong = false;
  int store = 0;
};

/// Three products of m by n by k, each with x, w, bias and y of its own: the largest distance of y from what is right. Infinite if
/// rows past the length were written. x holds NaN there.
template <Layout layout, Shape shape>
double error_of(std::int64_t m, std::int64_t n, std::int64_t k, int length, std::uint32_t seed) {
  using Config = kiln::gemm::Ending<bf16, kiln::gemm::Activation::none, kiln::gemm::Residual::none,
                                    kiln::gemm::Scaling::none, kiln::gemm::Accumulate::no>;
  using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, layout, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m,
                                        shape.cluster_n, 1, shape.swap, shape.pingpong, true, true>;
  using Piece = kiln::gemm::Piece<Tiles>;
  constexpr bool x_along_k = kiln::gemm::x_runs_along_k<layout>, w_along_k = kiln::gemm::w_runs_along_k<layout>;
  const std::int64_t x_rows = x_along_k ? m : k, w_rows = w_along_k ? n : k;
  auto x = test::stored<bf16>(batch * x_rows, x_along_k ? k : m, true, 1);
  auto w = test::stored<bf16>(batch * w_rows, w_along_k ? k : n, true, 2);
  auto bias = test::Matrix<bf16>::random(batch, n, n, 3);
  test::Matrix<bf16> y(batch * m, n, shape.store == 1 ? n + 1 : (n + 15) / 8 * 8);
  for (std::int64_t row = 0; row < x.rows(); ++row)
    for (std::int64_t i = 0; i < x.columns(); ++i)
      if ((x_along_k ? row % m : i) >= length) x.at(row, i) = test::nan_of<bf16>();

  const kiln::tensor_map x_map = test::map_of_planes(x, batch, Tiles::X::rows_of_box(static_cast<int>(m)), 64, 128);
  const kiln::tensor_map w_map = test::map_of_planes(w, batch, Tiles::W::box_rows, 64, 128);
  const kiln::tensor_map y_map =
      shape.store == 0 ? test::map_of_planes(y, batch, Piece::rows, Piece::columns, Piece::columns * 2) : x_map;
  const kiln::axis_length rows{&length, nullptr, static_cast<int>(m), 0};
  emulator::launch({.grid = {2 * Tiles::cluster},
                    .block = {Tiles::threads},
                    .shared_bytes = kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> +
                                    kiln::gemm::Ring<Tiles>::barrier_bytes,
                    .cluster = {Tiles::cluster},
                    .seed = seed},
                   [&] {
                     gemm_batched_wgmma<bf16, bf16, layout, Config, shape.tile_m, shape.tile_n, shape.stages,
                                        shape.cluster_m, shape.cluster_n, shape.swap, shape.pingpong, shape.store>(
                         x_map, w_map, y_map, y.data(), bias.data(), nullptr, nullptr, nullptr, nullptr, rows, n, k,
                         y.stride(), 0, 0, 0, 0, 0, m * y.stride(), n, 0, 0, 0, 1.0f, batch, 2);
                   });

  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < batch * m; ++row) {
    const std::int64_t product = row / m, own = row % m;
    for (std::int64_t column = 0; column < n; ++column) {
      if (own >= length) {
        if (!std::isnan(y.value(row, column))) return INFINITY;
        continue;
      }
      double sum = bias.value(product, column);
      for (std::int64_t i = 0; i < k; ++i)
        sum += (x_along_k ? x.value(row, i) : x.value(product * k + i, own)) *
               (w_along_k ? w.value(product * n + column, i) : w.value(product * k + i, column));
      const double right = kiln::to_double(kiln::from_float<bf16>(static_cast<float>(sum)));
      largest = std::max(largest, test::distance(y.value(row, column), right));
    }
  }
  return largest;
}

TEST_CASE("gemm_batched_wgmma multiplies each product of a batch, up to a length on the device") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_of<Layout::nt, Shape{64, 64, 3}>(70, 75, 136, 70, seed) == 0);
    CHECK(error_of<Layout::nn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(
              130, 75, 136, 100, seed) == 0);
    CHECK(error_of<Layout::nt, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(13, 75, 136, 12, seed) ==
          0);
  }
  CHECK(error_of<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 2, .cluster_n = 2}>(70, 130, 72, 70, 4) == 0);
  CHECK(error_of<Layout::tt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .store = 1}>(70, 75, 72, 65, 5) == 0);
  CHECK(error_of<Layout::nt, Shape{64, 64, 3}>(70, 75, 72, 0, 6) == 0);
}

}  // namespace
