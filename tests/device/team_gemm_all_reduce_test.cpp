#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm_all_reduce/push_mma.cuh"
#include "gemm_all_reduce/push_wgmma.cuh"
#include "gemm_all_reduce/reference.cuh"
#include "operands.hpp"
#include "team_gemm.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;

struct Shape {
  int tile_m, tile_n, stages;
  int cluster_m = 1, cluster_n = 1, splits = 1;
  bool swap = false, pingpong = false;
};

/// Rank r has rows[r] rows of x, which are equal in right use. Padding of the workspaces is NaN.
struct Reduction {
  static constexpr std::int64_t n = 72, k = 136;
  static constexpr int row_words = n / 8, chunk_words = 64, pushers = 2;
  struct Rank {
    test::Matrix<bf16> x, w, y, product;
  };
  std::vector<int> rows, bounds;  // by rank; bounds: the rows that the host says, where `rows` are on the device
  std::int64_t most_rows;
  int most_chunks;
  test::Team team;
  std::vector<Rank> ranks;

  Reduction(std::vector<int> rows_of, std::int64_t most, std::vector<int> bound = {})
      : rows(std::move(rows_of)),
        bounds(bound.empty() ? rows : std::move(bound)),
        most_rows(most),
        most_chunks(static_cast<int>((most * row_words + chunk_words - 1) / chunk_words)),
        team(world(), static_cast<std::int64_t>(world()) * most_chunks * chunk_words * 16) {
    for (int rank = 0; rank < world(); ++rank) {
      const auto seed = static_cast<std::uint32_t>(rank) * 2 + 1;
      ranks.push_back({test::Matrix<bf16>::random(bound_of(rank), k, k, seed),
                       test::Matrix<bf16>::random(n, k, k, seed + 1), test::Matrix<bf16>(bound_of(rank), n, n),
                       test::Matrix<bf16>(most, n, n)});
      for (std::int64_t row = rows_of_rank(rank); row < bound_of(rank); ++row)
        for (std::int64_t i = 0; i < k; ++i) at(rank).x.at(row, i) = test::nan_of<bf16>();
    }
  }

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] std::int64_t rows_of_rank(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int bound_of(int rank) const { return bounds[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }

  kiln::axis_length length(int rank) {
    kiln::axis_length made = test::length(bound_of(rank));
    if (bounds != rows) made.on_device = &rows[static_cast<std::size_t>(rank)];
    return made;
  }

  template <int World>
  test::TeamPass exchange(std::uint32_t seed, unsigned resident) {
    return {{.grid = {4}, .block = {32}, .seed = seed},
            [this](int, int rank) {
              Rank& its = at(rank);
              kiln::all_reduce_push<bf16, World, 32>(reinterpret_cast<const uint4*>(its.product.data()),
                                                     reinterpret_cast<uint4*>(its.y.data()), length(rank), row_words,
                                                     static_cast<int>(most_rows), chunk_words, most_chunks, pushers,
                                                     team.workspace(), team.argument(rank));
            },
            resident};
  }

  template <int World, Shape shape>
  void run(std::uint32_t seed, int launches = 1, int absent = -1, unsigned resident = 0) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          shape.cluster_m, shape.cluster_n, shape.splits, shape.swap, shape.pingpong>;
    using Piece = kiln::gemm::Piece<Tiles>;
    struct Maps {
      kiln::tensor_map x, w, product;
    };
    std::vector<Maps> maps;
    for (int rank = 0; rank < world(); ++rank) {
      Rank& its = at(rank);
      const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(bound_of(rank)));
      maps.push_back({test::map_of(its.x, box, 64, 128), test::map_of(its.w, Tiles::W::box_rows, 64, 128),
                      test::map_of(its.product, Piece::rows, Piece::columns, Piece::columns * 2)});
    }
    const auto tiles =
        static_cast<unsigned>((most_rows + shape.tile_m - 1) / shape.tile_m * ((n + shape.tile_n - 1) / shape.tile_n));
    const test::TeamPass product = {
        {.grid = {shape.splits > 1 ? tiles * shape.splits : 2 * Tiles::cluster},
         .block = {Tiles::threads},
         .shared_bytes =
             kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> + kiln::gemm::Ring<Tiles>::barrier_bytes,
         .cluster = {Tiles::cluster},
         .seed = seed},
        [&](int, int rank) {
          const Maps& of = maps[static_cast<std::size_t>(rank)];
          gemm_all_reduce_wgmma<bf16, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m, shape.cluster_n,
                                shape.splits, shape.swap, shape.pingpong>(
              of.x, of.w, of.product, at(rank).product.data(), length(rank), n, k, 2);
        }};
    test::run_passes(team, {product, exchange<World>(seed, resident)}, launches, absent);
  }

  template <int World>
  void run_mma(std::uint32_t seed, int launches = 1) {
    const auto tiles = static_cast<unsigned>((most_rows + 31) / 32 * ((n + 63) / 64));
    const test::TeamPass product = {
        {.grid = {tiles}, .block = {128}, .shared_bytes = 3 * (32 + 64) * 32 * 2, .seed = seed}, [&](int, int rank) {
          Rank& its = at(rank);
          gemm_all_reduce_mma<bf16, 32, 64, 32, 4, 3>(its.x.data(), its.w.data(), its.product.data(), length(rank), n,
                                                      k, 2);
        }};
    test::run_passes(team, {product, exchange<World>(seed, 0)}, launches);
  }

  /// New random inputs, and NaN in outputs.
  void refill(std::uint32_t seed) {
    for (int rank = 0; rank < world(); ++rank) {
      const auto own = seed * 64 + static_cast<std::uint32_t>(rank) * 2;
      at(rank).x = test::Matrix<bf16>::random(bound_of(rank), k, k, own);
      at(rank).w = test::Matrix<bf16>::random(n, k, k, own + 1);
      at(rank).y = test::Matrix<bf16>(bound_of(rank), n, n);
      at(rank).product = test::Matrix<bf16>(most_rows, n, n);
    }
  }

  /// Sums of rounded products in the order of the ranks, products of f64: the largest distance of `rank`'s y. Infinite where anything else was
  /// written. What a rank has no row of counts as 0.
  double error(int rank) {
    Rank& its = at(rank);
    double largest = its.y.margins_untouched() && its.product.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < its.y.rows(); ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const double found = its.y.value(row, column);
        if (row >= rows_of_rank(rank)) {
          if (!std::isnan(found)) return INFINITY;
          continue;
        }
        float total = 0;
        for (int from = 0; from < world(); ++from) {
          if (row >= rows_of_rank(from)) continue;
          double sum = 0;
          for (std::int64_t i = 0; i < k; ++i) sum += at(from).x.value(row, i) * at(from).w.value(column, i);
          total += static_cast<float>(test::number_of(kiln::from_float<bf16>(static_cast<float>(sum))));
        }
        const double right = test::number_of(kiln::from_float<bf16>(total));
        largest = std::max(largest, test::distance(found, right));
      }
    }
    return largest;
  }
  /// Whether all ranks have the same bits.
  bool agree() {
    for (int rank = 1; rank < world(); ++rank)
      for (std::int64_t row = 0; row < rows_of_rank(0); ++row)
        for (std::int64_t column = 0; column < n; ++column)
          if (at(rank).y.value(row, column) != at(0).y.value(row, column)) return false;
    return true;
  }
  void check(int launches) {
    for (int rank = 0; rank < world(); ++rank) {
      CAPTURE(rank);
      CHECK(error(rank) == 0);
      CHECK(team.idle(rank, static_cast<unsigned>(launches)));
      CHECK(team.report(rank).state == Report::none);
    }
    CHECK(agree());
  }
};

