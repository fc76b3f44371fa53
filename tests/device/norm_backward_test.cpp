#include <doctest/doctest.h>

#include "kernels.hpp"
#include "layer_norm_backward/bulk.cuh"
#include "layer_norm_backward/persistent.cuh"
#include "rms_norm_backward/bulk.cuh"
#include "rms_norm_backward/persistent.cuh"
#include "rms_norm_backward/split.cuh"

namespace {

using kiln::bf16;
using kiln::residual_mode;
using test::length;

constexpr float epsilon = 1e-6f;
constexpr std::int64_t rows = 11;

/// Rows of a length on the device, short of their bound; gradients in double.
struct Gradients {
  bool layer;
  std::int64_t columns = 179;
  int held = 9;
  test::Matrix<bf16> x = test::Matrix<bf16>::random(rows, columns, columns / 8 * 8 + 8, 1),
                     dy = test::Matrix<bf16>::random(rows, columns, columns / 8 * 8 + 16, 2);
  test::Matrix<bf16> weight = test::Matrix<bf16>::random(1, columns, columns, 3),
                     d_sum = test::Matrix<bf16>::random(rows, columns, columns / 8 * 8 + 8, 4);
  test::Matrix<bf16> dx{rows, columns, columns / 8 * 8 + 8}, dweight{1, columns, columns}, dbias{1, columns, columns};

  [[nodiscard]] kiln::norm_gradients<bf16> tensors(bool with_residual) {
    return {x.data(),
            x.stride(),
            weight.data(),
            dy.data(),
            dy.stride(),
            with_residual ? d_sum.data() : nullptr,
            with_residual ? d_sum.stride() : 0,
            dx.data(),
            dx.stride()};
  }
  [[nodiscard]] double count() const { return static_cast<double>(columns); }
  struct Statistics {
    double mean = 0, scale = 0, g = 0, projected = 0;
  };
  Statistics statistics_of(std::int64_t row) {
    Statistics is;
    double squares = 0;
    for (std::int64_t i = 0; layer && i < columns; ++i) is.mean += x.value(row, i) / count();
    for (std::int64_t i = 0; i < columns; ++i)
      squares += (x.value(row, i) - is.mean) * (x.value(row, i) - is.mean) / count();
    is.scale = 1 / std::sqrt(squares + epsilon);
    for (std::int64_t i = 0; i < columns; ++i) {
      const double g = dy.value(row, i) * weight.value(0, i);
      is.g += layer ? g / count() : 0;
      is.projected += g * (x.value(row, i) - is.mean) * is.scale / count();
    }
    return is;
  }

  double dx_error(bool with_residual) {
    Statistics is;
    return test::error_of(dx, held, [&](std::int64_t row, std::int64_t i) {
      if (i == 0) is = statistics_of(row);
      const double normed = (x.value(row, i) - is.mean) * is.scale;
      return is.scale * (dy.value(row, i) * weight.value(0, i) - is.g - normed * is.projected) +
             (with_residual ? d_sum.value(row, i) : 0);
    });
  }
  double dweight_error() {
    std::vector<double> sums(static_cast<std::size_t>(columns));
    for (std::int64_t row = 0; row < held; ++row) {
      const Statistics is = statistics_of(row);
      for (std::int64_t i = 0; i < columns; ++i)
        sums[static_cast<std::size_t>(i)] += dy.value(row, i) * (x.value(row, i) - is.mean) * is.scale;
    }
    return test::error_of(dweight, 1, [&](std::int64_t, std::int64_t i) { return sums[static_cast<std::size_t>(i)]; });
  }
  double dbias_error() {
    return test::error_of(dbias, 1, [&](std::int64_t, std::int64_t i) {
      double sum = 0;
      for (std::int64_t row = 0; row < held; ++row) sum += dy.value(row, i);
      return sum;
    });
  }
};

constexpr std::int64_t columns = 179;
constexpr unsigned sum_blocks = (columns + 31) / 32;

TEST_CASE("rms_norm_backward's persistent blocks take rows in turn, some blocks none, and their sums are added up") {
  constexpr unsigned lanes = 32, threads = 64, stages = 2, blocks = 6;
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    Gradients of{.layer = false};
    test::Matrix<float> partial(blocks, columns, 184);
    emulator::launch(
        {.grid = {blocks}, .block = {threads}, .shared_bytes = (3 * stages + 1) * threads * 16, .seed = seed}, [&] {
          kiln::norm_backward_persistent<kiln::norm_kind::rms, bf16, threads, lanes, 1, stages, 1, false,
                                         residual_mode::add>(of.tensors(true), partial.data(), length(rows, &of.held),
                                                             columns, epsilon);
        });
    emulator::launch({.grid = {sum_blocks}, .block = {64}, .seed = seed}, [&] {
      kiln::norm_backward_sum<bf16, 64, threads / lanes>(partial.data(), of.dweight.data(), of.dweight.data(),
                                                         length(rows, &of.held), columns, blocks);
    });
    CHECK(of.dx_error(true) < 2e-2);
    CHECK(of.dweight_error() < 2e-2);
  }
}

