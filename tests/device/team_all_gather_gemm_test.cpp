#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "all_gather_gemm/fused.cuh"
#include "all_gather_gemm/push_mma.cuh"
#include "all_gather_gemm/push_wgmma.cuh"
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

constexpr std::int64_t columns = 72, depth = 136;
constexpr int chunk_rows = 24;

struct Gather : test::GatheredProducts<bf16> {
  Gather(const std::vector<int>& rows, std::int64_t stride, std::int64_t most)
      : GatheredProducts(rows, columns, depth, stride, most,
                         static_cast<std::int64_t>(rows.size()) * most * depth * 2) {}

  static constexpr int row_words = depth / 8;
  bool keeps = true;  // gathered rows

  template <int World>
  test::TeamPass gather(std::uint32_t seed) {
    return {{.grid = {4}, .block = {32}, .seed = seed}, [this](int, int rank) {
              Rank& its = at(rank);
              all_gather_gemm_gather<World, 32>(reinterpret_cast<const uint4*>(its.x.data()),
                                                reinterpret_cast<uint4*>(keeps ? its.gathered.data() : nullptr),
                                                reinterpret_cast<uint4*>(its.parts.data()), its.counts.data(),
                                                test::length(rows_of(rank)), rank_stride, row_words,
                                                static_cast<int>(most_rows), chunk_rows, team.workspace(),
                                                team.argument(rank));
            }};
  }

