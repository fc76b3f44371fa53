// gemm by the ordinary cores and by mma.sync: the bits of what follows a product, and numbers that are not ordinary.
#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm/mma.cuh"
#include "gemm/simt.cuh"
#include "special_values.hpp"

namespace {

using namespace test;

constexpr unsigned parts(std::int64_t extent, std::int64_t of) { return static_cast<unsigned>((extent + of - 1) / of); }

struct Simt {
  template <typename T, class Config>
  static void run(FusedProduct<T, Config>& p, std::uint32_t seed) {
    emulator::launch({.grid = {parts(p.m, 16) * parts(p.n, 32)}, .block = {256}, .seed = seed}, [&] {
      gemm_simt<T, T, Layout::nt, Config, 16, 32, 1>(
          p.x.data(), p.w.data(), p.y.data(), p.bias(), p.residual.data(), p.x_scale.data(), p.w_scale.data(),
          &p.y_scale, p.rows(), p.n, p.k, p.x.stride(), p.w.stride(), p.y_stride, p.y_stride, 1, 1, 1, 1, p.scale);
    });
  }
};

template <int splits>
struct Mma {
  template <typename T, class Config>
  static void run(FusedProduct<T, Config>& p, std::uint32_t seed) {
    Matrix<float> partial(splits * p.m, p.n, (p.n + 7) / 8 * 8);
    emulator::launch({.grid = {parts(p.m, 32) * parts(p.n, 64), splits},
                      .block = {128},
                      .shared_bytes = 3 * (32 + 64) * 32 * 2,
                      .seed = seed},
                     [&] {
                       gemm_mma<T, Layout::nt, Config, 32, 64, 32, 4, 3, (splits > 1)>(
                           p.x.data(), p.w.data(), p.y.data(), p.bias(), p.residual.data(), p.x_scale.data(),
                           p.w_scale.data(), &p.y_scale, partial.data(), p.rows(), p.n, p.k, p.x.stride(), p.w.stride(),
                           p.y_stride, p.y_stride, 1, 1, p.scale, 2, splits);
                     });
    if (splits == 1) return;
    emulator::launch({.grid = {parts(p.m * parts(p.n, 4), 128)}, .block = {128}, .seed = seed}, [&] {
      gemm_reduce<Config>(partial.data(), p.y.data(), p.bias(), p.residual.data(), p.x_scale.data(), p.w_scale.data(),
                          &p.y_scale, p.rows(), p.n, p.y_stride, p.y_stride, 1, 1, p.scale, splits);
    });
  }
};

TEST_CASE("what follows a product of gemm_simt or gemm_mma gives the bits of its steps one by one") {
  CHECK(different_bits_in_any<Simt, EndInBf16, EndInF16, EndInF32, EndInPairs, EndInE4m3>(19, 70, 77) == 0);
  CHECK(different_bits_in_any<Mma<1>, EndInBf16, EndInF16, EndInF32, EndInPairs, EndInE4m3>(35, 70, 104) == 0);
  CHECK(different_bits_in_any<Mma<3>, EndInBf16, EndInF16, EndInPairs>(35, 70, 200) == 0);
}

TEST_CASE("gemm_simt and gemm_mma give infinities and NaN to the rows and columns that they are in, and no others") {
  CHECK(wrong_where_not_finite<Simt, kiln::bf16>(19, 40, 77) == 0);
  CHECK(wrong_where_not_finite<Mma<1>, kiln::bf16>(35, 70, 104) == 0);
  CHECK(wrong_where_not_finite<Mma<3>, kiln::bf16>(35, 70, 200) == 0);
}

TEST_CASE("gemm_simt and gemm_mma count subnormal numbers on either side") {
  for (const Side side : {Side::x, Side::w}) {
    CAPTURE(static_cast<int>(side));
    CHECK(wrong_where_subnormal<Simt, kiln::f16>(side, 19, 40, 77) == 0);
    CHECK(wrong_where_subnormal<Mma<1>, kiln::f16>(side, 35, 70, 104) == 0);
    CHECK(wrong_where_subnormal<Mma<1>, kiln::bf16>(side, 35, 70, 104) == 0);
  }
}

}  // namespace
