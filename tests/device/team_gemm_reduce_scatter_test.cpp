#include <doctest/doctest.h>

#include <algorithm>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "gemm_reduce_scatter/fused.cuh"
#include "gemm_reduce_scatter/push_mma.cuh"
#include "gemm_reduce_scatter/push_wgmma.cuh"
#include "operands.hpp"
#include "team_gemm.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;

struct Shape {
  int tile_m, tile_n, stages;
  int cluster_m = 1, cluster_n = 1;
  bool swap = false, pingpong = false;
};

/// Rank r has rows[r] rows of y. x of each rank has parts for all, `stride` rows apart. `wide`: columns of y's whole tiles.
struct Scatter {
  static constexpr std::int64_t k = 136;
  static constexpr int chunk_rows = 24;
  struct Rank {
    test::Matrix<bf16> x, w, y, products;
  };
  std::vector<int> rows;
  std::int64_t stride, most_rows, n;
  test::Team team;
  std::vector<Rank> ranks;
  bool counted = true;    // the launches are given the rows of all ranks
  std::vector<int> told;  // these, where they are not `rows`

  Scatter(std::vector<int> rows_of_all, std::int64_t part_stride, std::int64_t most, std::int64_t columns = 72,
          std::int64_t wide = 192)
      : rows(std::move(rows_of_all)),
        stride(part_stride),
        most_rows(most),
        n(columns),
        team(world(), static_cast<std::int64_t>(rows.size()) * most * wide * 2) {
    for (int rank = 0; rank < world(); ++rank) {
      const auto seed = static_cast<std::uint32_t>(rank) * 2 + 1;
      ranks.push_back({test::Matrix<bf16>::random(world() * stride, k, k, seed),
                       test::Matrix<bf16>::random(n, k, k, seed + 1), test::Matrix<bf16>(rows_of(rank), n, n),
                       test::Matrix<bf16>(world() * most, n, n)});
      for (std::int64_t row = 0; row < world() * stride; ++row) {  // between parts: NaN
        for (std::int64_t i = 0; i < k && row % stride >= rows_of(static_cast<int>(row / stride)); ++i)
          at(rank).x.at(row, i) = test::nan_of<bf16>();
      }
    }
  }

  [[nodiscard]] int world() const { return static_cast<int>(rows.size()); }
  [[nodiscard]] std::int64_t rows_of(int rank) const { return rows[static_cast<std::size_t>(rank)]; }
  Rank& at(int rank) { return ranks[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const int* counts() const { return !counted ? nullptr : told.empty() ? rows.data() : told.data(); }

  template <int World>
  test::TeamPass exchange(std::uint32_t seed) {
    return {{.grid = {4}, .block = {32}, .seed = seed}, [this](int, int rank) {
              Rank& its = at(rank);
              gemm_reduce_scatter_exchange<bf16, World, 32>(
                  reinterpret_cast<const uint4*>(its.products.data()), reinterpret_cast<uint4*>(its.y.data()), counts(),
                  test::length(rows_of(rank)), stride, static_cast<int>(n / 8), static_cast<int>(most_rows), chunk_rows,
                  team.workspace(), team.argument(rank));
            }};
  }

  template <int World, Shape shape>
  void run(std::uint32_t seed, int launches = 1, int absent = -1) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          shape.cluster_m, shape.cluster_n, 1, shape.swap, shape.pingpong, true>;
    using Piece = kiln::gemm::Piece<Tiles>;
    struct Maps {
      kiln::tensor_map x, w, products;
    };
    std::vector<Maps> maps;
    for (Rank& its : ranks) {
      const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(static_cast<int>(most_rows)));
      maps.push_back({test::map_of_planes(its.x, World, box, 64, 128), test::map_of(its.w, Tiles::W::box_rows, 64, 128),
                      test::map_of_planes(its.products, World, Piece::rows, Piece::columns, Piece::columns * 2)});
    }
    const test::TeamPass product = {
        {.grid = {2 * Tiles::cluster},
         .block = {Tiles::threads},
         .shared_bytes =
             kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> + kiln::gemm::Ring<Tiles>::barrier_bytes,
         .cluster = {Tiles::cluster},
         .seed = seed},
        [&](int, int rank) {
          const Maps& of = maps[static_cast<std::size_t>(rank)];
          gemm_reduce_scatter_wgmma<bf16, World, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m,
                                    shape.cluster_n, shape.swap, shape.pingpong>(
              of.x, of.w, of.products, at(rank).products.data(), counts(), test::length(rows_of(rank)), n, k, stride,
              rank, static_cast<int>(most_rows), 2);
        }};
    test::run_passes(team, {product, exchange<World>(seed)}, launches, absent);
  }

