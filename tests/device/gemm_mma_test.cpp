#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm/mma.cuh"
#include "products.hpp"

namespace {

using namespace test;

/// gemm_mma, and gemm_reduce where k is split: the largest error in halves of the last place.
template <typename T, Layout layout, class Config, int tile_m, int tile_n, int tile_k, int warps, int stages,
          int splits>
double mma_error(const Sizes& of, std::uint32_t seed) {
  Products<T, T, layout, Config> p(of);
  Matrix<float> partial(splits * of.m, of.n, (of.n + 7) / 8 * 8);
  const auto blocks = static_cast<unsigned>((of.m + tile_m - 1) / tile_m * ((of.n + tile_n - 1) / tile_n));
  emulator::launch({.grid = {blocks, splits},
                    .block = {warps * 32},
                    .shared_bytes = stages * (tile_m + tile_n) * tile_k * 2,
                    .seed = seed},
                   [&] {
                     gemm_mma<T, layout, Config, tile_m, tile_n, tile_k, warps, stages, (splits > 1)>(
                         p.x.data(), p.w.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(),
                         p.w_scale.data(), &p.y_scale, partial.data(), p.rows(), of.n, of.k, p.x.stride(), p.w.stride(),
                         p.y.stride(), p.residual.stride(), 1, 1, p.scale, 2, splits);
                   });
  if (splits > 1) {
    const auto threads = static_cast<unsigned>(of.m * ((of.n + 3) / 4));
    emulator::launch({.grid = {(threads + 127) / 128}, .block = {128}, .seed = seed}, [&] {
      gemm_reduce<Config>(partial.data(), p.y.data(), p.bias.data(), p.residual.data(), p.x_scale.data(),
                          p.w_scale.data(), &p.y_scale, p.rows(), of.n, p.y.stride(), p.residual.stride(), 1, 1,
                          p.scale, splits);
    });
  }
  return p.error_of(p.y);
}

using Plain = Ends<kiln::bf16, Activation::relu>;
using PlainF16 = Ends<kiln::f16, Activation::relu>;

TEST_CASE("gemm_mma multiplies matrices that fill no whole tiles, in every layout and order of threads") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(mma_error<kiln::bf16, Layout::nt, Plain, 64, 32, 32, 2, 3, 1>({75, 41, 72}, seed) <= 1);
  }
  CHECK(mma_error<kiln::f16, Layout::nn, PlainF16, 64, 64, 64, 4, 3, 1>({75, 72, 136}, 4) <= 1);
  CHECK(mma_error<kiln::bf16, Layout::tn, Plain, 16, 64, 32, 4, 4, 1>({24, 72, 65}, 5) <= 1);
  CHECK(mma_error<kiln::f16, Layout::tt, PlainF16, 128, 64, 32, 4, 3, 1>({136, 67, 40}, 6) <= 1);
}

TEST_CASE("gemm_mma splits k, of which the last split may get nothing, and gemm_reduce adds the parts") {
  CHECK(mma_error<kiln::bf16, Layout::nt, Plain, 32, 64, 32, 4, 3, 2>({33, 37, 160}, 1) <= 1);
  CHECK(mma_error<kiln::bf16, Layout::nt, Plain, 32, 64, 32, 4, 3, 4>({33, 37, 72}, 2) <= 1);
}

TEST_CASE("gemm_mma launched for a bucket is right at every k of it, though most splits get nothing") {
  for (const std::int64_t k : {1, 31, 32, 33, 47, 65, 97}) {
    CAPTURE(k);
    CHECK(mma_error<kiln::bf16, Layout::tn, Plain, 32, 64, 32, 4, 3, 1>({40, 72, k}, 1) <= 1);
    CHECK(mma_error<kiln::bf16, Layout::tn, Plain, 32, 64, 32, 4, 3, 2>({40, 72, k}, 2) <= 1);
    CHECK(mma_error<kiln::f16, Layout::tn, PlainF16, 32, 64, 32, 4, 4, 8>({40, 72, k}, 3) <= 1);
  }
}

/// Whole and in parts: both ends of a product go the same way.
template <class Config>
void check_end(const Sizes& of) {
  CHECK(mma_error<kiln::bf16, Layout::nt, Config, 32, 64, 32, 4, 3, 1>(of, 1) <= 1.01);
  CHECK(mma_error<kiln::bf16, Layout::nt, Config, 32, 64, 32, 4, 3, 2>(of, 2) <= 1.01);
}

TEST_CASE("what follows a product of gemm_mma is done in order, at every end of a row") {
  check_end<Ends<kiln::bf16, Activation::swiglu>>({33, 38, 72});
  check_end<Ends<kiln::bf16, Activation::swiglu>>({3, 41, 40});
  check_end<Ends<kiln::f16, Activation::gelu, Residual::add>>({33, 37, 72});
  check_end<Ends<float, Activation::silu, Residual::add, Scaling::row>>({33, 37, 72});
  check_end<Ends<kiln::e4m3, Activation::none, Residual::none, Scaling::tensor>>({17, 45, 40});
  check_end<Ends<kiln::e4m3, Activation::swiglu, Residual::add, Scaling::row, Accumulate::yes>>({33, 70, 40});
}

TEST_CASE("gemm_mma adds the gradient of a weight in f32 to the one that is there") {
  using Gradient = Ends<float, Activation::none, Residual::none, Scaling::none, Accumulate::yes>;
  CHECK(mma_error<kiln::bf16, Layout::tn, Gradient, 64, 64, 32, 4, 3, 1>({72, 40, 67}, 1) <= 1);
  CHECK(mma_error<kiln::bf16, Layout::tn, Gradient, 64, 64, 32, 4, 3, 2>({72, 40, 67}, 2) <= 1);
}

}  // namespace