  template <int World, Shape shape>
  void run(std::uint32_t seed, int launches = 1, int absent = -1) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          shape.cluster_m, shape.cluster_n, 1, shape.swap, shape.pingpong, true>;
    using Piece = kiln::gemm::Piece<Tiles>;
    struct Maps {
      kiln::tensor_map gathered, parts, w, y;
    };
    std::vector<Maps> maps;
    const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(static_cast<int>(most_rows)));
    for (Rank& its : ranks) {
      maps.push_back({test::map_of_planes(its.gathered, World, box, 64, 128),
                      test::map_of_planes(its.parts, World, box, 64, 128),
                      test::map_of(its.w, Tiles::W::box_rows, 64, 128),
                      test::map_of_planes(its.y, World, Piece::rows, Piece::columns, Piece::columns * 2)});
    }
    const test::TeamPass product = {
        {.grid = {2 * Tiles::cluster},
         .block = {Tiles::threads},
         .shared_bytes =
             kiln::gemm::Ring<Tiles>::bytes + kiln::gemm::staging_bytes<Tiles> + kiln::gemm::Ring<Tiles>::barrier_bytes,
         .cluster = {Tiles::cluster},
         .seed = seed},
        [&](int, int rank) {
          Rank& its = at(rank);
          const Maps& of = maps[static_cast<std::size_t>(rank)];
          all_gather_gemm_wgmma<bf16, World, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m, shape.cluster_n,
                                shape.swap, shape.pingpong>(
              of.gathered, of.parts, of.w, of.y, keeps ? its.gathered.data() : nullptr, its.y.data(), its.counts.data(),
              test::length(rows_of(rank)), n, k, rank_stride, rank, static_cast<int>(most_rows), 2);
        }};
    test::run_passes(team, {gather<World>(seed), product}, launches, absent);
  }

  /// A kernel that multiplies while rows arrive, of so many clusters of which `resident` run at once. `moved`: pieces that are pushed as one, or
  /// below 0 warps move rows, and push them in one of so many blocks.
  template <int World, Shape shape, int moved = 0>
  void run_fused(std::uint32_t seed, int launches = 1, int absent = -1, unsigned clusters = 2, unsigned resident = 0,
                 int at_once = 1) {
    using Tiles = kiln::gemm::WgmmaTiling<bf16, bf16, kiln::gemm::Layout::nt, shape.tile_m, shape.tile_n, shape.stages,
                                          shape.cluster_m, shape.cluster_n, 1, shape.swap, shape.pingpong, true>;
    using Piece = kiln::gemm::Piece<Tiles>;
    constexpr int piece_bytes = 1024;
    struct Maps {
      kiln::tensor_map x, halves[2], w, y;
    };
    std::vector<Maps> maps;
    const auto box = static_cast<std::uint32_t>(Tiles::X::rows_of_box(static_cast<int>(most_rows)));
    for (int rank = 0; rank < World; ++rank) {
      Rank& its = at(rank);
      const auto half_map = [&](std::uint64_t half) {
        return emulator::tensor_map<kiln::tensor_map>(
            team.workspace().of[rank] + half * team.argument(rank).half_bytes, 2,
            {static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(most_rows), World},
            {static_cast<std::uint64_t>(k) * 2, static_cast<std::uint64_t>(most_rows * k) * 2}, {64, box, 1}, 128);
      };
      maps.push_back({rows_of(rank) == 0 ? kiln::tensor_map{} : test::map_of_planes(its.x, 1, box, 64, 128),
                      {half_map(0), half_map(1)},
                      test::map_of(its.w, Tiles::W::box_rows, 64, 128),
                      test::map_of_planes(its.y, World, Piece::rows, Piece::columns, Piece::columns * 2)});
    }
    const test::TeamPass all = {
        {.grid = {clusters * Tiles::cluster},
         .block = {Tiles::threads},
         .shared_bytes = kiln::team::GatherLayout<Tiles>::pieces + (moved < 0 ? 0 : 2 * piece_bytes),
         .cluster = {Tiles::cluster},
         .seed = seed},
        [&](int, int rank) {
          Rank& its = at(rank);
          const Maps& of = maps[static_cast<std::size_t>(rank)];
          all_gather_gemm_fused<bf16, World, shape.tile_m, shape.tile_n, shape.stages, shape.cluster_m, shape.cluster_n,
                                shape.swap, shape.pingpong, moved>(
              of.x, of.halves[0], of.halves[1], of.w, of.y, its.x.data(), keeps ? its.gathered.data() : nullptr,
              its.y.data(), test::length(rows_of(rank)), n, k, rank_stride, static_cast<int>(most_rows), chunk_rows,
              piece_bytes, 2, team.workspace(), team.argument(rank));
        },
        resident,
        at_once};
    test::run_passes(team, {all}, launches, absent);
  }

  template <int World>
  void run_mma(std::uint32_t seed) {
    const auto tiles = static_cast<unsigned>((most_rows + 31) / 32 * ((n + 63) / 64));
    const test::TeamPass product = {
        {.grid = {tiles, World}, .block = {128}, .shared_bytes = 3 * (32 + 64) * 32 * 2, .seed = seed},
        [&](int, int rank) {
          Rank& its = at(rank);
          all_gather_gemm_mma<bf16, 32, 64, 32, 4, 3>(
              keeps ? its.gathered.data() : nullptr, its.parts.data(), its.w.data(), its.y.data(), its.counts.data(),
              test::length(rows_of(rank)), n, k, rank_stride, rank, static_cast<int>(most_rows), 2);
        }};
    test::run_passes(team, {gather<World>(seed), product}, 1);
  }
};

TEST_CASE("all_gather_gemm multiplies the rows of all ranks, whose numbers may differ") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    Gather two({70, 100}, 110, 128);
    two.run<2, Shape{64, 64, 3}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(two.error(rank) == 0);
      CHECK(two.gathered_all(rank));
      CHECK(two.team.idle(rank, 2));
    }
    Gather three({9, 0, 16}, 16, 16);
    three.keeps = false;
    three.run<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(three.error(rank) == 0);
  }
  Gather of({130, 129, 256}, 256, 256);
  of.keeps = false;
  of.run<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(4);
  for (int rank = 0; rank < 3; ++rank) CHECK(of.error(rank) == 0);
}