  template <int World, Shape shape>
  void run_fused(std::uint32_t seed, int launches = 1, int absent = -1, int at_once = 1) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          shape.cluster_m, shape.cluster_n, 1, false, false, true>;
    struct Maps {
      kiln::tensor_map x, w, y;
    };
    std::vector<Maps> maps;
    for (Rank& its : ranks) {
      const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(static_cast<int>(most_rows)));
      maps.push_back({test::map_of_planes(its.x, World, box, 64, 128), test::map_of(its.w, Tiles::W::box_rows, 64, 128),
                      its.y.rows() == 0 ? kiln::tensor_map{} : test::map_of_planes(its.y, 1, 64, 64, 128)});
    }
    const test::TeamPass all = {{.grid = {2 * Tiles::cluster},
                                 .block = {Tiles::threads},
                                 .shared_bytes = kiln::team::GatherLayout<Tiles>::pieces,
                                 .cluster = {Tiles::cluster},
                                 .seed = seed},
                                [&](int, int rank) {
                                  const Maps& of = maps[static_cast<std::size_t>(rank)];
                                  gemm_reduce_scatter_fused<bf16, World, shape.tile_m, shape.tile_n, shape.stages,
                                                            shape.cluster_m, shape.cluster_n>(
                                      of.x, of.w, of.y, at(rank).y.data(), counts(), test::length(rows_of(rank)), n, k,
                                      stride, static_cast<int>(most_rows), 128, 1, team.workspace(),
                                      team.argument(rank));
                                },
                                0,
                                at_once};
    for (Rank& its : ranks) std::fill_n(its.y.data(), its.y.rows() * its.y.stride(), test::nan_of<bf16>());
    test::run_passes(team, {all}, launches, absent);
  }

  template <int World>
  void run_mma(std::uint32_t seed) {
    const auto tiles = static_cast<unsigned>((most_rows + 31) / 32 * ((n + 63) / 64));
    const test::TeamPass product = {
        {.grid = {tiles, World}, .block = {128}, .shared_bytes = 3 * (32 + 64) * 32 * 2, .seed = seed},
        [&](int, int rank) {
          Rank& its = at(rank);
          gemm_reduce_scatter_mma<bf16, 32, 64, 32, 4, 3>(its.x.data(), its.w.data(), its.products.data(), counts(),
                                                          test::length(rows_of(rank)), n, k, stride, rank,
                                                          static_cast<int>(most_rows), 2);
        }};
    test::run_passes(team, {product, exchange<World>(seed)}, 1);
  }

  /// Sums of rounded products, in the order of the ranks: the largest distance of `rank`'s y. Infinite where anything else was written.
  /// `fused`: its own product comes first, and is not rounded.
  double error(int rank, bool fused = false) {
    Rank& its = at(rank);
    double largest = its.y.margins_untouched() ? 0 : INFINITY;
    for (std::int64_t row = 0; row < its.y.rows(); ++row) {
      for (std::int64_t column = 0; column < n; ++column) {
        const auto product = [&](Rank& from) {
          double sum = 0;
          for (std::int64_t i = 0; i < k; ++i) sum += from.x.value(rank * stride + row, i) * from.w.value(column, i);
          return static_cast<float>(sum);
        };
        float total = fused ? product(its) : 0;
        for (Rank& from : ranks) {
          const bool sent = &from == &its || told.empty() || row < told[static_cast<std::size_t>(rank)];
          if (sent && (!fused || &from != &its))
            total += static_cast<float>(test::number_of(kiln::from_float<bf16>(product(from))));
        }
        const double right = test::number_of(kiln::from_float<bf16>(total));
        largest = std::max(largest, test::distance(its.y.value(row, column), right));
      }
    }
    return largest;
  }
};

TEST_CASE("gemm_reduce_scatter adds the products of all ranks, whose numbers of rows may differ") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    Scatter two({70, 100}, 110, 128);
    two.run<2, Shape{64, 64, 3}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(two.error(rank) == 0);
      CHECK(two.team.idle(rank, 2));
    }
    Scatter three({9, 0, 16}, 16, 16);
    three.run<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(three.error(rank) == 0);
  }
  Scatter equal({130, 130}, 130, 256);
  equal.counted = false;
  equal.run<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(4);
  for (int rank = 0; rank < 2; ++rank) CHECK(equal.error(rank) == 0);
}

TEST_CASE("gemm_reduce_scatter adds tiles as they arrive, launch after launch") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    Scatter two({70, 130}, 140, 256);
    two.run_fused<2, Shape{64, 64, 3}>(seed, 3);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(two.error(rank, true) == 0);
      CHECK(two.team.idle(rank, 3));
    }
    Scatter three({9, 0, 130}, 130, 256);
    three.run_fused<3, Shape{128, 64, 3}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(three.error(rank, true) == 0);
  }
  Scatter equal({130, 130}, 130, 256);
  equal.counted = false;
  equal.run_fused<2, Shape{128, 128, 2}>(4);
  for (int rank = 0; rank < 2; ++rank) CHECK(equal.error(rank, true) == 0);
  for (const std::uint32_t seed : {0u, 5u}) {  // a tile of another rank takes two stages of the ring
    Scatter wide({130, 260}, 260, 512);
    wide.run_fused<2, Shape{128, 192, 3}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) CHECK(wide.error(rank, true) == 0);
  }
}

