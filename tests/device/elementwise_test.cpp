#include <doctest/doctest.h>

#include "kernels.hpp"
#include "quantise/chunks.cuh"
#include "rotary/heads.cuh"
#include "swiglu/chunks.cuh"

namespace {

using kiln::bf16;
using kiln::e4m3;
using test::length;

/// Whether q times its scale is x but for e4m3's rounding.
double quantise_error(test::Matrix<e4m3>& q, test::Matrix<bf16>& x, std::int64_t rows, double scale) {
  return test::error_of(q, rows, [&](std::int64_t row, std::int64_t i) {
    return kiln::to_double(kiln::from_float<e4m3>(static_cast<float>(x.value(row, i) / scale)));
  });
}

TEST_CASE("quantise finds the scale of rows up to a length on the device, and puts them under it") {
  constexpr std::int64_t rows = 19, columns = 203;
  const int held = 17;
  for (const std::uint32_t seed : test::seeds) {
    auto x = test::Matrix<bf16>::random(rows, columns, 205, 1);
    x.at(16, 202) = kiln::from_float<bf16>(3.5f);
    x.at(17, 5) = kiln::from_float<bf16>(7.0f);  // past the length
    test::Matrix<e4m3> y(rows, columns, 208);
    float scale = 0, partial[3] = {};
    unsigned ended = 0;
    emulator::launch({.grid = {3}, .block = {64}, .seed = seed}, [&] {
      kiln::quantise_find_scale<bf16, 64, 16, 8, 2>(x.data(), &scale, partial, &ended, length(rows, &held), columns,
                                                    x.stride());
    });
    CHECK(ended == 0);
    CHECK(scale == doctest::Approx(3.5 / 448));
    emulator::launch({.grid = {10}, .block = {64}, .seed = seed}, [&] {
      kiln::quantise_chunks<bf16, kiln::Scaling::dynamic, 64, 32, 8, 1>(
          x.data(), y.data(), &scale, nullptr, length(rows, &held), columns, x.stride(), y.stride(), 0, 0);
    });
    CHECK(quantise_error(y, x, held, scale) == 0);
  }
}

TEST_CASE("quantise gives each 128 neighbours a scale, the last ones of a row too") {
  constexpr std::int64_t rows = 3, columns = 300, blocks = 3;
  for (const std::uint32_t seed : test::seeds) {
    auto x = test::Matrix<bf16>::random(rows, columns, 301, 1);
    for (std::int64_t i = 128; i < 256; ++i) x.at(1, i) = {0};
    test::Matrix<e4m3> y(rows, columns, 305);
    test::Matrix<float> scales(blocks, rows, 4);  // by column
    emulator::launch({.grid = {3}, .block = {64}, .seed = seed}, [&] {
      kiln::quantise_chunks<bf16, kiln::Scaling::block, 64, 64, 8, 1>(x.data(), y.data(), nullptr, scales.data(),
                                                                      length(rows), columns, x.stride(), y.stride(), 1,
                                                                      scales.stride());
    });
    double largest = y.margins_untouched() && scales.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, test::distance(y.value(row, i) * scales.value(i / 128, row), x.value(row, i)));
    }
    CHECK(largest < 1.01 / 28);  // half of the last place of the largest, which 448 stands for
    CHECK(scales.value(0, 0) == doctest::Approx(1.0 / 448));
  }
}

TEST_CASE("a block of numbers near the largest is scaled as any other, and one with an infinity keeps it") {
  constexpr std::int64_t columns = 256;
  test::Matrix<bf16> x(1, columns, columns);
  for (std::int64_t i = 0; i < columns; ++i)
    x.at(0, i) = kiln::from_float<bf16>(i < 128 ? 2.5e38f * (static_cast<float>(i - 64) / 64) : static_cast<float>(i));
  x.at(0, 130) = kiln::from_float<bf16>(INFINITY);
  test::Matrix<e4m3> y(1, columns, columns);
  test::Matrix<float> scales(1, 2, 2);
  emulator::launch({.grid = {1}, .block = {64}}, [&] {
    kiln::quantise_chunks<bf16, kiln::Scaling::block, 64, 64, 8, 1>(
        x.data(), y.data(), nullptr, scales.data(), length(1), columns, x.stride(), y.stride(), scales.stride(), 1);
  });
  double largest = 0;
  for (std::int64_t i = 0; i < 128; ++i)
    largest = std::max(largest, std::abs(y.value(0, i) * scales.value(0, 0) - x.value(0, i)));
  CHECK(largest < 2.5e38 * 1.01 / 28);  // half of the last place of the largest
  CHECK(scales.value(0, 1) == INFINITY);
  CHECK(y.value(0, 130) == 448);
}

TEST_CASE("swiglu takes halves of one buffer whose rows begin anywhere") {
  constexpr std::int64_t rows = 5, columns = 131;
  const int held = 4;
  for (const std::uint32_t seed : test::seeds) {
    auto both = test::Matrix<bf16>::random(rows, 2 * columns, 2 * columns + 1, 1);
    test::Matrix<bf16> y(rows, columns, columns + 2);
    emulator::launch({.grid = {10}, .block = {32}, .seed = seed}, [&] {
      kiln::swiglu_chunks<bf16, kiln::quantise_mode::none, 32, 16, 8, 1>(
          both.data(), both.data() + columns, y.data(), nullptr, nullptr, nullptr, length(rows, &held), columns,
          both.stride(), both.stride(), y.stride(), 0, 0);
    });
    CHECK(test::error_of(y, held, [&](std::int64_t row, std::int64_t i) {
            const double gate = both.value(row, i);
            return gate / (1 + std::exp(-gate)) * both.value(row, columns + i);
          }) < 4e-3);
  }
}

