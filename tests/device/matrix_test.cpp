// Instructions of a warp on matrices, against what the PTX manual says of their fragments.
#include <doctest/doctest.h>

#include <array>

#include "common/mma.cuh"
#include "emulator/launch.hpp"
#include "instructions.hpp"
#include "matrices.hpp"

namespace {

TEST_CASE("ldmatrix gives each lane two neighbours of a row, or of a column, of each matrix") {
  for (const bool transposed : {false, true}) {
    emulator::launch({.grid = {1}, .block = {32}, .shared_bytes = 512, .seed = 1}, [=] {
      auto* const memory =
          emulator::dynamic_shared<unsigned short>();  // element (row, column) of matrix i: 100 i + 10 row + column
      const unsigned lane = threadIdx.x;
      for (unsigned column = 0; column < 8; ++column)
        memory[lane * 8 + column] = static_cast<unsigned short>(lane / 8 * 100 + lane % 8 * 10 + column);
      __syncwarp();
      unsigned to[4];
      const unsigned from = test::shared_address(memory + lane * 8);
      transposed ? kiln::ldmatrix_x4_trans(to, from) : kiln::ldmatrix_x4(to, from);
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned outer = lane / 4, inner = lane % 4 * 2;
        const unsigned low = i * 100 + (transposed ? inner * 10 + outer : outer * 10 + inner),
                       next = transposed ? 10 : 1;
        if (to[i] != (low | (low + next) << 16)) emulator::fault("lane {} has {:#x} of matrix {}", lane, to[i], i);
      }
    });
  }
}

TEST_CASE("stmatrix puts down what ldmatrix takes up") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    emulator::launch({.grid = {1}, .block = {64}, .shared_bytes = 1024, .seed = seed}, [] {
      const unsigned address = test::shared_address(emulator::dynamic_shared<char>() + threadIdx.x * 16);
      const unsigned from[4] = {threadIdx.x, threadIdx.x + 1000, threadIdx.x + 2000, threadIdx.x << 16};
      EMULATED_PTX("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};", emulator::in(address),
                   emulator::in(from[0]), emulator::in(from[1]), emulator::in(from[2]), emulator::in(from[3]));
      unsigned to[4];
      kiln::ldmatrix_x4_trans(to, address);
      for (unsigned i = 0; i < 4; ++i) {
        if (to[i] != from[i]) emulator::fault("lane {} has {:#x} of matrix {}", threadIdx.x, to[i], i);
      }
    });
  }
}

/// d += a * b for 16 x k by k x 8, k being 32 bytes, whose fragments are made by the manual's formulas.
template <typename T, typename Multiply>
double error_of(Multiply multiply) {
  constexpr unsigned a_register = 4 / sizeof(T), k = 8 * a_register;
  auto a = test::Matrix<T>::random(16, k, k, 1), b = test::Matrix<T>::random(8, k, k, 2);
  auto d = test::Matrix<float>::random(16, 8, 8, 3), sums = d;
  emulator::launch({.grid = {1}, .block = {32}, .seed = 1}, [&] {
    const unsigned group = threadIdx.x / 4, within = threadIdx.x % 4;
    const auto word = [&](test::Matrix<T>& of, unsigned row, unsigned column) {
      unsigned bits = 0;
      std::memcpy(&bits, &of.at(row, column), 4);
      return bits;
    };
    unsigned left[4], right[2];
    for (unsigned i = 0; i < 4; ++i) left[i] = word(a, group + i % 2 * 8, within * a_register + i / 2 * (k / 2));
    for (unsigned i = 0; i < 2; ++i) right[i] = word(b, group, within * a_register + i * (k / 2));
    float own[4];
    for (unsigned i = 0; i < 4; ++i) own[i] = sums.at(group + i / 2 * 8, within * 2 + i % 2);
    multiply(own, left, right);
    for (unsigned i = 0; i < 4; ++i) sums.at(group + i / 2 * 8, within * 2 + i % 2) = own[i];
  });
  double largest = 0;
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      double right = d.value(row, column);
      for (unsigned i = 0; i < k; ++i) right += a.value(row, i) * b.value(column, i);
      largest = std::max(largest, test::distance(sums.value(row, column), right));
    }
  }
  return largest;
}

TEST_CASE("mma.sync multiplies fragments of 16 and of 8 bits") {
  CHECK(error_of<kiln::bf16>([](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) {
          kiln::mma_m16n8k16<kiln::bf16>(d, a, b[0], b[1]);
        }) == 0);
  CHECK(
      error_of<kiln::e4m3>([](float(&d)[4], const unsigned(&a)[4], const unsigned(&b)[2]) {
        EMULATED_PTX(
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};",
            emulator::both(d[0]), emulator::both(d[1]), emulator::both(d[2]), emulator::both(d[3]), emulator::in(a[0]),
            emulator::in(a[1]), emulator::in(a[2]), emulator::in(a[3]), emulator::in(b[0]), emulator::in(b[1]));
      }) == 0);
}

TEST_CASE("conversions round to the nearest, ties to even, and 8-bit floats saturate") {
  CHECK(kiln::from_float<kiln::bf16>(1.0f + 1.0f / 256).bits == 0x3f80);
  CHECK(kiln::from_float<kiln::bf16>(1.0f + 3.0f / 256).bits == 0x3f82);
  CHECK(kiln::from_float<kiln::f16>(65520.0f).bits == 0x7c00);
  CHECK(kiln::from_float<kiln::e4m3>(1e6f).bits == 0x7e);
  CHECK(kiln::from_float<kiln::e4m3>(-INFINITY).bits == 0xfe);
  CHECK(kiln::from_float<kiln::e5m2>(1e6f).bits == 0x7b);
  CHECK(kiln::to_float(kiln::e4m3{0x01}) == 0x1p-9f);
  CHECK(kiln::cvt_rn_x2<kiln::bf16>(1.0f, 2.0f) == 0x40003f80u);
}

}  // namespace
