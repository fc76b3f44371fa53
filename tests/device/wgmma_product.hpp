// Products by gemm_wgmma on the host, beside what is right.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm/wgmma.cuh"
#include "matrices.hpp"
#include "operands.hpp"

namespace wgmma_test {

using kiln::bf16;
using kiln::f16;
using kiln::tensor_map;
using kiln::gemm::Layout;
using test::map_of;
using test::stored;

/// What a kernel is compiled for, as the parameters of wgmma.toml say it.
struct Shape {
  int tile_m, tile_n, stages;
  int cluster_m = 1, cluster_n = 1, cluster_k = 1;
  bool swap = false, pingpong = false;
  int store = 0;
  bool tail = false;
};

struct Problem {
  std::int64_t m, n, k;
  std::int64_t length = -1;  // on the device, where it is not m
  unsigned clusters = 2;     // that take tiles in turns
  std::uint32_t seed = 0;
  int by_columns = 0;
};

template <typename T>
void poison_rows(test::Matrix<T>& of, std::int64_t first, bool along_k) {
  for (std::int64_t row = 0; row < of.rows(); ++row) {
    for (std::int64_t column = 0; column < of.columns(); ++column) {
      if ((along_k ? row : column) >= first) of.at(row, column) = test::nan_of<T>();
    }
  }
}

using kiln::gemm::Accumulate;
using kiln::gemm::Activation;
using kiln::gemm::Ending;
using kiln::gemm::Residual;
using kiln::gemm::Scaling;

template <typename Out, Scaling scaling = Scaling::none, Residual residual = Residual::none,
          Accumulate accumulate = Accumulate::no>
using Relu = Ending<Out, Activation::relu, residual, scaling, accumulate>;

/// What a product is of, and what follows it.
template <typename T, typename U, Layout layout, typename Config>
struct Operands {
  using Out = typename Config::out;
  static constexpr bool x_along_k = kiln::gemm::x_runs_along_k<layout>, w_along_k = kiln::gemm::w_runs_along_k<layout>;
  std::int64_t k, results;  // columns of y
  test::Matrix<T> x;
  test::Matrix<U> w;
  test::Matrix<Out> bias, residual, y;
  test::Matrix<float> x_scale, w_scale;  // of rows and columns, or of blocks of 128 of k as well

  Operands(std::int64_t m, std::int64_t n, std::int64_t depth, std::int64_t y_stride)
      : k(depth),
        results(n / Config::joined),
        x(stored<T>(m, k, x_along_k, 1)),
        w(stored<U>(n, k, w_along_k, 2)),
        bias(test::Matrix<Out>::random(1, n, n, 3)),
        residual(test::Matrix<Out>::random(m, results, y_stride, 4)),
        y(Config::accumulate == Accumulate::yes ? test::Matrix<Out>::random(m, results, y_stride, 5)
                                                : test::Matrix<Out>(m, results, y_stride)),
        x_scale(scales(m, 6)),
        w_scale(scales(Config::scaling == Scaling::block ? (n + 127) / 128 : n, 7)) {}

  /// Before rounding; y as it was before.
  double z(std::int64_t row, std::int64_t column) {
    double sum = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double product =
          (x_along_k ? x.value(row, i) : x.value(i, row)) * (w_along_k ? w.value(column, i) : w.value(i, column));
      const bool blocks = Config::scaling == Scaling::block;
      sum += blocks ? product * x_scale.value(row, i / 128) * w_scale.value(column / 128, i / 128) : product;
    }
    if (Config::scaling == Scaling::row) sum *= x_scale.value(row, 0) * w_scale.value(column, 0);
    return sum + bias.value(0, column);
  }
  double right(std::int64_t row, std::int64_t column) {
    double value = 0;
    if constexpr (Config::activation == Activation::swiglu) {
      const double gate = z(row, column * 2);
      value = gate / (1 + std::exp(-gate)) * z(row, column * 2 + 1);
    } else {
      value = std::max(z(row, column), 0.0);
    }
    if (Config::residual == Residual::add) value += residual.value(row, column);
    if (Config::accumulate == Accumulate::yes) value += y.value(row, column);
    return kiln::to_double(kiln::from_float<Out>(static_cast<float>(value)));
  }

 private:
  [[nodiscard]] test::Matrix<float> scales(std::int64_t count, std::uint32_t seed) const {
    const std::int64_t columns = Config::scaling == Scaling::block ? (k + 127) / 128 : 1;
    test::Matrix<float> made(count, columns, columns + 1);
    for (std::int64_t i = 0; i < count * columns; ++i)
      made.at(i / columns, i % columns) = static_cast<float>(1 << (i * seed + seed) % 3);
    return made;
  }
};

struct Multiplied {
  bool nothing_else;  // was written beside partial sums, and all flags are lowered again
  emulator::Account account;
};

