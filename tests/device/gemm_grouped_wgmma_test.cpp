#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm_grouped/wgmma.cuh"
#include "operands.hpp"

namespace {

using kiln::bf16;
using kiln::gemm::Layout;
using kiln::gemm::Scaling;

struct Shape {
  int tile_m, tile_n, stages;
  bool swap = false, pingpong = false;
  int store = 0;
  unsigned blocks = 3;
};

/// y of the groups that `offsets` cut by gemm_grouped_wgmma, with w, bias and scales of each group's own: the largest
/// distance from what is right. Infinite if a row of no group was written. x holds NaN there.
template <typename T, Layout layout, Shape shape, Scaling scaling = Scaling::none>
double error_of(std::vector<int> offsets, std::int64_t rows, std::int64_t n, std::int64_t k, std::uint32_t seed) {
  using Config = kiln::gemm::Ending<bf16, kiln::gemm::Activation::relu, kiln::gemm::Residual::none, scaling,
                                    kiln::gemm::Accumulate::no>;
  using Tiles = kiln::gemm::WgmmaTiling<T, T, layout, shape.tile_m, shape.tile_n, shape.stages, 1, 1, 1, shape.swap,
                                        shape.pingpong, false, true>;
  using Piece = kiln::gemm::Piece<Tiles>;
  constexpr bool w_along_k = kiln::gemm::w_runs_along_k<layout>;
  const auto groups = static_cast<std::int64_t>(offsets.size()) - 1;
  const std::int64_t w_rows = w_along_k ? n : k, k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
  auto x = test::stored<T>(rows, k, true, 1);
  auto w = test::stored<T>(groups * w_rows, w_along_k ? k : n, true, 2);
  auto bias = test::Matrix<bf16>::random(groups, n, n, 3);
  test::Matrix<bf16> y(rows, n, shape.store == 1 ? n + 1 : (n + 15) / 8 * 8);
  test::Matrix<float> x_scale(rows, k_blocks, k_blocks), w_scale(groups * n_blocks, k_blocks, k_blocks);
  for (std::int64_t i = 0; i < rows * k_blocks; ++i) x_scale.data()[i] = static_cast<float>(1 << i % 3);
  for (std::int64_t i = 0; i < groups * n_blocks * k_blocks; ++i) w_scale.data()[i] = static_cast<float>(1 << i % 2);
  const auto group_of = [&](std::int64_t row) {
    for (std::int64_t group = 0; group < groups; ++group)
      if (row >= offsets[static_cast<std::size_t>(group)] && row < offsets[static_cast<std::size_t>(group) + 1])
        return group;
    return std::int64_t{-1};
  };
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t i = 0; group_of(row) < 0 && i < k; ++i) x.at(row, i) = test::nan_of<T>();

  const kiln::tensor_map x_map = test::map_of(x, Tiles::X::rows_of_box(static_cast<int>(rows)), 128 / sizeof(T), 128);
  const kiln::tensor_map w_map = test::map_of_planes(w, groups, Tiles::W::box_rows, 128 / sizeof(T), 128);
  const kiln::tensor_map y_map =
      shape.store == 0 ? test::map_of(y, Piece::rows, Piece::columns, Piece::columns * sizeof(bf16)) : x_map;
  emulator::launch(
      {.grid = {shape.blocks},
       .block = {Tiles::threads},
       .shared_bytes =
           kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> + kiln::gemm::Ring<Tiles>::barrier_bytes,
       .seed = seed},
      [&] {
        gemm_grouped_wgmma<T, T, layout, Config, shape.tile_m, shape.tile_n, shape.stages, shape.swap, shape.pingpong,
                           shape.store>(x_map, w_map, y_map, offsets.data(), y.data(), bias.data(), nullptr,
                                        x_scale.data(), w_scale.data(), nullptr,
                                        {nullptr, nullptr, static_cast<int>(rows), 0}, n, k, static_cast<int>(groups),
                                        y.stride(), 0, k_blocks, k_blocks, 1, 1, n, n_blocks * k_blocks, 1.0f, 2);
      });

  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t group = group_of(row);
    for (std::int64_t column = 0; column < n; ++column) {
      if (group < 0) {
        if (!std::isnan(y.value(row, column))) return INFINITY;
        continue;
      }
      double sum = bias.value(group, column);
      for (std::int64_t i = 0; i < k; ++i) {
        const double scale = scaling == Scaling::block
                                 ? x_scale.value(row, i / 128) * w_scale.value(group * n_blocks + column / 128, i / 128)
                                 : 1;
        sum += scale * x.value(row, i) *
               (w_along_k ? w.value(group * w_rows + column, i) : w.value(group * w_rows + i, column));
      }
      const double right = kiln::to_double(kiln::from_float<bf16>(static_cast<float>(std::max(sum, 0.0))));
      largest = std::max(largest, test::distance(y.value(row, column), right));
    }
  }
  return largest;
}