/// Clusters of two along m, and along n.
template <int World, Shape along_m>
void check_clusters(Scatter& of, std::uint32_t seed, int launches) {
  constexpr Shape along_n = {along_m.tile_m, along_m.tile_n, along_m.stages, 1, 2};
  of.run_fused<World, along_m>(seed, launches);
  for (int rank = 0; rank < World; ++rank) {
    CHECK(of.error(rank, true) == 0);
    CHECK(of.team.idle(rank, static_cast<unsigned>(launches)));
  }
  of.run_fused<World, along_n>(seed, launches);
  for (int rank = 0; rank < World; ++rank) {
    CHECK(of.error(rank, true) == 0);
    CHECK(of.team.idle(rank, static_cast<unsigned>(2 * launches)));
  }
}

TEST_CASE(
    "gemm_reduce_scatter adds tiles as they arrive at clusters of two, which may reach past the last row or column") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    Scatter three_columns({70, 130}, 140, 256, 136, 192);  // 2 and 3 rows of tiles
    check_clusters<2, Shape{64, 64, 3, 2}>(three_columns, seed, 2);
    Scatter some_without({9, 0, 130}, 130, 256, 72, 128);
    check_clusters<3, Shape{128, 64, 3, 2}>(some_without, seed, 2);
  }
  Scatter equal({130, 130}, 130, 256, 72, 128);  // one column of tiles
  equal.counted = false;
  check_clusters<2, Shape{128, 128, 2, 2}>(equal, 4, 2);
  Scatter wide({130, 260}, 260, 512);  // a tile of another rank takes two stages of the ring
  check_clusters<2, Shape{128, 192, 3, 2}>(wide, 5, 1);
  Scatter told({130, 70}, 130, 256);
  told.told = {66, 0};
  check_clusters<2, Shape{128, 64, 3, 2}>(told, 1, 1);
}

TEST_CASE("what a rank does not send counts as 0 in gemm_reduce_scatter") {
  for (const bool fused : {false, true}) {
    CAPTURE(fused);
    Scatter of({130, 70}, 130, 256);
    of.told = {66, 0};
    if (fused) {
      of.run_fused<2, Shape{128, 64, 3}>(1);
    } else {
      of.run<2, Shape{64, 64, 3}>(1);
    }
    for (int rank = 0; rank < 2; ++rank) CHECK(of.error(rank, fused) == 0);
  }
}

TEST_CASE("gemm_reduce_scatter adds the products of all ranks by mma.sync too") {
  Scatter of({33, 0, 64}, 70, 64);
  of.run_mma<3>(1);
  for (int rank = 0; rank < 3; ++rank) CHECK(of.error(rank) == 0);
}

TEST_CASE("gemm_reduce_scatter serves again after two launches at once and a reset") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Scatter of({70, 128}, 128, 128);
    of.team.timeout_ns = 100'000;
    of.run_fused<2, Shape{64, 64, 3}>(seed, 1, -1, 2);
    const Report& report = of.team.report(0);
    CHECK((report.state == Report::two_launches || report.peer_state == Report::two_launches));
    for (int rank = 0; rank < 2; ++rank)  // as where the two launches have other numbers of rows
      of.team.control(rank).pushed[0][0] = of.team.control(rank).pushed[1][0] = 1;
    of.team.reset();
    of.run_fused<2, Shape{64, 64, 3}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(of.error(rank, true) == 0);
      CHECK(of.team.idle(rank, 2));
    }
  }
}

template <Shape shape>
void check_clusters_without_a_rank() {
  Scatter clusters({70, 40, 128}, 128, 128);
  clusters.team.timeout_ns = 100'000;
  clusters.run_fused<3, shape>(1, 1, 1);
  for (const int rank : {0, 2}) {
    for (std::int64_t row = 0; row < clusters.rows_of(rank); ++row)
      CHECK(std::isnan(clusters.at(rank).y.value(row, 0)));
    CHECK(clusters.at(rank).y.margins_untouched());
    CHECK(clusters.team.reports(rank, Report::timed_out, 1));
    CHECK(clusters.team.idle(rank, 1));
  }
}

TEST_CASE("gemm_reduce_scatter gives NaN where a product did not come") {
  Scatter of({70, 128}, 128, 128);
  of.team.timeout_ns = 100'000;
  of.run<2, Shape{64, 64, 3}>(1, 1, 1);
  for (std::int64_t row = 0; row < 70; ++row) CHECK(std::isnan(of.at(0).y.value(row, 0)));
  CHECK(of.at(0).y.margins_untouched());
  CHECK(of.team.report(0).state == Report::timed_out);
  CHECK(of.team.idle(0, 1));

  Scatter fused({70, 128}, 128, 128);
  fused.team.timeout_ns = 100'000;
  fused.run_fused<2, Shape{64, 64, 3}>(1, 1, 1);
  for (std::int64_t row = 0; row < 70; ++row) CHECK(std::isnan(fused.at(0).y.value(row, 0)));
  CHECK(fused.at(0).y.margins_untouched());
  CHECK(fused.team.report(0).state == Report::timed_out);
  CHECK(fused.team.idle(0, 1));

  check_clusters_without_a_rank<Shape{64, 64, 3, 2}>();
  check_clusters_without_a_rank<Shape{64, 64, 3, 1, 2}>();
}

}  // namespace
