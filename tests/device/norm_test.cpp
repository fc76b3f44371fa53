#include <doctest/doctest.h>

#include <vector>

#include "kernels.hpp"
#include "layer_norm/block_row.cuh"
#include "layer_norm/bulk.cuh"
#include "rms_norm/block_row.cuh"
#include "rms_norm/shared_row.cuh"
#include "rms_norm/streaming.cuh"
#include "rms_norm/warp_row.cuh"

namespace {

using kiln::bf16;
using kiln::quantise_mode;
using kiln::residual_mode;
using test::length;

constexpr float epsilon = 1e-6f;

/// Five rows, of which the length on the device leaves three.
struct Rows {
  test::Matrix<bf16> x, weight, y;
  const int held = 3;

  explicit Rows(std::int64_t columns)
      : x(test::Matrix<bf16>::random(5, columns, columns + 3, 1)),
        weight(test::Matrix<bf16>::random(1, columns, columns, 2)),
        y(5, columns, columns + 1) {}

  [[nodiscard]] kiln::axis_length rows() const { return length(5, &held); }

  double error() {
    return test::error_of(y, held, [this](std::int64_t row, std::int64_t column) {
      double squares = 0;
      for (std::int64_t i = 0; i < x.columns(); ++i) squares += x.value(row, i) * x.value(row, i);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(x.columns()) + epsilon);
      return x.value(row, column) * scale * weight.value(0, column);
    });
  }
};

TEST_CASE("rms_norm's block_row normalises rows of any length and phase, up to a length on the device") {
  for (const std::uint32_t seed : test::seeds) {
    for (const std::int64_t columns : {512, 509, 301}) {
      CAPTURE(columns);
      Rows of(columns);
      emulator::launch({.grid = {5}, .block = {64}, .seed = seed}, [&] {
        kiln::rms_norm_block_row<bf16, 64, 8, 1, residual_mode::none, quantise_mode::none>(
            of.x.data(), nullptr, of.weight.data(), nullptr, nullptr, of.y.data(), nullptr, nullptr, of.rows(), columns,
            of.x.stride(), 0, 0, of.y.stride(), 0, 0, epsilon);
      });
      CHECK(of.error() < 2e-2);
    }
  }
}

TEST_CASE("rms_norm's warp_row shares a warp among rows, some of which are not there") {
  for (const std::uint32_t seed : test::seeds) {
    Rows of(77);
    emulator::launch({.grid = {2}, .block = {32}, .seed = seed}, [&] {
      kiln::rms_norm_warp_row<bf16, 32, 8, 4, 3, residual_mode::none, quantise_mode::none>(
          of.x.data(), nullptr, of.weight.data(), nullptr, nullptr, of.y.data(), nullptr, nullptr, of.rows(), 77,
          of.x.stride(), 0, 0, of.y.stride(), 0, 0, epsilon);
    });
    CHECK(of.error() < 2e-2);
  }
}

TEST_CASE("rms_norm's streaming and shared_row take rows of any length") {
  for (const std::uint32_t seed : test::seeds) {
    Rows streamed(2045), shared(2045);
    emulator::launch({.grid = {5}, .block = {64}, .seed = seed}, [&] {
      kiln::rms_norm_streaming<bf16, 64, 8, residual_mode::none, quantise_mode::none>(
          streamed.x.data(), nullptr, streamed.weight.data(), nullptr, nullptr, streamed.y.data(), nullptr, nullptr,
          streamed.rows(), 2045, streamed.x.stride(), 0, 0, streamed.y.stride(), 0, 0, epsilon);
    });
    emulator::launch({.grid = {5}, .block = {64}, .shared_bytes = 16 * 320, .seed = seed}, [&] {
      kiln::rms_norm_shared_row<bf16, 64>(shared.x.data(), shared.weight.data(), shared.y.data(), shared.rows(), 2045,
                                          shared.x.stride(), shared.y.stride(), epsilon);
    });
    CHECK(streamed.error() < 2e-2);
    CHECK(shared.error() < 2e-2);
  }
}

