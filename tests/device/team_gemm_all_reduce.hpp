// Products that all ranks add up, over one address space.
#pragma once

#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm_all_reduce/fused.cuh"
#include "gemm_all_reduce/push_mma.cuh"
#include "gemm_all_reduce/push_wgmma.cuh"
#include "operands.hpp"
#include "team_gemm.hpp"

namespace test {

/// Rank r has rows[r] rows of x, which are equal in right use. Padding of the workspaces is NaN.
struct Reduction {
  using bf16 = kiln::bf16;
  struct Shape {
    int tile_m, tile_n, stages;
    int cluster_m = 1, cluster_n = 1, splits = 1;
    bool swap = false, pingpong = false;
  };
  static constexpr std::int64_t n = 72;
  static constexpr int row_words = n / 8, chunk_words = 64, pushers = 2;
  struct Rank {
    Matrix<bf16> x, w, y, product;
  };
  std::vector<int> rows, bounds;  // by rank; bounds: the rows that the host says, where `rows` are on the device
  std::int64_t most_rows, k;
  int most_chunks;
  Team team;
  std::vector<Rank> ranks;

  Reduction(std::vector<int> rows_of, std::int64_t most, std::vector<int> bound = {}, std::int64_t depth = 136)
      : rows(std::move(rows_of)),
        bounds(bound.empty() ? rows : std::move(bound)),
        most_rows(most),
        k(depth),
        most_chunks(static_cast<int>((most * row_words + chunk_words - 1) / chunk_words)),
        team(world(), world() * ((most + 127) / 128 * 128) * 256 * 2) {  // whole tiles
    for (int rank = 0; rank < world(); ++rank) {
      const auto seed = static_cast<std::uint32_t>(rank) * 2 + 1;
      ranks.push_back({Matrix<bf16>::random(bound_of(rank), k, k, seed), Matrix<bf16>::random(n, k, k, seed + 1),
                       Matrix<bf16>(bound_of(rank), n, n), Matrix<bf16>(most, n, n)});
      for (std::int64_t row = rows_of_rank(rank); row < bound_of(rank); ++row)
        for (std::int64_t i = 0; i < k; ++i) at(rank).x.at(row, i) = nan_of<bf16>();
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
  TeamPass exchange(std::uint32_t seed, unsigned resident, int exchanges = 1) {
    if (exchanges == 2)
      return {{.grid = {4}, .block = {32}, .seed = seed},
              [this](int, int rank) {
                Rank& its = at(rank);
                kiln::all_reduce_two_shot<bf16, World, 32>(reinterpret_cast<const uint4*>(its.product.data()),
                                                           reinterpret_cast<uint4*>(its.y.data()), length(rank),
                                                           row_words, chunk_words, (most_chunks + World - 1) / World, 4,
                                                           team.workspace(), team.argument(rank));
              },
              resident};
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
      maps.push_back({map_of(its.x, box, 64, 128), map_of(its.w, Tiles::W::box_rows, 64, 128),
                      map_of(its.product, Piece::rows, Piece::columns, Piece::columns * 2)});
    }
    const auto tiles =
        static_cast<unsigned>((most_rows + shape.tile_m - 1) / shape.tile_m * ((n + shape.tile_n - 1) / shape.tile_n));
    const TeamPass product = {{.grid = {shape.splits > 1 ? tiles * shape.splits : 2 * Tiles::cluster},
                               .block = {Tiles::threads},
                               .shared_bytes = kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> +
                                               kiln::gemm::Ring<Tiles>::barrier_bytes,
                               .cluster = {Tiles::cluster},
                               .seed = seed},
                              [&](int, int rank) {
                                const Maps& of = maps[static_cast<std::size_t>(rank)];
                                gemm_all_reduce_wgmma<bf16, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m,
                                                      shape.cluster_n, shape.splits, shape.swap, shape.pingpong>(
                                    of.x, of.w, of.product, at(rank).product.data(), length(rank), n, k, 2);
                              }};
    run_passes(team, {product, exchange<World>(seed, resident)}, launches, absent);
  }

  /// `resident`: clusters of a rank that run at once, if not all.
  template <int World, Shape shape, bool packets = false>
  void run_fused(std::uint32_t seed, int launches = 1, int absent = -1, unsigned resident = 0, int at_once = 1) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          1, 1, shape.splits, shape.swap, false>;
    struct Maps {
      kiln::tensor_map x, w;
    };
    std::vector<Maps> maps;
    for (int rank = 0; rank < world(); ++rank) {
      const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(bound_of(rank)));
      maps.push_back({map_of(at(rank).x, box, 64, 128), map_of(at(rank).w, shape.tile_n, 64, 128)});
    }
    const int tiles_m = static_cast<int>((most_rows + shape.tile_m - 1) / shape.tile_m);
    const int tiles = tiles_m * static_cast<int>((n + shape.tile_n - 1) / shape.tile_n);
    REQUIRE(world() * tiles * shape.tile_m * shape.tile_n * 2 <= team.argument(0).half_bytes);
    const TeamPass all = {{.grid = {static_cast<unsigned>(tiles * shape.splits)},
                           .block = {Tiles::threads},
                           .shared_bytes = kiln::team::ReduceLayout<Tiles>::bytes,
                           .cluster = {shape.splits},
                           .seed = seed},
                          [&](int, int rank) {
                            const Maps& of = maps[static_cast<std::size_t>(rank)];
                            gemm_all_reduce_fused<bf16, World, shape.tile_m, shape.tile_n, shape.stages,
                                                  packets ? -shape.splits : shape.splits, shape.swap>(
                                of.x, of.w, at(rank).y.data(), length(rank), n, k, tiles_m, team.workspace(),
                                team.argument(rank));
                          },
                          resident,
                          at_once};
    run_passes(team, {all}, launches, absent);
  }

  template <int World>
  void run_mma(std::uint32_t seed, int launches = 1, int exchanges = 1) {
    const auto tiles = static_cast<unsigned>((most_rows + 31) / 32 * ((n + 63) / 64));
    const TeamPass product = {{.grid = {tiles}, .block = {128}, .shared_bytes = 3 * (32 + 64) * 32 * 2, .seed = seed},
                              [&](int, int rank) {
                                Rank& its = at(rank);
                                gemm_all_reduce_mma<bf16, 32, 64, 32, 4, 3>(its.x.data(), its.w.data(),
                                                                            its.product.data(), length(rank), n, k, 2);
                              }};
    run_passes(team, {product, exchange<World>(seed, 0, exchanges)}, launches);
  }

  /// New random inputs, and NaN in outputs.
  void refill(std::uint32_t seed) {
    for (int rank = 0; rank < world(); ++rank) {
      const auto own = seed * 64 + static_cast<std::uint32_t>(rank) * 2;
      at(rank).x = Matrix<bf16>::random(bound_of(rank), k, k, own);
      at(rank).w = Matrix<bf16>::random(n, k, k, own + 1);
      at(rank).y = Matrix<bf16>(bound_of(rank), n, n);
      at(rank).product = Matrix<bf16>(most_rows, n, n);
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
          total += static_cast<float>(number_of(kiln::from_float<bf16>(static_cast<float>(sum))));
        }
        const double right = number_of(kiln::from_float<bf16>(total));
        largest = std::max(largest, distance(found, right));
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
      CHECK(team.report(rank).state == kiln::team::Report::none);
    }
    CHECK(agree());
  }
};

}  // namespace test
