// The implementation `fused`: product and exchange in one kernel.
#include "team_gemm_all_reduce.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;
using test::Reduction;
using Shape = Reduction::Shape;

/// A launch leaves 0 where packets come.
bool no_packets_left(Reduction& of) {
  for (int rank = 0; rank < of.world(); ++rank)
    if (!of.team.packets_are_clear(rank)) return false;
  return true;
}

template <int World, Shape shape, bool packets = false>
void check_fused(std::vector<int> rows, std::int64_t most, std::uint32_t seed, int launches = 1) {
  const int first = rows.front();
  CAPTURE(first);
  CAPTURE(seed);
  Reduction of(std::move(rows), most);
  of.run_fused<World, shape, packets>(seed, launches);
  of.check(launches);
  if (packets) CHECK(no_packets_left(of));
}

TEST_CASE("gemm_all_reduce in one kernel gives all ranks the sum of their products, launch after launch") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    check_fused<2, Shape{64, 64, 3}>({70, 70}, 128, seed, 3);
    check_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>({9, 9, 9}, 16, seed, 3);
    check_fused<2, Shape{.tile_m = 8, .tile_n = 128, .stages = 4, .swap = true}>({7, 7}, 8, seed, 2);
  }
  check_fused<8, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .swap = true}>(std::vector<int>(8, 5), 8, 1);
}

TEST_CASE("gemm_all_reduce in one kernel takes one row, one past a tile, and as many as there may be") {
  for (const int rows : {1, 63, 64, 65, 128}) {
    check_fused<2, Shape{64, 64, 3}>({rows, rows}, 128, 3);
    check_fused<2, Shape{128, 128, 2}>({rows, rows}, 128, 4);
  }
  for (const int rows : {129, 193, 256}) check_fused<2, Shape{128, 64, 3}>({rows, rows}, 256, 5);
  for (const int rows : {1, 33, 64})
    check_fused<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .swap = true}>({rows, rows}, 64, 1);
  check_fused<2, Shape{.tile_m = 8, .tile_n = 256, .stages = 2, .swap = true}>({1, 1}, 8, 2);
  check_fused<2, Shape{.tile_m = 32, .tile_n = 256, .stages = 2, .swap = true}>({27, 27}, 32, 2);
  check_fused<3, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .swap = true}>({1, 1, 1}, 8, 1, 2);
}

TEST_CASE("gemm_all_reduce in one kernel sends packets too, launch after launch") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    check_fused<2, Shape{64, 64, 3}, true>({70, 70}, 128, seed, 4);
    check_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}, true>({9, 9, 9}, 16, seed, 4);
    check_fused<2, Shape{.tile_m = 8, .tile_n = 128, .stages = 4, .swap = true}, true>({7, 7}, 8, seed, 3);
  }
  check_fused<8, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .swap = true}, true>(std::vector<int>(8, 5), 8, 1);
  for (const int rows : {1, 63, 64, 65, 128}) check_fused<2, Shape{128, 128, 2}, true>({rows, rows}, 128, 4, 3);
  // Ranks with other numbers of rows, and tiles that some have no rows of.
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    Reduction few({130, 0, 5}, 256, {130, 20, 5});
    few.run_fused<3, Shape{64, 64, 3}, true>(seed, 3);
    for (int rank = 0; rank < 3; ++rank) CHECK(few.error(rank) == 0);
    CHECK(no_packets_left(few));
    Reduction split({130, 70}, 256);
    split.run_fused<2, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .splits = 2}, true>(seed, 3);
    for (int rank = 0; rank < 2; ++rank) CHECK(split.error(rank) <= 1);
    CHECK(no_packets_left(split));
  }
  Reduction one_at_once({70, 70}, 128);
  one_at_once.run_fused<2, Shape{64, 64, 3}, true>(6, 2, -1, 1);
  one_at_once.check(2);
}

/// Both ways to the sums, of the same inputs. `depth`: of k, enough for the blocks of a cluster.
template <int World, Shape shape, bool packets = false>
void check_same_bits(const std::vector<int>& rows, std::int64_t most, std::uint32_t seed) {
  CAPTURE(rows.front());
  CAPTURE(shape.splits);
  CAPTURE(shape.swap);
  constexpr std::int64_t depth = 584;
  Reduction fused(rows, most, {}, depth), two_kernels(rows, most, {}, depth);
  fused.run_fused<World, shape, packets>(seed, 2);
  two_kernels.run<World, shape>(seed);
  int others = 0;
  for (int rank = 0; rank < World; ++rank) {
    CHECK(fused.error(rank) <= 1);  // k is added up in another order
    CHECK(fused.team.idle(rank, 2));
    for (std::int64_t row = 0; row < rows.front(); ++row)
      for (std::int64_t i = 0; i < Reduction::n; ++i)
        others += fused.at(rank).y.value(row, i) == two_kernels.at(rank).y.value(row, i) ? 0 : 1;
  }
  CHECK(others == 0);
}