TEST_CASE("all_gather_gemm multiplies rows while they arrive, launch after launch") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    Gather two({70, 100}, 110, 128);
    two.run_fused<2, Shape{64, 64, 3}>(seed, 3);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(two.error(rank) == 0);
      CHECK(two.gathered_all(rank));
      CHECK(two.team.idle(rank, 3));
    }
    Gather three({9, 0, 16}, 16, 16);
    three.keeps = false;
    three.run_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(three.error(rank) == 0);
  }
  Gather of({130, 129, 256}, 256, 256);
  of.run_fused<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}>(4);
  for (int rank = 0; rank < 3; ++rank) CHECK((of.error(rank) == 0 && of.gathered_all(rank)));
  Gather wide({70, 64}, 70, 128);
  wide.run_fused<2, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .cluster_n = 2}>(5);
  for (int rank = 0; rank < 2; ++rank) CHECK(wide.error(rank) == 0);
  Gather swapped({397, 210}, 400, 512);
  swapped.run_fused<2, Shape{.tile_m = 208, .tile_n = 128, .stages = 3, .swap = true}>(6);
  for (int rank = 0; rank < 2; ++rank) CHECK((swapped.error(rank) == 0 && swapped.gathered_all(rank)));
  Gather shared({397, 161}, 400, 512);
  shared.run_fused<2, Shape{.tile_m = 160, .tile_n = 256, .stages = 3, .cluster_n = 2, .swap = true}>(7);
  for (int rank = 0; rank < 2; ++rank) CHECK((shared.error(rank) == 0 && shared.gathered_all(rank)));
}

TEST_CASE("all_gather_gemm pushes several pieces before the first is counted") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    Gather two({70, 100}, 110, 128);
    two.run_fused<2, Shape{64, 64, 3}, 4>(seed, 3);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(two.error(rank) == 0);
      CHECK(two.gathered_all(rank));
      CHECK(two.team.idle(rank, 3));
    }
    Gather three({9, 0, 16}, 16, 16);  // runs of less than four pieces
    three.run_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}, 4>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK((three.error(rank) == 0 && three.gathered_all(rank)));
    Gather of({130, 129, 256}, 256, 256);
    of.run_fused<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}, 2>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK((of.error(rank) == 0 && of.gathered_all(rank)));
  }
  Gather late({70, 128}, 128, 128);
  late.team.timeout_ns = 100'000;
  late.run_fused<2, Shape{64, 64, 3}, 4>(1, 1, 1);
  CHECK(late.error(0, 1) == 0);
  CHECK(late.team.report(0).state == Report::timed_out);
  CHECK(late.team.idle(0, 1));
}

/// One of `pushing` blocks pushes.
template <int pushing>
void check_warps(std::uint32_t seed) {
  CAPTURE(pushing);
  CAPTURE(seed);
  const auto check = [](Gather& of, int launches) {
    for (int rank = 0; rank < static_cast<int>(of.rows.size()); ++rank) {
      CHECK(of.error(rank) == 0);
      CHECK((!of.keeps || of.gathered_all(rank)));
      CHECK(of.team.idle(rank, static_cast<unsigned>(launches)));
    }
  };
  Gather two({70, 100}, 110, 128);
  two.run_fused<2, Shape{64, 64, 3}, -pushing>(seed, 3);
  check(two, 3);
  Gather three({9, 0, 16}, 16, 16);
  three.run_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}, -pushing>(seed);
  check(three, 1);
  three.keeps = false;
  three.run_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}, -pushing>(seed + 1);
  check(three, 2);
  Gather of({130, 129, 256}, 256, 256);
  of.run_fused<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2, .pingpong = true}, -pushing>(seed);
  check(of, 1);
  Gather shared({397, 161}, 400, 512);
  shared.run_fused<2, Shape{.tile_m = 160, .tile_n = 256, .stages = 3, .cluster_n = 2, .swap = true}, -pushing>(seed);
  check(shared, 1);
  Gather one_at_once({70, 128}, 128, 128);
  one_at_once.run_fused<2, Shape{64, 64, 3}, -pushing>(seed, 2, -1, 3, 1);
  check(one_at_once, 2);
}

TEST_CASE("all_gather_gemm moves rows by warps too, which push in all blocks or in some") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    check_warps<1>(seed);
    check_warps<2>(seed);
  }
}

