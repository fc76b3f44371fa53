#include <doctest/doctest.h>

#include "emulator/launch.hpp"
#include "matrices.hpp"
#include "rms_norm/block_row.cuh"
#include "rms_norm/shared_row.cuh"
#include "softmax/block_row.cuh"
#include "softmax/cluster_row.cuh"

namespace {

using kiln::bf16;

kiln::axis_length length(std::int64_t bound, const int* on_device = nullptr) {
  return {on_device, nullptr, static_cast<int>(bound), 0};
}

/// The largest distance of y's rows from x / rms(x) * weight.
double norm_error(test::Matrix<bf16>& x, test::Matrix<bf16>& weight, test::Matrix<bf16>& y, std::int64_t rows) {
  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (std::int64_t i = 0; i < x.columns(); ++i) squares += x.value(row, i) * x.value(row, i);
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.columns()) + 1e-6);
    for (std::int64_t i = 0; i < x.columns(); ++i)
      largest = std::max(largest, test::distance(y.value(row, i), x.value(row, i) * scale * weight.value(0, i)));
  }
  return largest;
}

TEST_CASE("rms_norm's block_row normalises rows of any length and phase, up to a length on the device") {
  const int held = 3;
  for (const std::int64_t columns : {512, 509, 301}) {
    for (const std::uint32_t seed : {0u, 1u, 2u}) {
      CAPTURE(columns);
      CAPTURE(seed);
      auto x = test::Matrix<bf16>::random(5, columns, columns + 3, 1),
           weight = test::Matrix<bf16>::random(1, columns, columns, 2);
      test::Matrix<bf16> y(5, columns, columns + 1);
      emulator::launch({.grid = {5}, .block = {64}, .seed = seed}, [&] {
        kiln::rms_norm_block_row<bf16, 64, 8, 1, kiln::residual_mode::none, kiln::quantise_mode::none>(
            x.data(), nullptr, weight.data(), nullptr, nullptr, y.data(), nullptr, nullptr, length(5, &held), columns,
            x.stride(), 0, 0, y.stride(), 0, 0, 1e-6f);
      });
      CHECK(norm_error(x, weight, y, held) < 2e-2);
      CHECK(std::isnan(y.value(held, 0)));
    }
  }
}

TEST_CASE("rms_norm's shared_row keeps rows in shared memory, copied there asynchronously") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    auto x = test::Matrix<bf16>::random(2, 2045, 2048, 1), weight = test::Matrix<bf16>::random(1, 2045, 2045, 2);
    test::Matrix<bf16> y(2, 2045, 2048);
    emulator::launch({.grid = {2}, .block = {64}, .shared_bytes = 16 * 320, .seed = seed}, [&] {
      kiln::rms_norm_shared_row<bf16, 64>(x.data(), weight.data(), y.data(), length(2), 2045, x.stride(), y.stride(),
                                          1e-6f);
    });
    CHECK(norm_error(x, weight, y, 2) < 2e-2);
  }
}

/// The largest distance of y's rows from the softmax of `scale` times the first columns of x: all, or those that row may see.
double softmax_error(test::Matrix<bf16>& x, test::Matrix<bf16>& y, float scale, bool causal) {
  double largest = y.margins_untouched() ? 0 : INFINITY;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    const std::int64_t seen = causal ? std::max<std::int64_t>(0, row + 1 + x.columns() - x.rows()) : x.columns();
    double sum = 0;
    for (std::int64_t i = 0; i < seen; ++i) sum += std::exp(scale * x.value(row, i));
    for (std::int64_t i = 0; i < x.columns(); ++i)
      largest =
          std::max(largest, test::distance(y.value(row, i), i < seen ? std::exp(scale * x.value(row, i)) / sum : 0));
  }
  return largest;
}

TEST_CASE("softmax's block_row takes rows of odd lengths, whole and causal") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    auto x = test::Matrix<bf16>::random(7, 461, 463, 1);
    test::Matrix<bf16> y(7, 461, 465), causal(7, 461, 465);
    const auto run = [&]<kiln::Mask mask>(test::Matrix<bf16>& to) {
      emulator::launch({.grid = {7}, .block = {64}, .seed = seed}, [&] {
        kiln::softmax_block_row<bf16, 64, 8, 1, mask>(x.data(), nullptr, nullptr, to.data(), length(7), length(461),
                                                      x.stride(), to.stride(), 0, 1, 7, 0.5f);
      });
    };
    run.operator()<kiln::Mask::none>(y);
    run.operator()<kiln::Mask::causal>(causal);
    CHECK(softmax_error(x, y, 0.5f, false) < 1e-3);
    CHECK(softmax_error(x, causal, 0.5f, true) < 1e-3);
  }
}

TEST_CASE("softmax's cluster_row agrees across the blocks of a cluster") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    auto x = test::Matrix<bf16>::random(3, 3001, 3008, 1);
    test::Matrix<bf16> y(3, 3001, 3008);
    emulator::launch({.grid = {12}, .block = {64}, .shared_bytes = 16 * 64 * 2, .cluster = {4}, .seed = seed}, [&] {
      kiln::softmax_cluster_row<bf16, 4, 64, 2, 1, kiln::Mask::causal>(x.data(), y.data(), length(3), length(3001),
                                                                       x.stride(), y.stride(), 3, 0.5f);
    });
    CHECK(softmax_error(x, y, 0.5f, true) < 1e-3);
  }
}

}  // namespace
