#include <doctest/doctest.h>

#include "gemm/mma.cuh"
#include "gemm/simt.cuh"
#include "kernels.hpp"

namespace {

using kiln::bf16;
using kiln::f16;
using kiln::gemm::Activation;
using kiln::gemm::Layout;

/// x, w and bias at random, and y = relu(x op(w) + bias), which is exact in float.
template <typename T, Layout layout>
struct Gemm {
  static constexpr bool x_along_k = kiln::gemm::x_runs_along_k<layout>, w_along_k = kiln::gemm::w_runs_along_k<layout>;

  std::int64_t m, n, k;
  int padding = 16;  // of rows, in elements
  test::Matrix<T> x = stored(m, x_along_k, 1), w = stored(n, w_along_k, 2), bias = test::Matrix<T>::random(1, n, n, 3),
                  y{m, n, (n + 15) / 8 * 8};

  [[nodiscard]] test::Matrix<T> stored(std::int64_t outer, bool along_k, std::uint32_t from) const {
    const std::int64_t rows = along_k ? outer : k, columns = along_k ? k : outer;
    return test::Matrix<T>::random(rows, columns, columns + padding, from);
  }
  double error() {
    return test::error_of(y, m, [this](std::int64_t row, std::int64_t column) {
      double sum = bias.value(0, column);
      for (std::int64_t i = 0; i < k; ++i)
        sum += (x_along_k ? x.value(row, i) : x.value(i, row)) * (w_along_k ? w.value(column, i) : w.value(i, column));
      return kiln::to_double(kiln::from_float<T>(static_cast<float>(std::max(sum, 0.0))));
    });
  }
};

unsigned tiles(std::int64_t extent, int tile) { return static_cast<unsigned>((extent + tile - 1) / tile); }

/// By gemm_mma, and gemm_reduce where k is split.
template <int tile_m, int tile_n, int tile_k, int warps, int stages, int splits = 1, typename T, Layout layout>
double mma_error(Gemm<T, layout> of, std::uint32_t seed) {
  test::Matrix<float> partial(splits * of.m, of.n, (of.n + 7) / 8 * 8);
  const kiln::axis_length rows = test::length(of.m);
  constexpr unsigned shared_bytes = stages * (tile_m + tile_n) * tile_k * sizeof(T);
  emulator::launch({.grid = {tiles(of.m, tile_m) * tiles(of.n, tile_n), splits},
                    .block = {warps * 32},
                    .shared_bytes = shared_bytes,
                    .seed = seed},
                   [&] {
                     gemm_mma<T, layout, Activation::relu, tile_m, tile_n, tile_k, warps, stages, (splits > 1)>(
                         of.x.data(), of.w.data(), of.bias.data(), of.y.data(), partial.data(), rows, of.n, of.k,
                         of.x.stride(), of.w.stride(), of.y.stride(), 2, splits);
                   });
  if (splits > 1) {
    emulator::launch({.grid = {tiles(of.m * ((of.n + 3) / 4), 128)}, .block = {128}, .seed = seed}, [&] {
      gemm_reduce<T, Activation::relu>(partial.data(), of.bias.data(), of.y.data(), rows, of.n, of.y.stride(), splits);
    });
  }
  return of.error();
}

template <int tile_m, int tile_n, int vector, typename T, Layout layout>
double simt_error(Gemm<T, layout> of, std::uint32_t seed) {
  emulator::launch({.grid = {tiles(of.m, tile_m) * tiles(of.n, tile_n)}, .block = {256}, .seed = seed}, [&] {
    gemm_simt<T, layout, Activation::relu, tile_m, tile_n, vector>(of.x.data(), of.w.data(), of.bias.data(),
                                                                   of.y.data(), test::length(of.m), of.n, of.k,
                                                                   of.x.stride(), of.w.stride(), of.y.stride());
  });
  return of.error();
}

TEST_CASE("gemm_mma multiplies matrices that fill no whole tiles, in every layout and order of threads") {
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    CHECK(mma_error<64, 32, 32, 2, 3>(Gemm<bf16, Layout::nt>{75, 41, 72}, seed) == 0);
    CHECK(mma_error<64, 64, 64, 4, 3>(Gemm<f16, Layout::nn>{75, 72, 136}, seed) == 0);
    CHECK(mma_error<16, 64, 32, 4, 4>(Gemm<bf16, Layout::tn>{24, 72, 65}, seed) == 0);
    CHECK(mma_error<128, 64, 32, 4, 3>(Gemm<f16, Layout::tt>{136, 67, 40}, seed) == 0);
  }
}

TEST_CASE("gemm_mma splits k, of which the last split may get nothing, and gemm_reduce adds the parts") {
  for (const std::uint32_t seed : test::seeds) {
    CHECK(mma_error<32, 64, 32, 4, 3, 2>(Gemm<bf16, Layout::nt>{33, 37, 160}, seed) == 0);
    CHECK(mma_error<32, 64, 32, 4, 3, 4>(Gemm<bf16, Layout::nt>{33, 37, 72}, seed) == 0);
  }
}

TEST_CASE("gemm_simt multiplies rows of any length and stride") {
  for (const std::uint32_t seed : test::seeds) {
    CHECK(simt_error<64, 32, 1>(Gemm<float, Layout::nt>{37, 41, 53, 3}, seed) == 0);
    CHECK(simt_error<32, 64, 4>(Gemm<bf16, Layout::tn>{36, 68, 33}, seed) == 0);
  }
}

}  // namespace
