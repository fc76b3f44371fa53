#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm/wgmma.cuh"
#include "matrices.hpp"
#include "operands.hpp"

namespace {

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
  int splits = 1;
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

/// y by gemm_wgmma, and gemm_reduce where the shape has splits or gemm_wgmma_tail where it has a tail. Whether nothing
/// was written beside partial sums.
template <typename T, typename U, typename Config, Layout layout, Shape shape>
bool multiply(Operands<T, U, layout, Config>& of, const Problem& problem, const kiln::axis_length& rows) {
  using Out = typename Config::out;
  using Tiles = kiln::gemm::WgmmaTiling<T, U, layout, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m,
                                        shape.cluster_n, shape.cluster_k, shape.swap, shape.pingpong>;
  using Piece = kiln::gemm::Piece<Tiles>;
  const std::int64_t m = problem.m, n = problem.n;
  const tensor_map x_map = map_of(of.x, Tiles::X::box_rows, 128 / sizeof(T), 128);
  const tensor_map w_map = map_of(of.w, Tiles::W::box_rows, 128 / sizeof(U), 128);
  const tensor_map y_map = shape.store == 0 && sizeof(Out) == 2
                               ? map_of(of.y, Piece::rows, Piece::columns, Piece::columns * sizeof(Out))
                               : x_map;
  constexpr std::int64_t tile = shape.tile_m * shape.tile_n;
  test::Matrix<float> partial = shape.tail ? test::Matrix<float>(2 * problem.clusters * Tiles::cluster, tile, tile)
                                           : test::Matrix<float>(shape.splits * m, (n + 7) / 8 * 8, (n + 7) / 8 * 8);
  const auto tiles =
      static_cast<unsigned>((m + shape.tile_m - 1) / shape.tile_m * ((n + shape.tile_n - 1) / shape.tile_n));
  emulator::launch(
      {.grid = {(shape.cluster_k > 1 ? tiles : problem.clusters) * Tiles::cluster},
       .block = {Tiles::threads},
       .shared_bytes = kiln::gemm::Ring<Tiles>::bytes + Tiles::consumers * Piece::staging_bytes +
                       kiln::gemm::Ring<Tiles>::barrier_bytes,
       .cluster = {Tiles::cluster},
       .seed = problem.seed},
      [&] {
        gemm_wgmma<T, U, layout, Config, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m, shape.cluster_n,
                   shape.cluster_k, shape.swap, shape.pingpong, shape.store, (shape.splits > 1), shape.tail>(
            x_map, w_map, y_map, of.y.data(), of.bias.data(), of.residual.data(), of.x_scale.data(), of.w_scale.data(),
            nullptr, partial.data(), rows, n, problem.k, of.y.stride(), of.residual.stride(), of.x_scale.stride(),
            of.w_scale.stride(), 1, 1, 1.0f, 2, problem.by_columns, shape.splits);
      });
  if (shape.splits > 1) {
    const auto threads = static_cast<unsigned>(m * ((n + 3) / 4));
    emulator::launch({.grid = {(threads + 127) / 128}, .block = {128}, .seed = problem.seed}, [&] {
      gemm_reduce<Config>(partial.data(), of.y.data(), of.bias.data(), of.residual.data(), of.x_scale.data(),
                          of.w_scale.data(), nullptr, rows, n, of.y.stride(), of.residual.stride(), of.x_scale.stride(),
                          of.w_scale.stride(), 1.0f, shape.splits);
    });
  }
  if constexpr (shape.tail) {
    constexpr int alignment = shape.store == 0 ? 16 / sizeof(Out) : shape.store;
    emulator::launch({.grid = {5}, .block = {128}, .seed = problem.seed}, [&] {
      gemm_wgmma_tail<T, Config, shape.tile_m, shape.tile_n, shape.cluster_m, shape.cluster_n, shape.swap, alignment>(
          partial.data(), of.y.data(), of.bias.data(), of.residual.data(), of.x_scale.data(), of.w_scale.data(),
          nullptr, rows, n, problem.k, of.y.stride(), of.residual.stride(), of.x_scale.stride(), of.w_scale.stride(),
          1.0f, 2, problem.by_columns, static_cast<int>(problem.clusters));
    });
  }
  return of.y.margins_untouched() && partial.margins_untouched();
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

  double largest = multiply<T, U, Config, layout, shape>(of, problem, rows) ? 0 : INFINITY;
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

/// The same type throughout.
template <Layout layout, Shape shape, typename T = bf16>
double error_in(const Problem& problem) {
  return error_of<T, T, Relu<T>, layout, shape>(problem);
}

TEST_CASE("gemm_wgmma multiplies matrices that fill no whole tiles, whatever order threads and copies run in") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{128, 64, 3}>({.m = 200, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{64, 96, 4}, f16>({.m = 70, .n = 203, .k = 65, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::nt, Shape{256, 32, 2}>({.m = 300, .n = 40, .k = 7, .clusters = 1}) == 0);
}

TEST_CASE("gemm_wgmma takes operands in which m and n run along memory") {
  CHECK(error_in<Layout::nn, Shape{64, 128, 3}>({.m = 67, .n = 200, .k = 130, .seed = 1}) == 0);
  CHECK(error_in<Layout::tn, Shape{128, 64, 3}>({.m = 200, .n = 100, .k = 130, .seed = 2}) == 0);
  CHECK(error_in<Layout::tt, Shape{128, 96, 3}, f16>({.m = 130, .n = 100, .k = 130, .seed = 3}) == 0);
}

TEST_CASE("gemm_wgmma's consumers take tiles in turns") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .pingpong = true}>(
              {.m = 200, .n = 150, .k = 328, .seed = seed}) == 0);
  }
  // A tile for one of the two, and for none.
  CHECK(error_in<Layout::nt, Shape{.tile_m = 128, .tile_n = 64, .stages = 2, .pingpong = true}>(
            {.m = 100, .n = 60, .k = 200, .clusters = 2, .seed = 4}) == 0);
}

