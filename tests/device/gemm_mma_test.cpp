#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm/mma.cuh"
#include "matrices.hpp"

namespace {

using kiln::gemm::Activation;
using kiln::gemm::Layout;

struct Sizes {
  std::int64_t m, n, k;
};

/// y = x op(w) + bias by gemm_mma, and gemm_reduce where k is split: the largest distance from it in double, in units of y's last place.
template <typename T, Layout layout, int tile_m, int tile_n, int tile_k, int warps, int stages, int splits>
double error_of(Sizes of, std::uint32_t seed) {
  constexpr bool x_along_k = kiln::gemm::x_runs_along_k<layout>, w_along_k = kiln::gemm::w_runs_along_k<layout>;
  const auto stored = [](std::int64_t outer, std::int64_t k, bool along_k, std::uint32_t from) {
    const std::int64_t rows = along_k ? outer : k, columns = along_k ? k : outer;
    return test::Matrix<T>::random(rows, columns, columns + 16, from);
  };
  auto x = stored(of.m, of.k, x_along_k, 1), w = stored(of.n, of.k, w_along_k, 2);
  auto bias = test::Matrix<T>::random(1, of.n, of.n, 3);
  test::Matrix<T> y(of.m, of.n, (of.n + 15) / 8 * 8);
  test::Matrix<float> partial(splits * of.m, of.n, (of.n + 7) / 8 * 8);
  const kiln::axis_length rows{nullptr, nullptr, static_cast<int>(of.m), 0};

  const auto blocks = static_cast<unsigned>((of.m + tile_m - 1) / tile_m * ((of.n + tile_n - 1) / tile_n));
  emulator::launch({.grid = {blocks, splits},
                    .block = {warps * 32},
                    .shared_bytes = stages * (tile_m + tile_n) * tile_k * 2,
                    .seed = seed},
                   [&] {
                     gemm_mma<T, layout, Activation::relu, tile_m, tile_n, tile_k, warps, stages, (splits > 1)>(
                         x.data(), w.data(), bias.data(), y.data(), partial.data(), rows, of.n, of.k, x.stride(),
                         w.stride(), y.stride(), 2, splits);
                   });
  if (splits > 1) {
    const auto threads = static_cast<unsigned>(of.m * ((of.n + 3) / 4));
    emulator::launch({.grid = {(threads + 127) / 128}, .block = {128}, .seed = seed}, [&] {
      gemm_reduce<T, Activation::relu>(partial.data(), bias.data(), y.data(), rows, of.n, y.stride(), splits);
    });
  }

  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < of.m; ++row) {
    for (std::int64_t column = 0; column < of.n; ++column) {
      double sum = bias.value(0, column);
      for (std::int64_t i = 0; i < of.k; ++i)
        sum += (x_along_k ? x.value(row, i) : x.value(i, row)) * (w_along_k ? w.value(column, i) : w.value(i, column));
      const double right = kiln::to_double(kiln::from_float<T>(static_cast<float>(std::max(sum, 0.0))));
      largest = std::max(largest, test::distance(y.value(row, column), right));
    }
  }
  return largest;
}

TEST_CASE("gemm_mma multiplies matrices that fill no whole tiles, in every layout and order of threads") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(error_of<kiln::bf16, Layout::nt, 64, 32, 32, 2, 3, 1>({75, 41, 72}, seed) == 0);
  }
  CHECK(error_of<kiln::f16, Layout::nn, 64, 64, 64, 4, 3, 1>({75, 72, 136}, 4) == 0);
  CHECK(error_of<kiln::bf16, Layout::tn, 16, 64, 32, 4, 4, 1>({24, 72, 65}, 5) == 0);
  CHECK(error_of<kiln::f16, Layout::tt, 128, 64, 32, 4, 3, 1>({136, 67, 40}, 6) == 0);
}

TEST_CASE("gemm_mma splits k, of which the last split may get nothing, and gemm_reduce adds the parts") {
  CHECK(error_of<kiln::bf16, Layout::nt, 32, 64, 32, 4, 3, 2>({33, 37, 160}, 1) == 0);
  CHECK(error_of<kiln::bf16, Layout::nt, 32, 64, 32, 4, 3, 4>({33, 37, 72}, 2) == 0);
}

}  // namespace