TEST_CASE("gemm_all_reduce in one kernel gives the bits of two, also where k is shared by a cluster") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    check_same_bits<2, Shape{64, 64, 3}>({70, 70}, 128, seed);
    check_same_bits<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>({70, 70}, 128, seed);
    check_same_bits<2, Shape{.tile_m = 128, .tile_n = 64, .stages = 4, .splits = 4}>({65, 65}, 128, seed);
    check_same_bits<3, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .splits = 2, .swap = true}>({1, 1, 1}, 8, seed);
    check_same_bits<2, Shape{.tile_m = 16, .tile_n = 64, .stages = 2, .splits = 4, .swap = true}>({13, 13}, 16, seed);
    check_same_bits<2, Shape{.tile_m = 64, .tile_n = 128, .stages = 4, .splits = 2, .swap = true}>({47, 47}, 64, seed);
  }
  check_same_bits<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 2, .splits = 8}>({64, 64}, 64, 5);
  check_same_bits<2, Shape{.tile_m = 128, .tile_n = 64, .stages = 4, .splits = 4}, true>({65, 65}, 128, 6);
  check_same_bits<3, Shape{.tile_m = 8, .tile_n = 64, .stages = 3, .splits = 2, .swap = true}, true>({1, 1, 1}, 8, 7);
}

TEST_CASE("gemm_all_reduce in one kernel takes new inputs in the same memory") {
  Reduction of({33, 33, 33}, 64);
  for (const std::uint32_t seed : {11u, 12u, 13u}) {
    of.refill(seed);
    of.run_fused<3, Shape{64, 64, 3}>(seed);
    for (int rank = 0; rank < 3; ++rank) CHECK(of.error(rank) == 0);
  }
}

TEST_CASE("gemm_all_reduce in one kernel goes by a length on the device, and what a rank has no row of counts as 0") {
  Reduction shorter({37, 37}, 128, {100, 100});
  shorter.run_fused<2, Shape{64, 64, 3}>(1, 2);
  shorter.check(2);
  Reduction none({0, 0}, 64, {50, 50});
  none.run_fused<2, Shape{64, 64, 3, 1, 1, 2}>(2, 2);
  none.check(2);
  Reduction unequal({9, 0, 16}, 16, {16, 16, 16});
  unequal.run_fused<3, Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(3, 2);
  for (int rank = 0; rank < 3; ++rank) CHECK(unequal.error(rank) == 0);
  // A rank without rows of a tile has its blocks all the same.
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    Reduction few({130, 0, 5}, 256, {130, 20, 5});
    few.run_fused<3, Shape{64, 64, 3}>(seed, 2);
    for (int rank = 0; rank < 3; ++rank) CHECK(few.error(rank) == 0);
    Reduction split({130, 70}, 256);
    split.run_fused<2, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .splits = 2}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) CHECK(split.error(rank) <= 1);
  }
}

TEST_CASE("gemm_all_reduce in one kernel needs no two clusters of a rank to run at once") {
  Reduction of({70, 70}, 128);
  of.run_fused<2, Shape{64, 64, 3}>(6, 2, -1, 1);
  of.check(2);
  Reduction split({70, 70}, 128);
  split.run_fused<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(6, 2, -1, 1);
  for (int rank = 0; rank < 2; ++rank) CHECK(split.error(rank) <= 1);
}

TEST_CASE("gemm_all_reduce in one kernel serves again after two launches at once and a reset") {
  for (const std::uint32_t seed : {0u, 1u}) {
    Reduction of({70, 70}, 128);
    of.team.timeout_ns = 100'000;
    of.run_fused<2, Shape{64, 64, 3}>(seed, 1, -1, 0, 2);
    const Report& report = of.team.report(0);
    CHECK((report.state == Report::two_launches || report.peer_state == Report::two_launches));
    of.team.reset();
    of.run_fused<2, Shape{64, 64, 3}>(seed, 2);
    of.check(2);
    Reduction split({70, 70}, 128);
    split.team.timeout_ns = 100'000;
    split.run_fused<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(seed, 1, -1, 0, 2);
    split.team.reset();
    split.run_fused<2, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(seed, 2);
    for (int rank = 0; rank < 2; ++rank) CHECK(split.error(rank) <= 1);
  }
}

/// Ranks 0 and 1 of three, the last of which does not come.
template <Shape shape, bool packets = false>
void check_absent(int rows, std::int64_t most) {
  CAPTURE(shape.splits);
  Reduction of({rows, rows, rows}, most);
  of.team.timeout_ns = 100'000;
  for (int launch = 1; launch <= 2; ++launch) {  // the second begins in a team that has failed
    for (int rank = 0; rank < 2; ++rank)
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < Reduction::n; ++column) of.at(rank).y.at(row, column) = bf16{};
    of.run_fused<3, shape, packets>(1, 1, 2);
    for (int rank = 0; rank < 2; ++rank) {
      int numbers = 0;
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < Reduction::n; ++column)
          numbers += std::isnan(of.at(rank).y.value(row, column)) ? 0 : 1;
      CHECK(numbers == 0);
      CHECK(of.at(rank).y.margins_untouched());
      CHECK(of.team.reports(rank, Report::timed_out, 2));
      CHECK(of.team.idle(rank, static_cast<unsigned>(launch)));
    }
  }
}

TEST_CASE("gemm_all_reduce in one kernel gives NaN where a product did not come, and tells whose") {
  check_absent<Shape{64, 64, 3}>(70, 128);
  check_absent<Shape{.tile_m = 16, .tile_n = 64, .stages = 3, .swap = true}>(9, 16);
  check_absent<Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}>(70, 128);
  check_absent<Shape{64, 64, 3}, true>(70, 128);
  check_absent<Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .splits = 2}, true>(70, 128);
}

}  // namespace