TEST_CASE("the blocks of gemm_wgmma's clusters load for each other, along m and along n") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2}>(
              {.m = 200, .n = 150, .k = 200, .seed = seed}) == 0);
    CHECK(error_in<Layout::tn, Shape{.tile_m = 128, .tile_n = 64, .stages = 2, .cluster_n = 2}>(
              {.m = 200, .n = 150, .k = 200, .seed = seed, .by_columns = 1}) == 0);
  }
  CHECK(error_in<Layout::nn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(
            {.m = 330, .n = 150, .k = 200, .seed = 5}) == 0);
  // Four of them; the last rows' cluster has one block with rows.
  CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 32, .stages = 3, .cluster_m = 4}>(
            {.m = 270, .n = 50, .k = 200, .seed = 6}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 32, .tile_n = 64, .stages = 3, .cluster_n = 4, .swap = true}>(
            {.m = 30, .n = 500, .k = 200, .seed = 7}) == 0);
}

TEST_CASE("three of gemm_wgmma's consumers share a tile of 192") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{192, 64, 3}>({.m = 250, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 32, .tile_n = 192, .stages = 3, .swap = true}>(
              {.m = 29, .n = 330, .k = 130, .seed = seed}) == 0);
  }
  // Wider than what one instruction takes beside three others' registers.
  CHECK(error_in<Layout::nt, Shape{192, 256, 2}>({.m = 193, .n = 300, .k = 130, .clusters = 1, .seed = 3}) == 0);
  CHECK(error_in<Layout::nt, Shape{192, 208, 2}, f16>({.m = 191, .n = 230, .k = 70, .clusters = 1, .seed = 4}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 192, .tile_n = 64, .stages = 3, .cluster_n = 2}>(
            {.m = 250, .n = 250, .k = 200, .seed = 5}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 192, .tile_n = 64, .stages = 3, .tail = true}>(
            {.m = 260, .n = 100, .k = 1600, .clusters = 3, .seed = 6}) == 0);
  using Added = Relu<float, Scaling::none, Residual::add, Accumulate::yes>;
  CHECK(error_of<bf16, bf16, Added, Layout::nt, Shape{.tile_m = 192, .tile_n = 64, .stages = 2, .store = 4}>(
            {.m = 200, .n = 101, .k = 72, .length = 197, .seed = 7}) == 0);
}

