#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm/reference.cuh"
#include "gemm/simt.cuh"
#include "products.hpp"

namespace {

using namespace test;

/// The largest error of gemm_reference in halves of the last place, by so many rows of blocks.
template <typename X, typename W, Layout layout, class Config>
double reference_error(Products<X, W, layout, Config>& p, const Sizes& of, unsigned rows_of_blocks) {
  Matrix<float> reference(of.m, p.width, p.y.stride());
  for (std::int64_t row = 0; row < of.m; ++row)
    for (std::int64_t column = 0; column < p.width; ++column)
      reference.at(row, column) = static_cast<float>(p.held.value(row, column));
  emulator::launch({.grid = {static_cast<unsigned>(of.n + 63) / 64, rows_of_blocks}, .block = {16, 16}}, [&] {
    gemm_reference<X, W, layout, Config>(p.x.data(), p.w.data(), reference.data(), p.bias.data(), p.residual.data(),
                                         p.x_scale.data(), p.w_scale.data(), &p.y_scale, of.m, of.n, of.k, p.x.stride(),
                                         p.w.stride(), p.y.stride(), p.residual.stride(), p.k_blocks, p.k_blocks, 1, 1,
                                         p.scale);
  });
  return p.error_of(reference);
}

/// gemm_simt and gemm_reference: the larger of their largest errors, in halves of the last place.
template <typename X, typename W, Layout layout, class Config, int tile_m, int tile_n, int vector>
double simt_error(const Sizes& of, std::uint32_t seed = 0) {
  Products<X, W, layout, Config> p(of);
  const auto blocks = static_cast<unsigned>((of.m + tile_m - 1) / tile_m * ((of.n + tile_n - 1) / tile_n));
  emulator::launch({.grid = {blocks}, .block = {256}, .seed = seed}, [&] {
    gemm_simt<X, W, layout, Config, tile_m, tile_n, vector>(
        p.x.data(), p.w.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(), p.w_scale.data(),
        &p.y_scale, p.rows(), of.n, of.k, p.x.stride(), p.w.stride(), p.y.stride(), p.residual.stride(), p.k_blocks,
        p.k_blocks, 1, 1, p.scale);
  });
  return std::max(p.error_of(p.y), reference_error(p, of, 1));
}

TEST_CASE("gemm_reference takes the tiles below each other in turns") {
  const Sizes of{200, 67, 19};  // 4 x 2 tiles, the last of either not full
  using Swiglu = Ends<kiln::bf16, Activation::swiglu, Residual::add, Scaling::none, Accumulate::yes>;
  Products<kiln::bf16, kiln::bf16, Layout::tn, Swiglu> p(of);
  for (const unsigned rows_of_blocks : {1, 2, 3}) CHECK(reference_error(p, of, rows_of_blocks) <= 1);
}

TEST_CASE("gemm_simt takes every type and layout at sizes that fill no tile") {
  CHECK(simt_error<float, float, Layout::nt, Ends<float>, 32, 64, 1>({35, 41, 37}, 1) <= 1);
  CHECK(simt_error<kiln::bf16, kiln::bf16, Layout::nn, Ends<kiln::bf16>, 16, 32, 4>({35, 44, 36}, 2) <= 1);
  CHECK(simt_error<kiln::e4m3, kiln::e5m2, Layout::tn, Ends<kiln::bf16>, 32, 32, 1>({9, 35, 21}, 3) <= 1);
  CHECK(simt_error<kiln::e5m2, float, Layout::tt, Ends<kiln::f16>, 16, 128, 1>({9, 35, 21}, 4) <= 1);
}

TEST_CASE("gemm_simt is right at every k of a bucket, loads of four elements and scales of blocks included") {
  using Blocks = Ends<kiln::bf16, Activation::none, Residual::none, Scaling::block>;
  for (const std::int64_t k : {1, 15, 16, 17, 33, 129}) {
    CAPTURE(k);
    CHECK(simt_error<kiln::bf16, kiln::bf16, Layout::tn, Ends<kiln::bf16>, 16, 32, 4>({20, 36, k}, 1) <= 1);
    CHECK(simt_error<kiln::e4m3, kiln::e5m2, Layout::tn, Blocks, 16, 64, 1>({9, 35, k}, 2) <= 1);
  }
}

TEST_CASE("gemm_simt scales blocks of k by their own row's and columns' scales") {
  using Blocks = Ends<kiln::bf16, Activation::none, Residual::none, Scaling::block>;
  CHECK(simt_error<kiln::e4m3, kiln::e4m3, Layout::nt, Blocks, 16, 64, 4>({5, 132, 260}, 1) <= 1);
  CHECK(simt_error<kiln::e4m3, kiln::e5m2, Layout::tn, Blocks, 16, 64, 4>({8, 132, 260}, 2) <= 1);
  CHECK(simt_error<kiln::e4m3, kiln::e4m3, Layout::nn, Blocks, 16, 32, 1>({3, 130, 129}, 3) <= 1);
}

TEST_CASE("what follows a product of gemm_simt is done in order, an odd last column of pairs left out") {
  CHECK(simt_error<float, float, Layout::nt,
                   Ends<float, Activation::swiglu, Residual::add, Scaling::row, Accumulate::yes>, 16, 32, 1>(
            {9, 39, 21}) <= 1.01);
  CHECK(simt_error<kiln::e4m3, kiln::e4m3, Layout::nt,
                   Ends<kiln::e4m3, Activation::gelu, Residual::none, Scaling::block, Accumulate::yes>, 16, 32, 1>(
            {9, 39, 140}) <= 1.01);
  CHECK(simt_error<kiln::f16, kiln::f16, Layout::nt, Ends<kiln::f16, Activation::silu, Residual::add, Scaling::tensor>,
                   64, 64, 1>({9, 70, 21}) <= 1.01);
}

}  // namespace