/// Tokens of 5 heads of 26, of which the first 20 are turned: the largest distance from the turned ones.
template <kiln::Layout layout, int vector>
double rotary_error(std::uint32_t seed) {
  constexpr int tokens = 4, heads = 5, dim = 26, turned = 20, pairs = turned / 2;
  auto x = test::Matrix<bf16>::random(tokens * heads, dim, 28, 1);
  test::Matrix<bf16> y(tokens * heads, dim, 30);
  auto cos = test::Matrix<float>::random(9, pairs, 12, 2), sin = test::Matrix<float>::random(9, pairs, 12, 3);
  const int positions[tokens] = {3, 0, 8, 5};
  constexpr int turning = layout == kiln::Layout::half ? pairs : turned;
  constexpr int chunks = (turning + vector - 1) / vector + (dim - turned + vector - 1) / vector;
  constexpr unsigned threads = tokens * ((heads + 1) / 2) * chunks;
  emulator::launch({.grid = {(threads + 31) / 32}, .block = {32}, .seed = seed}, [&] {
    kiln::rotary_heads<bf16, int, layout, kiln::Direction::forward, 32, vector, 2>(
        x.data(), cos.data(), sin.data(), positions, y.data(), length(tokens), heads, dim, turned, heads * x.stride(),
        x.stride(), heads * y.stride(), y.stride(), 9, cos.stride(), nullptr);
  });
  return test::error_of(y, tokens * heads, [&](std::int64_t row, std::int64_t i) {
    if (i >= turned) return x.value(row, i);
    constexpr bool half = layout == kiln::Layout::half;
    const std::int64_t pair = half ? i % pairs : i / 2, first = half ? pair : pair * 2,
                       second = half ? pair + pairs : first + 1;
    const double c = cos.value(positions[row / heads], pair), s = sin.value(positions[row / heads], pair);
    return i == first ? x.value(row, first) * c - x.value(row, second) * s
                      : x.value(row, second) * c + x.value(row, first) * s;
  });
}

/// One head of 8 a token, in pairs of neighbours: whether each is turned by the row of the tables that `rows` names, and what is reported.
template <typename Index>
unsigned long long report_of(const std::vector<Index>& positions, const std::vector<int>& rows, std::uint32_t seed) {
  const auto tokens = static_cast<std::int64_t>(positions.size());
  auto x = test::Matrix<float>::random(tokens, 8, 8, 1);
  test::Matrix<float> y(tokens, 8, 8);
  auto cos = test::Matrix<float>::random(3, 4, 4, 2), sin = test::Matrix<float>::random(3, 4, 4, 3);
  unsigned long long report = 0;
  const auto threads = static_cast<unsigned>(4 * tokens);
  emulator::launch({.grid = {(threads + 31) / 32}, .block = {32}, .seed = seed}, [&] {
    kiln::rotary_heads<float, Index, kiln::Layout::interleaved, kiln::Direction::forward, 32, 2, 1>(
        x.data(), cos.data(), sin.data(), positions.data(), y.data(), length(static_cast<int>(tokens)), 1, 8, 8, 8, 8,
        8, 8, 3, 4, &report);
  });
  CHECK(test::error_of(y, tokens, [&](std::int64_t row, std::int64_t i) {
          const std::int64_t pair = i / 2;
          const double c = cos.value(rows[static_cast<std::size_t>(row)], pair),
                       s = sin.value(rows[static_cast<std::size_t>(row)], pair);
          return i % 2 == 0 ? x.value(row, i) * c - x.value(row, i + 1) * s
                            : x.value(row, i) * c + x.value(row, i - 1) * s;
        }) < 1e-6);
  return report;
}

TEST_CASE("rotary clamps positions outside of its tables, and reports one of them") {
  constexpr unsigned long long bound = 3ull << 32;
  for (const std::uint32_t seed : test::seeds) {
    CHECK(report_of<int>({0, 2, 1}, {0, 2, 1}, seed) == 0);
    CHECK(report_of<int>({0, 3, 1}, {0, 2, 1}, seed) == (bound | 3));
    CHECK(report_of<int>({2, -2147483647 - 1}, {2, 0}, seed) == (bound | 0x80000000u));
    CHECK(report_of<int>({2147483647}, {2}, seed) == (bound | 0x7fffffffu));
    CHECK(report_of<long long>({1ll << 40, 1}, {2, 1}, seed) == (bound | 0x7fffffffu));
    CHECK(report_of<long long>({2, -(1ll << 40)}, {2, 0}, seed) == (bound | 0x80000000u));
    CHECK(report_of<long long>({4294967298ll}, {2}, seed) == (bound | 0x7fffffffu));  // 2 in its low half
  }
}

TEST_CASE("rotary turns the pairs of heads whose number and length fill no whole chunks") {
  for (const std::uint32_t seed : test::seeds) {
    CHECK(rotary_error<kiln::Layout::half, 2>(seed) < 4e-3);
    CHECK(rotary_error<kiln::Layout::interleaved, 2>(seed) < 4e-3);
    CHECK(rotary_error<kiln::Layout::half, 8>(seed) < 4e-3);
  }
}

}  // namespace