TEST_CASE("gemm_all_reduce gives all ranks the sum of their products, launch after launch") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    Reduction two({70, 70}, 128);
    two.run<2, Shape{64, 64, 3}>(seed, 3);
    two.check(3);
    Reduction three({9, 9, 9}, 16);
    three.run<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(seed, 2);
    three.check(2);
  }
}

TEST_CASE("gemm_all_reduce takes one row, one past a tile, and as many as there may be") {
  for (const int rows : {1, 63, 64, 65, 128}) {
    CAPTURE(rows);
    Reduction of({rows, rows}, 128);
    of.run<2, Shape{64, 64, 3}>(3);
    of.check(1);
  }
  Reduction one({1, 1, 1}, 8);
  one.run<3, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .swap = true}>(1, 2);
  one.check(2);
}

TEST_CASE("gemm_all_reduce is right with clusters, ping-pong and k shared by a cluster") {
  Reduction pairs({130, 130}, 256);
  pairs.run<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(4);
  pairs.check(1);
  Reduction split({70, 70}, 128);
  split.run<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(5, 2);
  for (int rank = 0; rank < 2; ++rank) CHECK(split.error(rank) <= 1);  // its k is added up in another order
  CHECK(split.agree());
}

TEST_CASE("gemm_all_reduce takes new inputs in the same memory") {
  Reduction of({33, 33, 33}, 64);
  for (const std::uint32_t seed : {11u, 12u, 13u}) {
    of.refill(seed);
    of.run<3, Shape{64, 64, 3}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(of.error(rank) == 0);
  }
}

