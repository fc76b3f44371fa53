// gemm by streaming W: the bits of what follows a product, and numbers that are not ordinary.
#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "gemm/stream.cuh"
#include "special_values.hpp"

namespace {

using namespace test;

template <unsigned blocks>
struct Stream {
  template <typename T, class Config>
  static void run(FusedProduct<T, Config>& p, std::uint32_t seed) {
    constexpr int ring = 2 * (32 + 16) * 128, exchange = blocks == 1 ? 0 : 32 * 16 / 128 * 512 + 16;
    emulator::launch({.grid = {static_cast<unsigned>((p.n + 31) / 32) * blocks},
                      .block = {64},
                      .shared_bytes = 2 * ring + exchange,
                      .cluster = {blocks},
                      .seed = seed},
                     [&] {
                       gemm_stream<T, T, Config, 16, 32, 1, 2, 2, blocks, 2>(
                           p.x.data(), p.w.data(), p.y.data(), p.bias(), p.residual.data(), p.x_scale.data(),
                           p.w_scale.data(), &p.y_scale, p.rows(), p.n, p.k, p.x.stride(), p.w.stride(), p.y_stride,
                           p.y_stride, 1, 1, 1, 1, p.scale);
                     });
  }
};

TEST_CASE("what follows a product of gemm_stream gives the bits of its steps one by one") {
  CHECK(different_bits_in_any<Stream<1>, EndInBf16, EndInF16, EndInF32, EndInPairs, EndInE4m3>(13, 70, 328) == 0);
  CHECK(different_bits_in_any<Stream<2>, EndInBf16, EndInF16, EndInPairs>(13, 70, 328) == 0);
}

TEST_CASE("gemm_stream gives infinities and NaN to the rows and columns that they are in, and no others") {
  CHECK(wrong_where_not_finite<Stream<1>, kiln::bf16>(13, 70, 328) == 0);
  CHECK(wrong_where_not_finite<Stream<2>, kiln::bf16>(13, 70, 328) == 0);
  CHECK(wrong_where_not_finite<Stream<1>, kiln::e4m3>(13, 70, 336) == 0);
}

TEST_CASE("gemm_stream counts subnormal numbers on either side") {
  for (const Side side : {Side::x, Side::w}) {
    CAPTURE(static_cast<int>(side));
    CHECK(wrong_where_subnormal<Stream<1>, kiln::f16>(side, 13, 70, 328) == 0);
    CHECK(wrong_where_subnormal<Stream<1>, kiln::bf16>(side, 13, 70, 328) == 0);
    CHECK(wrong_where_subnormal<Stream<1>, kiln::e4m3>(side, 13, 70, 336) == 0);
  }
}

}  // namespace
