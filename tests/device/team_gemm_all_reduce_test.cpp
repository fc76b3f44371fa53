#include "team_gemm_all_reduce.hpp"

#include "gemm_all_reduce/reference.cuh"

namespace {

using kiln::bf16;
using kiln::team::Report;
using test::Reduction;
using Shape = Reduction::Shape;

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

TEST_CASE("gemm_all_reduce may exchange its product in two steps, also where ranks have other lengths on the device") {
  Reduction of({33, 33, 33}, 64);
  of.run_mma<3>(1, 3, 2);
  of.check(3);
  Reduction unequal({9, 0, 40}, 64, {64, 64, 64});
  unequal.run_mma<3>(2, 2, 2);
  for (int rank = 0; rank < 3; ++rank) CHECK(unequal.error(rank) == 0);
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