TEST_CASE("layer_norm adds the residual, normalises the rounded sum and quantises it by blocks of 128") {
  constexpr std::int64_t columns = 301, blocks = 3;
  for (const std::uint32_t seed : test::seeds) {
    auto x = test::Matrix<bf16>::random(2, columns, 304, 1), residual = test::Matrix<bf16>::random(2, columns, 303, 2);
    auto weight = test::Matrix<bf16>::random(1, columns, columns, 3),
         bias = test::Matrix<bf16>::random(1, columns, columns, 4);
    test::Matrix<bf16> sum(2, columns, 305);
    test::Matrix<kiln::e4m3> y(2, columns, 304);
    test::Matrix<float> scales(2, blocks, blocks);
    emulator::launch({.grid = {2}, .block = {64}, .seed = seed}, [&] {
      kiln::layer_norm_block_row<bf16, 64, 8, 1, residual_mode::add, quantise_mode::block>(
          x.data(), residual.data(), weight.data(), bias.data(), nullptr, sum.data(), nullptr, y.data(), scales.data(),
          length(2), columns, x.stride(), residual.stride(), sum.stride(), y.stride(), scales.stride(), 1, epsilon);
    });
    CHECK(test::error_of(
              sum, 2, [&](std::int64_t row, std::int64_t i) { return x.value(row, i) + residual.value(row, i); }) == 0);
    const auto right = [&](std::int64_t row, std::int64_t column) {
      double mean = 0, squares = 0;
      for (std::int64_t i = 0; i < columns; ++i) mean += sum.value(row, i) / columns;
      for (std::int64_t i = 0; i < columns; ++i)
        squares += (sum.value(row, i) - mean) * (sum.value(row, i) - mean) / columns;
      return (sum.value(row, column) - mean) / std::sqrt(squares + epsilon) * weight.value(0, column) +
             bias.value(0, column);
    };
    double largest = y.margins_untouched() && scales.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < 2; ++row) {
      for (std::int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, test::distance(y.value(row, i) * scales.value(row, i / 128), right(row, i)));
    }
    CHECK(largest < 0.15);  // half of the last place of e4m3 below 4
  }
}

TEST_CASE("layer_norm's bulk blocks take rows that are copied whole, and quantise them by blocks of 128") {
  constexpr unsigned threads = 64, stages = 2, columns = 2 * threads * 8;
  constexpr std::int64_t bound = 9, scales_a_row = columns / 128;
  const int held = 7;
  for (const unsigned blocks : {1u, 2u, 9u}) {
    for (const std::uint32_t seed : test::seeds) {
      CAPTURE(blocks);
      CAPTURE(seed);
      auto x = test::Matrix<bf16>::random(bound, columns, columns + 8, 1);
      auto weight = test::Matrix<bf16>::random(1, columns, columns, 2),
           bias = test::Matrix<bf16>::random(1, columns, columns, 3);
      test::Matrix<kiln::e4m3> quantised(bound, columns, columns + 16);
      test::Matrix<float> scales(bound, scales_a_row, scales_a_row);
      test::Matrix<bf16> y(bound, columns, columns + 8);
      emulator::launch({.grid = {blocks}, .block = {threads}, .shared_bytes = stages * columns * 2, .seed = seed}, [&] {
        kiln::layer_norm_bulk<bf16, threads, 16, 1, stages, 1, quantise_mode::block>(
            x.data(), weight.data(), bias.data(), nullptr, nullptr, quantised.data(), scales.data(),
            length(bound, &held), x.stride(), quantised.stride(), scales.stride(), 1, epsilon);
      });
      emulator::launch({.grid = {blocks}, .block = {threads}, .shared_bytes = stages * columns * 2, .seed = seed}, [&] {
        kiln::layer_norm_bulk<bf16, threads, 8, 2, stages, 1, quantise_mode::none>(
            x.data(), weight.data(), nullptr, nullptr, y.data(), nullptr, nullptr, length(bound, &held), x.stride(),
            y.stride(), 0, 0, epsilon);
      });
      std::vector<double> right(columns);
      const auto normalise = [&](std::int64_t row) {
        double mean = 0, squares = 0;
        for (std::int64_t i = 0; i < columns; ++i) mean += x.value(row, i) / columns;
        for (std::int64_t i = 0; i < columns; ++i)
          squares += (x.value(row, i) - mean) * (x.value(row, i) - mean) / columns;
        for (std::int64_t i = 0; i < columns; ++i)
          right[static_cast<std::size_t>(i)] =
              (x.value(row, i) - mean) / std::sqrt(squares + epsilon) * weight.value(0, i);
      };
      CHECK(test::error_of(y, held, [&](std::int64_t row, std::int64_t i) {
              if (i == 0) normalise(row);
              return right[static_cast<std::size_t>(i)];
            }) < 2e-2);
      double largest = quantised.margins_untouched() && scales.margins_untouched() ? 0 : INFINITY;
      for (std::int64_t row = 0; row < held; ++row) {
        normalise(row);
        for (std::int64_t i = 0; i < columns; ++i)
          largest = std::max(largest, test::distance(quantised.value(row, i) * scales.value(row, i / 128),
                                                     right[static_cast<std::size_t>(i)] + bias.value(0, i)));
      }
      CHECK(largest < 0.15);  // half of the last place of e4m3 below 4
    }
  }
}

}  // namespace