TEST_CASE("layer_norm_backward's persistent blocks share a row among a whole block") {
  constexpr unsigned threads = 64, stages = 3, blocks = 2;
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    Gradients of{.layer = true};
    test::Matrix<float> partial(2 * blocks, columns, 184);
    emulator::launch(
        {.grid = {blocks}, .block = {threads}, .shared_bytes = (2 * stages + 1) * threads * 16, .seed = seed}, [&] {
          kiln::norm_backward_persistent<kiln::norm_kind::layer, bf16, threads, threads, 1, stages, 1, false,
                                         residual_mode::none>(of.tensors(false), partial.data(), length(rows, &of.held),
                                                              columns, epsilon);
        });
    emulator::launch({.grid = {sum_blocks, 2}, .block = {64}, .seed = seed}, [&] {
      kiln::norm_backward_sum<bf16, 64, 1>(partial.data(), of.dweight.data(), of.dbias.data(), length(rows, &of.held),
                                           columns, blocks);
    });
    CHECK(of.dx_error(false) < 2e-2);
    CHECK(of.dweight_error() < 2e-2);
    CHECK(of.dbias_error() < 2e-2);
  }
}

TEST_CASE(
    "the bulk blocks of both norms' backward take rows that are copied whole, fewer than may be under way among them") {
  constexpr unsigned threads = 64, stages = 3, width = 2 * threads * 8;
  for (const unsigned blocks : {2u, 4u, 12u}) {
    for (const std::uint32_t seed : test::seeds) {
      CAPTURE(blocks);
      CAPTURE(seed);
      Gradients rms{.layer = false, .columns = width}, layer{.layer = true, .columns = width};
      test::Matrix<float> partial(2 * blocks, width, width);
      emulator::launch(
          {.grid = {blocks}, .block = {threads}, .shared_bytes = 3 * stages * width * 2, .seed = seed}, [&] {
            kiln::norm_backward_bulk<kiln::norm_kind::rms, bf16, threads, 2, stages, 1, residual_mode::add>(
                rms.tensors(true), partial.data(), length(rows, &rms.held), width, epsilon);
          });
      emulator::launch({.grid = {width / 32}, .block = {64}, .seed = seed}, [&] {
        kiln::norm_backward_sum<bf16, 64, 1>(partial.data(), rms.dweight.data(), rms.dweight.data(),
                                             length(rows, &rms.held), width, blocks);
      });
      CHECK(rms.dx_error(true) < 2e-2);
      CHECK(rms.dweight_error() < 2e-2);

      emulator::launch(
          {.grid = {blocks}, .block = {threads}, .shared_bytes = 2 * stages * width * 2, .seed = seed}, [&] {
            kiln::norm_backward_bulk<kiln::norm_kind::layer, bf16, threads, 2, stages, 1, residual_mode::none>(
                layer.tensors(false), partial.data(), length(rows, &layer.held), width, epsilon);
          });
      emulator::launch({.grid = {width / 32, 2}, .block = {64}, .seed = seed}, [&] {
        kiln::norm_backward_sum<bf16, 64, 1>(partial.data(), layer.dweight.data(), layer.dbias.data(),
                                             length(rows, &layer.held), width, blocks);
      });
      CHECK(layer.dx_error(false) < 2e-2);
      CHECK(layer.dweight_error() < 2e-2);
      CHECK(layer.dbias_error() < 2e-2);
    }
  }
}

TEST_CASE("rms_norm_backward splits rows from columns") {
  constexpr unsigned splits = 4;
  for (const std::uint32_t seed : test::seeds) {
    CAPTURE(seed);
    Gradients of{.layer = false};
    test::Matrix<float> partial(splits, columns, 184);
    std::vector<float2> statistics(rows);
    emulator::launch({.grid = {rows}, .block = {64}, .seed = seed}, [&] {
      kiln::norm_backward_row<kiln::norm_kind::rms, bf16, 64, 2, residual_mode::none>(
          of.tensors(false), statistics.data(), length(rows, &of.held), columns, epsilon);
    });
    emulator::launch({.grid = {(columns + 127) / 128, splits}, .block = {128}, .seed = seed}, [&] {
      kiln::norm_backward_columns<kiln::norm_kind::rms, bf16>({of.x.data(), {of.x.stride()}},
                                                              {of.dy.data(), {of.dy.stride()}}, statistics.data(),
                                                              partial.data(), length(rows, &of.held), columns);
    });
    emulator::launch({.grid = {sum_blocks}, .block = {64}, .seed = seed}, [&] {
      kiln::norm_backward_sum<bf16, 64, 1>(partial.data(), of.dweight.data(), of.dweight.data(), length(rows, &of.held),
                                           columns, splits);
    });
    CHECK(of.dx_error(false) < 2e-2);
    CHECK(of.dweight_error() < 2e-2);
  }
}

}  // namespace