TEST_CASE("gemm_wgmma gives few rows to the side of wgmma that may be short") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 8, .tile_n = 64, .stages = 4, .swap = true}>(
              {.m = 5, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nn, Shape{.tile_m = 16, .tile_n = 128, .stages = 4, .swap = true}, f16>(
              {.m = 19, .n = 150, .k = 130, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .swap = true}>(
            {.m = 61, .n = 150, .k = 130, .seed = 3}) == 0);
  CHECK(error_in<Layout::tt, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .swap = true, .pingpong = true}>(
            {.m = 150, .n = 150, .k = 130, .seed = 4}) == 0);
}

TEST_CASE("gemm_wgmma's rows on the other side of wgmma may be any multiple of 16, and its columns too") {
  for (const std::uint32_t seed : {0u, 1u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 144, .tile_n = 128, .stages = 3, .swap = true}>(
              {.m = 129, .n = 150, .k = 200, .seed = seed}) == 0);
    CHECK(error_in<Layout::nn, Shape{.tile_m = 80, .tile_n = 64, .stages = 4, .swap = true}, f16>(
              {.m = 157, .n = 75, .k = 130, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 112, .tile_n = 64, .stages = 3, .cluster_k = 2, .swap = true}>(
              {.m = 101, .n = 72, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 144, .stages = 3}>(
              {.m = 70, .n = 200, .k = 130, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::nt, Shape{.tile_m = 96, .tile_n = 128, .stages = 2, .cluster_n = 2, .swap = true}>(
            {.m = 100, .n = 300, .k = 130, .seed = 2}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 176, .tile_n = 64, .stages = 2, .cluster_m = 2, .swap = true}>(
            {.m = 333, .n = 70, .k = 130, .seed = 3}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 160, .tile_n = 256, .stages = 2, .swap = true}>(
            {.m = 150, .n = 260, .k = 70, .seed = 4}) == 0);
  CHECK(error_of<kiln::e4m3, kiln::e4m3, Relu<bf16, Scaling::block>, Layout::nt,
                 Shape{.tile_m = 144, .tile_n = 128, .stages = 2, .swap = true}>(
            {.m = 140, .n = 200, .k = 272, .seed = 5}) == 0);
  CHECK(error_of<bf16, bf16, Relu<float>, Layout::nt,
                 Shape{.tile_m = 80, .tile_n = 64, .stages = 2, .swap = true, .store = 4}>(
            {.m = 75, .n = 68, .k = 130, .seed = 6}) == 0);
}

TEST_CASE("gemm_wgmma shares k among the blocks of a cluster, or of the grid") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 16, .tile_n = 128, .stages = 4, .cluster_k = 4, .swap = true}>(
              {.m = 13, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 4, .cluster_k = 2}>(
              {.m = 70, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nn, Shape{.tile_m = 64, .tile_n = 128, .stages = 3, .cluster_k = 2}, f16>(
              {.m = 70, .n = 264, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 96, .stages = 4, .splits = 3}>(
              {.m = 70, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 8, .tile_n = 64, .stages = 4, .swap = true, .splits = 2}>(
              {.m = 3, .n = 150, .k = 328, .seed = seed}) == 0);
  }
}

TEST_CASE("gemm_wgmma stores no row past a length on the device") {
  for (const std::int64_t length : {0, 1, 64, 100, 130}) {
    CAPTURE(length);
    CHECK(error_in<Layout::nt, Shape{128, 64, 3}>({.m = 200, .n = 75, .k = 72, .length = length, .seed = 1}) == 0);
    CHECK(error_in<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(
              {.m = 200, .n = 75, .k = 72, .length = length, .seed = 2}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .swap = true, .store = 1}>(
              {.m = 200, .n = 75, .k = 72, .length = length, .seed = 3}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 32, .tile_n = 64, .stages = 3, .swap = true}>(
              {.m = 200, .n = 75, .k = 72, .length = length, .seed = 4}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_k = 2}>(
              {.m = 200, .n = 75, .k = 136, .length = length, .seed = 5}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(
              {.m = 200, .n = 75, .k = 136, .length = length, .seed = 6}) == 0);
  }
}

TEST_CASE("gemm_wgmma's consumers keep step with each other where rows end before some of their products") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    // A consumer without rows; one with rows for one product of two, and of three; a tile of a cluster without rows.
    CHECK(error_in<Layout::nt, Shape{128, 64, 3}>({.m = 129, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::tn, Shape{256, 64, 2}>({.m = 300, .n = 75, .k = 200, .clusters = 1, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 192, .tile_n = 64, .stages = 3, .pingpong = true}>(
              {.m = 250, .n = 150, .k = 200, .seed = seed}) == 0);
    CHECK(error_in<Layout::nn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(
              {.m = 130, .n = 150, .k = 200, .seed = seed}) == 0);
  }
}

TEST_CASE("gemm_wgmma stores what TMA cannot") {
  CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 96, .stages = 3, .store = 1}>(
            {.m = 70, .n = 101, .k = 72, .seed = 1}) == 0);
  CHECK(error_of<bf16, bf16, Relu<float>, Layout::nt, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .store = 8}>(
            {.m = 130, .n = 101, .k = 72, .seed = 2}) == 0);
  using SwiGlu = Ending<bf16, Activation::swiglu, Residual::none, Scaling::none, Accumulate::no>;
  CHECK(error_of<bf16, bf16, SwiGlu, Layout::nt, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .store = 8}>(
            {.m = 130, .n = 102, .k = 72, .seed = 3}) < 0.13);
}

TEST_CASE("gemm_wgmma adds a residual and what y holds, of rows before the length") {
  using Added = Relu<bf16, Scaling::none, Residual::add, Accumulate::yes>;
  CHECK(error_of<bf16, bf16, Added, Layout::nt, Shape{64, 64, 3}>(
            {.m = 130, .n = 101, .k = 72, .length = 77, .seed = 1}) == 0);
  CHECK(error_of<bf16, bf16, Added, Layout::nt, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(
            {.m = 20, .n = 101, .k = 72, .length = 19, .seed = 2}) == 0);
  // Where registers do not hold all that is added to a piece at once.
  CHECK(error_of<bf16, bf16, Added, Layout::nt, Shape{.tile_m = 192, .tile_n = 128, .stages = 2, .pingpong = true}>(
            {.m = 200, .n = 101, .k = 72, .length = 197, .seed = 4}) == 0);
  using Scaled = Relu<bf16, Scaling::row, Residual::add, Accumulate::yes>;
  CHECK(error_of<kiln::e4m3, kiln::e5m2, Scaled, Layout::nt, Shape{64, 64, 3}>(
            {.m = 70, .n = 101, .k = 144, .seed = 5}) == 0);
  CHECK(error_of<bf16, bf16, Added, Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_k = 2}>(
            {.m = 70, .n = 101, .k = 136, .length = 65, .seed = 3}) == 0);
}

template <Scaling scaling, Shape shape>
double error_in_8_bits(const Problem& problem) {
  return error_of<kiln::e4m3, kiln::e5m2, Relu<bf16, scaling>, Layout::nt, shape>(problem);
}

TEST_CASE("gemm_wgmma multiplies 8-bit floats, each 128 of k summed afresh and scaled") {
  const Problem tall = {.m = 130, .n = 140, .k = 400, .seed = 1}, flat = {.m = 13, .n = 140, .k = 400, .seed = 2};
  CHECK(error_in_8_bits<Scaling::none, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::row, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{128, 64, 3}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{256, 128, 2}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 64, .tile_n = 256, .stages = 2}>(tall) == 0);
  CHECK(error_in_8_bits<Scaling::row, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(flat) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 16, .tile_n = 128, .stages = 3, .cluster_k = 2, .swap = true}>(
            flat) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .swap = true, .splits = 2}>(
            flat) == 0);
}