TEST_CASE("gemm_grouped_wgmma multiplies each group's rows by its w, and writes no others") {
  const std::vector<int> ragged = {3, 3, 80, 81, 81, 210};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_of<bf16, Layout::nt, Shape{64, 64, 3}>(ragged, 220, 75, 136, seed) == 0);
    CHECK(error_of<bf16, Layout::nn, Shape{.tile_m = 128, .tile_n = 64, .stages = 2, .pingpong = true}>(
              ragged, 220, 75, 136, seed) == 0);
    CHECK(error_of<bf16, Layout::nt, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(
              {0, 5, 5, 30, 31}, 40, 150, 136, seed) == 0);
  }
  CHECK(error_of<bf16, Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .store = 1}>(ragged, 220, 75, 72,
                                                                                               4) == 0);
  CHECK(error_of<bf16, Layout::nt, Shape{64, 64, 3}>(std::vector<int>(41, 0), 8, 75, 72, 5) == 0);  // no rows at all
}

TEST_CASE("gemm_grouped_wgmma takes an x of fewer rows than a tile, whose groups begin anywhere") {
  for (const int rows : {1, 9, 41, 100}) {
    const std::vector<int> groups = {0, rows / 3, rows / 3, rows / 2, rows};
    CHECK(error_of<bf16, Layout::nt, Shape{128, 64, 3}>(groups, rows, 75, 136, 1) == 0);
    CHECK(error_of<bf16, Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .swap = true}>(groups, rows, 75,
                                                                                                   136, 2) == 0);
  }
}

TEST_CASE("gemm_grouped_wgmma's block that stores a tile by rows lets what TMA still reads be") {
  const std::vector<int> ragged = {0, 64, 94, 158, 170, 234}, few = {0, 16, 30, 46, 51, 67, 70, 86, 91};
  for (const std::uint32_t seed : {0u, 1u}) {  // 0: a copy is under way until it is waited for
    CAPTURE(seed);
    CHECK(error_of<bf16, Layout::nt, Shape{.tile_m = 64, .tile_n = 128, .stages = 3, .blocks = 1}>(ragged, 240, 128, 64,
                                                                                                   seed) == 0);
    CHECK(error_of<bf16, Layout::nt, Shape{.tile_m = 16, .tile_n = 64, .stages = 4, .swap = true, .blocks = 1}>(
              few, 100, 128, 64, seed) == 0);
  }
}

TEST_CASE("gemm_grouped_wgmma scales each group's blocks of 8-bit floats by scales of its own") {
  const std::vector<int> ragged = {0, 30, 100};
  CHECK(error_of<kiln::e4m3, Layout::nt, Shape{64, 128, 3}, Scaling::block>(ragged, 110, 140, 300, 1) == 0);
  CHECK(error_of<kiln::e4m3, Layout::nt, Shape{.tile_m = 32, .tile_n = 64, .stages = 3, .swap = true}, Scaling::block>(
            ragged, 110, 140, 300, 2) == 0);
}

}  // namespace
