// gemm by wgmma: the bits of what follows a product, and numbers that are not ordinary.
#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm/wgmma.cuh"
#include "operands.hpp"
#include "special_values.hpp"

namespace {

using namespace test;

/// What a kernel is compiled for, as the parameters of wgmma.toml say it.
struct WgmmaShape {
  int tile_m, tile_n;
  int cluster_m = 1, cluster_k = 1;
  bool swap = false, pingpong = false, aligned = true;
  static constexpr int stages = 4;
};

template <WgmmaShape shape>
struct Wgmma {
  template <typename T>
  using Tiles = kiln::gemm::WgmmaTiling<T, T, Layout::nt, shape.tile_m, shape.tile_n, WgmmaShape::stages,
                                        shape.cluster_m, 1, shape.cluster_k, shape.swap, shape.pingpong>;

  template <typename T, class Config>
  static void run(FusedProduct<T, Config>& p, std::uint32_t seed) {
    using Out = typename Config::out;
    constexpr bool by_tma = shape.aligned && sizeof(Out) == 2 && Config::joined == 1;
    constexpr int stored = by_tma ? 0 : shape.aligned ? 16 / sizeof(Out) : 1;
    using Of = Tiles<T>;
    using Piece = kiln::gemm::Piece<Of>;
    const kiln::tensor_map x_map = map_of(p.x, Of::X::rows_of_box(static_cast<int>(p.x.rows())), 128 / sizeof(T), 128),
                           w_map = map_of(p.w, Of::W::box_rows, 128 / sizeof(T), 128);
    kiln::tensor_map y_map = x_map;
    if constexpr (by_tma) y_map = map_of(p.y, Piece::rows, Piece::columns, Piece::columns * sizeof(Out));
    const auto tiles =
        static_cast<unsigned>((p.m + shape.tile_m - 1) / shape.tile_m * ((p.n + shape.tile_n - 1) / shape.tile_n));
    emulator::launch({.grid = {(shape.cluster_k > 1 ? tiles : 2) * Of::cluster},
                      .block = {Of::threads},
                      .shared_bytes = kiln::gemm::Ring<Of>::bytes + Of::consumers * Piece::staging_bytes +
                                      kiln::gemm::Ring<Of>::barrier_bytes,
                      .cluster = {Of::cluster},
                      .seed = seed},
                     [&] {
                       gemm_wgmma<T, T, Layout::nt, Config, shape.tile_m, shape.tile_n, WgmmaShape::stages,
                                  shape.cluster_m, 1, shape.cluster_k, shape.swap, shape.pingpong, stored, false>(
                           x_map, w_map, y_map, p.y.data(), p.bias(), p.residual.data(), p.x_scale.data(),
                           p.w_scale.data(), &p.y_scale, nullptr, nullptr, p.rows(), p.n, p.k, p.y_stride, p.y_stride,
                           1, 1, 1, 1, p.scale, 2, 0);
                     });
  }
};

using Whole = Wgmma<WgmmaShape{.tile_m = 128, .tile_n = 64}>;
using InTurns = Wgmma<WgmmaShape{.tile_m = 64, .tile_n = 64, .pingpong = true}>;
using Loading = Wgmma<WgmmaShape{.tile_m = 64, .tile_n = 96, .cluster_m = 2}>;
using Swapped = Wgmma<WgmmaShape{.tile_m = 16, .tile_n = 128, .swap = true}>;
using SwappedInCluster = Wgmma<WgmmaShape{.tile_m = 16, .tile_n = 64, .cluster_k = 2, .swap = true}>;
using InCluster = Wgmma<WgmmaShape{.tile_m = 64, .tile_n = 64, .cluster_k = 2}>;
using ThreeInCluster = Wgmma<WgmmaShape{.tile_m = 64, .tile_n = 64, .cluster_k = 3}>;
using Unaligned = Wgmma<WgmmaShape{.tile_m = 64, .tile_n = 64, .aligned = false}>;

TEST_CASE("what follows a product of gemm_wgmma gives the bits of its steps one by one") {
  CHECK(different_bits_in_any<Whole, EndInBf16, EndInF16, EndInF32, EndInPairs, EndInE4m3>(133, 150, 136) == 0);
  CHECK(different_bits_in_any<Swapped, EndInBf16, EndInF16, EndInPairs>(13, 150, 328) == 0);
  CHECK(different_bits_in_any<InCluster, EndInBf16, EndInF16, EndInPairs>(70, 70, 328) == 0);
  CHECK(different_bits_in_any<SwappedInCluster, EndInBf16>(13, 70, 328) == 0);
  CHECK(different_bits_in_any<ThreeInCluster, EndInBf16, EndInPairs>(70, 70, 328) == 0);
  CHECK(different_bits_in_any<InTurns, EndInBf16>(133, 150, 136) == 0);
  CHECK(different_bits_in_any<Loading, EndInBf16>(133, 100, 136) == 0);
  CHECK(different_bits_in_any<Unaligned, EndInBf16>(70, 70, 136) == 0);
}

TEST_CASE("gemm_wgmma gives infinities and NaN to the rows and columns that they are in, and no others") {
  CHECK(wrong_where_not_finite<Whole, kiln::bf16>(133, 150, 136) == 0);
  CHECK(wrong_where_not_finite<Swapped, kiln::bf16>(13, 150, 328) == 0);
  CHECK(wrong_where_not_finite<InCluster, kiln::bf16>(70, 70, 328) == 0);
  CHECK(wrong_where_not_finite<ThreeInCluster, kiln::bf16>(70, 70, 328) == 0);
  CHECK(wrong_where_not_finite<Whole, kiln::e4m3>(133, 150, 272) == 0);
}

TEST_CASE("gemm_wgmma counts subnormal numbers on either side") {
  for (const Side side : {Side::x, Side::w}) {
    CAPTURE(static_cast<int>(side));
    CHECK(wrong_where_subnormal<Whole, kiln::f16>(side, 133, 70, 136) == 0);
    CHECK(wrong_where_subnormal<Whole, kiln::bf16>(side, 133, 70, 136) == 0);
    CHECK(wrong_where_subnormal<Whole, kiln::e4m3>(side, 133, 70, 272) == 0);
    CHECK(wrong_where_subnormal<Swapped, kiln::f16>(side, 13, 70, 328) == 0);
  }
}

}  // namespace