TEST_CASE("gemm_all_reduce goes by a length on the device, and what a rank has no row of counts as 0") {
  Reduction shorter({37, 37}, 128, {100, 100});
  shorter.run<2, Shape{64, 64, 3}>(1, 2);
  shorter.check(2);
  Reduction none({0, 0}, 64, {50, 50});
  none.run<2, Shape{64, 64, 3}>(2);
  none.check(1);
  Reduction unequal({9, 0, 16}, 16, {16, 16, 16});
  unequal.run<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(3);
  for (int rank = 0; rank < 3; ++rank) CHECK(unequal.error(rank) == 0);
}

TEST_CASE("gemm_all_reduce multiplies by mma.sync too, on eight ranks") {
  Reduction of({33, 33, 33}, 64);
  of.run_mma<3>(1, 2);
  of.check(2);
  Reduction eight(std::vector<int>(8, 5), 8);
  eight.run_mma<8>(2);
  eight.check(1);
}

TEST_CASE("gemm_all_reduce needs no two blocks of its exchange to run at once") {
  Reduction of({70, 70}, 128);
  of.run<2, Shape{64, 64, 3}>(6, 2, -1, 1);
  of.check(2);
}

TEST_CASE("gemm_all_reduce gives NaN where a product did not come, and tells whose") {
  Reduction of({70, 70, 70}, 128);
  of.team.timeout_ns = 100'000;
  for (int rank = 0; rank < 2; ++rank)
    for (std::int64_t row = 0; row < 70; ++row)
      for (std::int64_t column = 0; column < Reduction::n; ++column) of.at(rank).y.at(row, column) = bf16{};
  of.run<3, Shape{64, 64, 3}>(1, 1, 2);
  for (int rank = 0; rank < 2; ++rank) {
    int numbers = 0;
    for (std::int64_t row = 0; row < 70; ++row)
      for (std::int64_t column = 0; column < Reduction::n; ++column)
        numbers += std::isnan(of.at(rank).y.value(row, column)) ? 0 : 1;
    CHECK(numbers == 0);
    CHECK(of.at(rank).y.margins_untouched());
    CHECK(of.team.reports(rank, Report::timed_out, 2));
    CHECK(of.team.idle(rank, 1));
  }
}

TEST_CASE("gemm_all_reduce's reference adds up the products of all ranks' parts") {
  constexpr std::int64_t world = 3, rows = 5, n = 66, k = 24;
  auto x = test::Matrix<bf16>::random(world * rows, k, k, 1), w = test::Matrix<bf16>::random(world * n, k, k, 2);
  std::vector<float> y(rows * n, NAN);
  emulator::launch({.grid = {2, 1}, .block = {16, 16}},
                   [&] { kiln::gemm_all_reduce_reference(x.data(), w.data(), y.data(), rows, n, k, world); });
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      double sum = 0;
      for (std::int64_t rank = 0; rank < world; ++rank)
        for (std::int64_t i = 0; i < k; ++i) sum += x.value(rank * rows + row, i) * w.value(rank * n + column, i);
      CHECK(std::fabs(y[static_cast<std::size_t>(row * n + column)] - sum) <= 1e-5 * (1 + std::fabs(sum)));
    }
  }
}

}  // namespace