template <Scaling scaling, Shape shape>
double largest_error_over_stages() {
  double largest = 0;
  for (const std::int64_t k : {100, 256, 300, 512, 600})  // one to five stages
    largest = std::max(largest, error_in_8_bits<scaling, shape>(
                                    {.m = 70, .n = 140, .k = k, .clusters = 1, .seed = static_cast<std::uint32_t>(k)}));
  return largest;
}

TEST_CASE("gemm_wgmma adds a sum of 8-bit products while the next ones are under way, be the stages even or odd") {
  CHECK(largest_error_over_stages<Scaling::block, Shape{64, 64, 3}>() == 0);  // a product for a stage
  CHECK(largest_error_over_stages<Scaling::block, Shape{128, 128, 2}>() == 0);
  CHECK(largest_error_over_stages<Scaling::row, Shape{128, 160, 2}>() == 0);    // two, by halves
  CHECK(largest_error_over_stages<Scaling::row, Shape{256, 64, 2}>() == 0);     // two, of 64 rows
  CHECK(largest_error_over_stages<Scaling::block, Shape{192, 128, 2}>() == 0);  // no room for a second
  CHECK(largest_error_over_stages<Scaling::none, Shape{256, 128, 2}>() == 0);
  // A consumer without rows.
  CHECK(error_in_8_bits<Scaling::row, Shape{128, 64, 3}>({.m = 60, .n = 70, .k = 300, .seed = 1}) == 0);
}