TEST_CASE("all_gather_gemm gives NaN for rows that did not come to its warps, and tells whose") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Gather late({70, 128}, 128, 128);
    late.team.timeout_ns = 100'000;
    late.run_fused<2, Shape{64, 64, 3}, -1>(seed, 1, 1);
    CHECK(late.error(0, 1) == 0);
    CHECK(std::isnan(late.at(0).gathered.value(128, 0)));
    CHECK(late.team.report(0).state == Report::timed_out);
    CHECK(late.team.idle(0, 1));
    late.run_fused<2, Shape{64, 64, 3}, -1>(seed, 1, 1);
    CHECK(std::isnan(late.at(0).y.value(0, 0)));  // takes part no more
    CHECK(late.team.idle(0, 2));
    Gather clusters({70, 40, 128}, 128, 128);
    clusters.team.timeout_ns = 100'000;
    clusters.run_fused<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2}, -2>(seed, 1, 1);
    CHECK(clusters.team.reports(0, Report::timed_out, 1));
    CHECK(clusters.team.idle(0, 1));
    CHECK(clusters.team.idle(2, 1));
  }
}

TEST_CASE("all_gather_gemm needs no two blocks of a rank to run at once while rows arrive") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Gather of({70, 128}, 128, 128);
    of.run_fused<2, Shape{64, 64, 3}>(seed, 2, -1, 3, 1);
    for (int rank = 0; rank < 2; ++rank) CHECK((of.error(rank) == 0 && of.gathered_all(rank)));
  }
}

TEST_CASE("all_gather_gemm multiplies the rows of all ranks by mma.sync too") {
  for (const bool keeps : {true, false}) {
    Gather of({33, 0, 64}, 70, 64);
    of.keeps = keeps;
    of.run_mma<3>(1);
    for (int rank = 0; rank < 3; ++rank) CHECK(of.error(rank) == 0);
  }
}

TEST_CASE("all_gather_gemm serves again after two launches at once and a reset") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Gather of({70, 128}, 128, 128);
    of.team.timeout_ns = 100'000;
    of.run_fused<2, Shape{64, 64, 3}>(seed, 1, -1, 3, 0, 2);
    const Report& report = of.team.report(0);
    CHECK((report.state == Report::two_launches || report.peer_state == Report::two_launches));
    for (int rank = 0; rank < 2; ++rank)  // as where the two launches have other numbers of rows
      of.team.control(rank).pushed[0][0] = of.team.control(rank).pushed[1][0] = 1;
    of.team.reset();
    of.run_fused<2, Shape{64, 64, 3}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK((of.error(rank) == 0 && of.gathered_all(rank)));
      CHECK(of.team.idle(rank, 2));
    }
  }
}

TEST_CASE("all_gather_gemm gives NaN for rows that did not come") {
  Gather of({70, 128}, 128, 128);
  of.team.timeout_ns = 100'000;
  of.run<2, Shape{64, 64, 3}>(1, 1, 1);
  CHECK(of.error(0, 1) == 0);
  CHECK(of.team.report(0).state == Report::timed_out);
  CHECK(of.team.idle(0, 1));

  Gather fused({70, 128}, 128, 128);
  fused.team.timeout_ns = 100'000;
  fused.run_fused<2, Shape{64, 64, 3}>(1, 1, 1);
  CHECK(fused.error(0, 1) == 0);
  CHECK(fused.team.report(0).state == Report::timed_out);
  CHECK(fused.team.idle(0, 1));
  Gather clusters({70, 40, 128}, 128, 128);
  clusters.team.timeout_ns = 100'000;
  clusters.run_fused<3, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_m = 2}>(1, 1, 1);
  CHECK(clusters.team.reports(0, Report::timed_out, 1));
  CHECK(clusters.team.idle(0, 1));
  CHECK(clusters.team.idle(2, 1));
  fused.run_fused<2, Shape{64, 64, 3}>(2, 1, 1);  // takes part no more
  CHECK(std::isnan(fused.at(0).y.value(0, 0)));
  CHECK(fused.team.idle(0, 2));
}

}  // namespace
