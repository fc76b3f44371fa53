// gemm_batched and gemm_grouped: which product a block is of. What is done to it, the tests of gemm say.
#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm_batched/mma.cuh"
#include "gemm_batched/reference.cuh"
#include "gemm_batched/simt.cuh"
#include "gemm_grouped/mma.cuh"
#include "gemm_grouped/reference.cuh"
#include "gemm_grouped/simt.cuh"
#include "products.hpp"

namespace {

using namespace test;

unsigned tiles(std::int64_t m, std::int64_t n, int tile_m, int tile_n) {
  return static_cast<unsigned>((m + tile_m - 1) / tile_m * ((n + tile_n - 1) / tile_n));
}

template <typename P>
Matrix<float> held_as_floats(P& p) {
  Matrix<float> made(p.of.batch * p.of.m, p.width, p.y.stride());
  for (std::int64_t row = 0; row < made.rows(); ++row)
    for (std::int64_t column = 0; column < p.width; ++column)
      made.at(row, column) = static_cast<float>(p.held.value(row, column));
  return made;
}

enum class By { mma, simt, reference };

template <typename T, Layout layout, class Config>
double batched_error(By by, const Sizes& of, std::uint32_t seed = 1) {
  using Out = typename Config::out;
  Products<T, T, layout, Config> p(of);
  auto floats = held_as_floats(p);
  const std::int64_t x_step = p.x_rows * p.x.stride(), w_step = p.w_rows * p.w.stride(), y_step = of.m * p.y.stride(),
                     residual_step = of.m * p.residual.stride();
  const auto batch = static_cast<unsigned>(of.batch);
  if (by == By::mma) {
    emulator::launch(
        {.grid = {tiles(of.m, of.n, 32, 64), batch}, .block = {128}, .shared_bytes = 3 * 96 * 32 * 2, .seed = seed},
        [&] {
          if constexpr (sizeof(T) == 2)
            gemm_batched_mma<T, layout, Config, 32, 64, 32, 4, 3>(
                p.x.data(), p.w.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(),
                p.w_scale.data(), &p.y_scale, p.rows(), of.n, of.k, p.x.stride(), p.w.stride(), p.y.stride(),
                p.residual.stride(), 1, 1, x_step, w_step, y_step, of.n, residual_step, p.x_scales, p.w_scales, p.scale,
                2);
        });
  } else if (by == By::simt) {
    emulator::launch({.grid = {tiles(of.m, of.n, 16, 32), batch}, .block = {256}, .seed = seed}, [&] {
      gemm_batched_simt<T, T, layout, Config, 16, 32, 1>(
          p.x.data(), p.w.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(), p.w_scale.data(),
          &p.y_scale, p.rows(), of.n, of.k, p.x.stride(), p.w.stride(), p.y.stride(), p.residual.stride(), p.k_blocks,
          p.k_blocks, 1, 1, x_step, w_step, y_step, of.n, residual_step, p.x_scales, p.w_scales, p.scale);
    });
  } else {
    emulator::launch({.grid = {static_cast<unsigned>(of.n + 63) / 64, 1, batch}, .block = {16, 16}}, [&] {
      gemm_batched_reference<T, T, layout, Config>(
          p.x.data(), p.w.data(), floats.data(), p.bias.data(), p.residual.data(), p.x_scale.data(), p.w_scale.data(),
          &p.y_scale, of.m, of.n, of.k, p.x.stride(), p.w.stride(), p.y.stride(), p.residual.stride(), p.k_blocks,
          p.k_blocks, 1, 1, x_step, w_step, y_step, of.n, residual_step, p.x_scales, p.w_scales, p.scale);
    });
  }
  static_cast<void>(sizeof(Out));
  return by == By::reference ? p.error_of(floats) : p.error_of(p.y);
}

template <typename T, Layout layout, class Config>
double grouped_error(By by, const Sizes& of, std::uint32_t seed = 1, unsigned rows_of_blocks = 1) {
  Products<T, T, layout, Config> p(of);
  auto floats = held_as_floats(p);
  const auto groups = static_cast<int>(of.weights());
  const std::int64_t w_step = p.w_rows * p.w.stride(), most = of.m + std::min<std::int64_t>(groups, of.m) * 31;
  if (by == By::mma) {
    emulator::launch(
        {.grid = {tiles(most, of.n, 32, 64)}, .block = {128}, .shared_bytes = 3 * 96 * 32 * 2, .seed = seed}, [&] {
          if constexpr (sizeof(T) == 2)
            gemm_grouped_mma<T, layout, Config, 32, 64, 32, 4, 3>(
                p.x.data(), p.w.data(), of.offsets.data(), p.y.data(), p.bias.data(), p.residual.data(),
                p.x_scale.data(), p.w_scale.data(), &p.y_scale, p.rows(), of.n, of.k, groups, p.x.stride(),
                p.w.stride(), p.y.stride(), p.residual.stride(), 1, 1, w_step, of.n, p.w_scales, p.scale, 2);
        });
  } else if (by == By::simt) {
    emulator::launch({.grid = {tiles(most, of.n, 32, 32)}, .block = {256}, .seed = seed}, [&] {
      gemm_grouped_simt<T, T, layout, Config, 32, 32, 1>(
          p.x.data(), p.w.data(), of.offsets.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(),
          p.w_scale.data(), &p.y_scale, p.rows(), of.n, of.k, groups, p.x.stride(), p.w.stride(), p.y.stride(),
          p.residual.stride(), p.k_blocks, p.k_blocks, 1, 1, w_step, of.n, p.w_scales, p.scale);
    });
  } else {
    emulator::launch({.grid = {static_cast<unsigned>(of.n + 63) / 64, rows_of_blocks}, .block = {16, 16}}, [&] {
      gemm_grouped_reference<T, T, layout, Config>(
          p.x.data(), p.w.data(), of.offsets.data(), floats.data(), p.bias.data(), p.residual.data(), p.x_scale.data(),
          p.w_scale.data(), &p.y_scale, of.n, of.k, groups, p.x.stride(), p.w.stride(), p.y.stride(),
          p.residual.stride(), p.k_blocks, p.k_blocks, 1, 1, w_step, of.n, p.w_scales, p.scale);
    });
  }
  return by == By::reference ? p.error_of(floats) : p.error_of(p.y);
}

using Rich = Ends<kiln::bf16, Activation::swiglu, Residual::add, Scaling::row, Accumulate::yes>;
using Tensor = Ends<kiln::f16, Activation::silu, Residual::none, Scaling::tensor>;
using Blocks = Ends<kiln::bf16, Activation::none, Residual::none, Scaling::block>;

TEST_CASE("each product of a batch has operands, scales and results of its own") {
  for (const By by : {By::mma, By::simt, By::reference}) {
    CAPTURE(static_cast<int>(by));
    CHECK(batched_error<kiln::bf16, Layout::nt, Rich>(by, {.m = 35, .n = 70, .k = 40, .batch = 3}) <= 1.01);
    CHECK(batched_error<kiln::f16, Layout::tn, Tensor>(by, {.m = 40, .n = 72, .k = 35, .batch = 2}) <= 1.01);
  }
  for (const std::int64_t k : {1, 33, 65})  // within a bucket
    for (const By by : {By::mma, By::simt})
      CHECK(batched_error<kiln::f16, Layout::tn, Tensor>(by, {.m = 40, .n = 72, .k = k, .batch = 2}) <= 1.01);
  for (const By by : {By::simt, By::reference})
    CHECK(batched_error<kiln::e4m3, Layout::nt, Blocks>(by, {.m = 3, .n = 130, .k = 135, .batch = 2}) <= 1);
}

TEST_CASE("groups of rows meet their own weights, whether they are empty, unequal or leave rows to none") {
  const std::vector<std::vector<int>> cuts = {
      {0, 70}, {0, 1, 34, 34, 70}, {0, 0, 0, 70, 70}, {3, 20, 53, 66}, {5, 5, 5}};
  for (const std::vector<int>& offsets : cuts) {
    CAPTURE(offsets[1]);
    for (const By by : {By::mma, By::simt, By::reference}) {
      CAPTURE(static_cast<int>(by));
      CHECK(grouped_error<kiln::bf16, Layout::nt, Rich>(by, {.m = 70, .n = 70, .k = 40, .offsets = offsets}) <= 1.01);
    }
  }
  for (const By by : {By::mma, By::simt, By::reference})
    CHECK(grouped_error<kiln::f16, Layout::nn, Tensor>(by, {.m = 20, .n = 72, .k = 40, .offsets = {0, 7, 20}}) <= 1.01);
  for (const By by : {By::simt, By::reference})
    CHECK(grouped_error<kiln::e4m3, Layout::nt, Blocks>(by, {.m = 9, .n = 130, .k = 135, .offsets = {0, 4, 9}}) <= 1);
}

TEST_CASE("gemm_grouped_reference takes a group's tiles below each other in turns") {
  const Sizes of{.m = 200, .n = 67, .k = 19, .offsets = {0, 150, 150, 200}};  // 3, none and 1 tiles
  for (const unsigned rows_of_blocks : {1, 2, 3})
    CHECK(grouped_error<kiln::bf16, Layout::nt, Rich>(By::reference, of, 1, rows_of_blocks) <= 1.01);
}

TEST_CASE("a block finds its group among more groups than a warp has lanes") {
  std::vector<int> offsets;
  for (int group = 0; group <= 70; ++group) offsets.push_back(group < 40 ? 0 : group < 65 ? group - 40 : 30);
  CHECK(grouped_error<kiln::bf16, Layout::nt, Rich>(By::mma, {.m = 30, .n = 16, .k = 16, .offsets = offsets}) <= 1.01);
}

TEST_CASE("offsets that leave the rows, or fall, make no block leave them") {
  const Sizes of{.m = 40, .n = 16, .k = 16, .offsets = {-5, 60, 12, 90}};
  Products<kiln::bf16, kiln::bf16, Layout::nt, Ends<kiln::bf16>> p(of);
  emulator::launch({.grid = {8}, .block = {128}, .shared_bytes = 3 * 96 * 32 * 2}, [&] {
    gemm_grouped_mma<kiln::bf16, Layout::nt, Ends<kiln::bf16>, 32, 64, 32, 4, 3>(
        p.x.data(), p.w.data(), of.offsets.data(), p.y.data(), p.bias.data(), nullptr, nullptr, nullptr, nullptr,
        p.rows(), of.n, of.k, 3, p.x.stride(), p.w.stride(), p.y.stride(), p.y.stride(), 1, 1, p.w_rows * p.w.stride(),
        of.n, 0, 1.0f, 2);
  });
  CHECK(p.y.margins_untouched());
}

}  // namespace