// Of bf16, equal parts have 8 stages of 64 at least, and 16 are saved.
constexpr Shape tailed = {.tile_m = 64, .tile_n = 64, .stages = 3, .tail = true};
constexpr Shape tailed_pingpong = {.tile_m = 64, .tile_n = 64, .stages = 3, .pingpong = true, .tail = true};
constexpr Shape tailed_pairs = {.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .tail = true};

TEST_CASE("gemm_wgmma shares the stages of an unfilled last round's tiles") {
  for (const std::uint32_t seed : {0u, 1u}) {
    CAPTURE(seed);
    // 6 tiles of 25 stages: all of a round of 20, in 3 parts each; the sixth in 3; a whole round; 2 rounds, of which the second
    // is not worth it.
    for (const unsigned clusters : {20u, 5u, 6u, 4u}) {
      CAPTURE(clusters);
      CHECK(error_in<Layout::nt, tailed>({.m = 130, .n = 100, .k = 1580, .clusters = clusters, .seed = seed}) == 0);
    }
    CHECK(error_in<Layout::nt, tailed_pingpong>({.m = 130, .n = 140, .k = 1600, .clusters = 4, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, tailed_pairs>(
              {.m = 330, .n = 100, .k = 1600, .clusters = 5, .seed = seed, .by_columns = 1}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 16, .tile_n = 128, .stages = 4, .swap = true, .tail = true}>(
              {.m = 19, .n = 300, .k = 1600, .clusters = 5, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::nt, tailed>({.m = 130, .n = 100, .k = 1000, .clusters = 20}) == 0);  // too few stages
  // 3 tiles of 49 stages for 5 clusters, of which one helps with two tiles and one with the third; 8 for 11, by 3.
  CHECK(error_in<Layout::nt, tailed>({.m = 130, .n = 30, .k = 3100, .clusters = 5, .seed = 7}) == 0);
  CHECK(error_in<Layout::nt, tailed_pingpong>({.m = 130, .n = 30, .k = 3100, .clusters = 5, .seed = 8}) == 0);
  CHECK(error_in<Layout::nt, tailed_pairs>({.m = 300, .n = 30, .k = 3100, .clusters = 5, .seed = 9}) == 0);
  CHECK(error_in<Layout::nt, tailed_pingpong>({.m = 60, .n = 500, .k = 4200, .clusters = 11, .seed = 10}) == 0);
  CHECK(error_in<Layout::tn,
                 Shape{.tile_m = 192, .tile_n = 64, .stages = 2, .cluster_n = 2, .pingpong = true, .tail = true}>(
            {.m = 200, .n = 260, .k = 1560, .clusters = 5, .seed = 3}) == 0);
  CHECK(error_in<Layout::nn, Shape{.tile_m = 256, .tile_n = 64, .stages = 2, .tail = true}, f16>(
            {.m = 300, .n = 100, .k = 1560, .clusters = 3, .seed = 4}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 96, .stages = 3, .tail = true}>(
            {.m = 70, .n = 203, .k = 1560, .clusters = 5, .seed = 5}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 112, .stages = 3, .tail = true}>(
            {.m = 70, .n = 203, .k = 1560, .clusters = 11, .seed = 5}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 80, .tile_n = 128, .stages = 3, .swap = true, .tail = true}>(
            {.m = 90, .n = 203, .k = 1560, .clusters = 11, .seed = 5}) == 0);
  CHECK(error_in<Layout::tt, Shape{.tile_m = 64, .tile_n = 128, .stages = 3, .swap = true, .tail = true}>(
            {.m = 70, .n = 203, .k = 1560, .clusters = 9, .seed = 6}) == 0);
}

TEST_CASE("what gemm_wgmma shares goes by the length on the device") {
  for (const std::int64_t length : {0, 1, 64, 65, 128, 129, 200, 260}) {
    CAPTURE(length);
    CHECK(error_in<Layout::nt, tailed>({.m = 260, .n = 75, .k = 1600, .length = length, .clusters = 7, .seed = 1}) ==
          0);
    CHECK(error_in<Layout::nt, tailed_pairs>(
              {.m = 260, .n = 75, .k = 1600, .length = length, .clusters = 5, .seed = 2}) == 0);
  }
}

TEST_CASE("what follows a product follows one in parts") {
  using Added = Relu<bf16, Scaling::none, Residual::add, Accumulate::yes>;
  using SwiGlu = Ending<bf16, Activation::swiglu, Residual::none, Scaling::none, Accumulate::no>;
  const Problem problem = {.m = 130, .n = 102, .k = 1600, .length = 129, .clusters = 5, .seed = 1};
  CHECK(error_of<bf16, bf16, Added, Layout::nt, tailed>(problem) == 0);
  CHECK(error_of<bf16, bf16, Relu<bf16>, Layout::nt,
                 Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .store = 1, .tail = true}>(problem) == 0);
  CHECK(error_of<bf16, bf16, Relu<float>, Layout::nt,
                 Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .store = 4, .tail = true}>(problem) == 0);
  CHECK(error_of<bf16, bf16, SwiGlu, Layout::nt,
                 Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .store = 8, .tail = true}>(problem) < 0.5);

  const Problem in_8_bits = {.m = 130, .n = 140, .k = 2050, .length = 129, .clusters = 7, .seed = 1};
  CHECK(error_in_8_bits<Scaling::row, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .tail = true}>(in_8_bits) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .tail = true}>(in_8_bits) == 0);
}

TEST_CASE("parts of k are added in their order, whatever order blocks run in") {
  using Exact = Ending<float, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  constexpr Shape shape = {.tile_m = 64, .tile_n = 64, .stages = 3, .store = 4, .tail = true};
  std::vector<double> first;
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    const Problem problem = {.m = 70, .n = 70, .k = 2048, .clusters = 16, .seed = seed};
    Operands<bf16, bf16, Layout::nt, Exact> of(problem.m, problem.n, problem.k, 76);
    for (std::int64_t i = 0; i < problem.k; ++i)  // products whose sums are rounded
      of.x.at(69, i) = kiln::from_float<bf16>(std::sin(static_cast<float>(i)) * static_cast<float>(1 << i % 15));
    CHECK(multiply<bf16, bf16, Exact, Layout::nt, shape>(of, problem, {nullptr, nullptr, 70, 0}));
    std::vector<double> row;
    for (std::int64_t i = 0; i < problem.n; ++i) row.push_back(of.y.value(69, i));
    if (first.empty()) first = row;
    CHECK(row == first);
  }
}

}  // namespace
