#include <doctest/doctest.h>

#include "gemm_grouped/stream.cuh"
#include "kernels.hpp"

namespace {

using kiln::gemm::Accumulate;
using kiln::gemm::Activation;
using kiln::gemm::Residual;
using kiln::gemm::Scaling;

constexpr std::int64_t n = 43, k = 200, m = 30;
constexpr float untouched = 3;

/// The largest distance of y from x w[g]^T + bias[g] in the rows of each group, infinite where others were written.
template <int rows_of_x, int blocks>
double error_of(const std::vector<int>& offsets, std::uint32_t seed) {
  using T = kiln::bf16;
  using Ending = kiln::gemm::Ending<float, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  constexpr int warp_rows = 32, warps = 2, stages = 2;
  const auto groups = static_cast<std::int64_t>(offsets.size()) - 1;
  auto x = test::Matrix<T>::random(m, k, k + 8, 1), w = test::Matrix<T>::random(groups * n, k, k + 16, 2);
  auto bias = test::Matrix<float>::random(groups, n, n, 3);
  test::Matrix<float> y(m, n, n + 1);
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) y.at(row, column) = untouched;
  }

  constexpr int tiles = warp_rows / 16 * rows_of_x / 8;
  const auto tiles_m = static_cast<unsigned>((m + groups * (rows_of_x - 1)) / rows_of_x);
  emulator::launch({.grid = {tiles_m * static_cast<unsigned>((n + warp_rows - 1) / warp_rows) * blocks},
                    .block = {warps * 32},
                    .shared_bytes = warps * stages * (warp_rows + rows_of_x) * 128 +
                                    (tiles + blocks - 1) / blocks * blocks * 512 + 16,
                    .cluster = {blocks},
                    .seed = seed},
                   [&] {
                     gemm_grouped_stream<T, T, Ending, rows_of_x, warp_rows, 1, warps, stages, blocks, 1>(
                         x.data(), w.data(), offsets.data(), y.data(), bias.data(), nullptr, nullptr, nullptr, nullptr,
                         test::length(m), n, k, static_cast<int>(groups), x.stride(), w.stride(), y.stride(), 0, 1, 1,
                         1, 1, n * w.stride(), bias.stride(), 0, 1.0f);
                   });

  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < m; ++row) {
    std::int64_t group = 0;
    while (group < groups && offsets[static_cast<std::size_t>(group) + 1] <= row) ++group;
    const bool has_group = group < groups && offsets[0] <= row;
    for (std::int64_t column = 0; column < n; ++column) {
      double right = untouched;
      if (has_group) {
        right = bias.value(group, column);
        for (std::int64_t i = 0; i < k; ++i) right += x.value(row, i) * w.value(group * n + column, i);
      }
      largest = std::max(largest, test::distance(y.value(row, column), right));
    }
  }
  return largest;
}

TEST_CASE(
    "gemm_grouped_stream multiplies the rows of each group, none and more than a tile's among them, and no others") {
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    CHECK(error_of<8, 1>({2, 5, 5, 24, 27}, seed) == 0);
  }
  CHECK(error_of<16, 1>({0, 17, 30}, 4) == 0);
  CHECK(error_of<8, 2>({0, 1, 1, 12, 30}, 5) == 0);
}

}  // namespace