/// y by gemm_wgmma.
template <typename T, typename U, typename Config, Layout layout, Shape shape>
Multiplied multiply(Operands<T, U, layout, Config>& of, const Problem& problem, const kiln::axis_length& rows) {
  using Out = typename Config::out;
  using Tiles = kiln::gemm::WgmmaTiling<T, U, layout, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m,
                                        shape.cluster_n, shape.cluster_k, shape.swap, shape.pingpong>;
  using Piece = kiln::gemm::Piece<Tiles>;
  const std::int64_t m = problem.m, n = problem.n;
  const tensor_map x_map = map_of(of.x, Tiles::X::rows_of_box(rows.bound), 128 / sizeof(T), 128);
  const tensor_map w_map = map_of(of.w, Tiles::W::box_rows, 128 / sizeof(U), 128);
  const tensor_map y_map = shape.store == 0 && sizeof(Out) == 2
                               ? map_of(of.y, Piece::rows, Piece::columns, Piece::columns * sizeof(Out))
                               : x_map;
  constexpr std::int64_t tile = shape.tile_m * shape.tile_n;
  const std::int64_t slots = shape.tail ? problem.clusters * Tiles::cluster : 0;
  test::Matrix<float> partial(slots, tile, tile);
  std::vector<unsigned> raised(static_cast<std::size_t>(slots * 4), 0);
  const auto tiles =
      static_cast<unsigned>((m + shape.tile_m - 1) / shape.tile_m * ((n + shape.tile_n - 1) / shape.tile_n));
  const auto account = emulator::launch(
      {.grid = {(shape.cluster_k > 1 ? tiles : problem.clusters) * Tiles::cluster},
       .block = {Tiles::threads},
       .shared_bytes = kiln::gemm::Ring<Tiles>::bytes + Tiles::consumers * Piece::staging_bytes +
                       kiln::gemm::Ring<Tiles>::barrier_bytes,
       .cluster = {Tiles::cluster},
       .seed = problem.seed},
      [&] {
        gemm_wgmma<T, U, layout, Config, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m, shape.cluster_n,
                   shape.cluster_k, shape.swap, shape.pingpong, shape.store, shape.tail>(
            x_map, w_map, y_map, of.y.data(), of.bias.data(), of.residual.data(), of.x_scale.data(), of.w_scale.data(),
            nullptr, partial.data(), raised.data(), rows, n, problem.k, of.y.stride(), of.residual.stride(),
            of.x_scale.stride(), of.w_scale.stride(), 1, 1, 1.0f, 2, problem.by_columns);
      });
  const bool lowered = std::ranges::all_of(raised, [](unsigned flag) { return flag == 0; });
  return {of.y.margins_untouched() && partial.margins_untouched() && lowered, account};
}

/// The largest distance of y from what is right. Infinite if anything else was written. x holds NaN past the length.
template <typename T, typename U, typename Config, Layout layout, Shape shape>
double error_of(const Problem& problem) {
  const std::int64_t m = problem.m, n = problem.n, length = problem.length < 0 ? m : problem.length;
  const int held = static_cast<int>(length);
  const kiln::axis_length rows{problem.length < 0 ? nullptr : &held, nullptr, static_cast<int>(m), 0};
  Operands<T, U, layout, Config> of(m, n, problem.k, shape.store == 1 ? n + 1 : (n + 15) / 8 * 8);
  poison_rows(of.x, length, of.x_along_k);
  std::vector<double> right;
  for (std::int64_t i = 0; i < length * of.results; ++i) right.push_back(of.right(i / of.results, i % of.results));
  std::vector<double> before;
  for (std::int64_t i = length * of.results; i < m * of.results; ++i)
    before.push_back(of.y.value(i / of.results, i % of.results));

  double largest = multiply<T, U, Config, layout, shape>(of, problem, rows).nothing_else ? 0 : INFINITY;
  for (std::int64_t i = 0; i < m * of.results; ++i) {
    const double found = of.y.value(i / of.results, i % of.results);
    if (i < length * of.results) {
      largest = std::max(largest, test::distance(found, right[static_cast<std::size_t>(i)]));
    } else {
      const double was = before[static_cast<std::size_t>(i - length * of.results)];
      if (found != was && !(std::isnan(found) && std::isnan(was))) largest = INFINITY;
    }
  }
  return largest;
}

/// Of a box of x or w, most rows outside of it.
template <Layout layout, Shape shape, typename T = bf16>
std::uint32_t rows_outside(const Problem& problem) {
  Operands<T, T, layout, Relu<T>> of(problem.m, problem.n, problem.k, (problem.n + 15) / 8 * 8);
  return multiply<T, T, Relu<T>, layout, shape>(of, problem, {nullptr, nullptr, static_cast<int>(problem.m), 0})
      .account.most_rows_outside;
}

/// The same type throughout.
template <Layout layout, Shape shape, typename T = bf16>
double error_in(const Problem& problem) {
  return error_of<T, T, Relu<T>, layout, shape>(problem);
}

template <Scaling scaling, Shape shape>
double error_in_8_bits(const Problem& problem) {
  return error_of<kiln::e4m3, kiln::e5m2, Relu<bf16, scaling>, Layout::nt, shape>(problem);
}

}  // namespace wgmma_test
