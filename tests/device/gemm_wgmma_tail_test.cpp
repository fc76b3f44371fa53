// gemm by wgmma whose last round of tiles is shared along k.
#include <doctest/doctest.h>

#include "wgmma_product.hpp"

namespace {

using namespace wgmma_test;

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
  CHECK(error_in<Layout::nt, tailed>({.m = 130, .n = 100, .k = 900, .clusters = 20}) == 0);  // too few stages
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
            {.m = 70, .n = 203, .k = 1560, .clusters = 13, .seed = 5}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 80, .tile_n = 128, .stages = 3, .swap = true, .tail = true}>(
            {.m = 90, .n = 203, .k = 1560, .clusters = 13, .seed = 5}) == 0);
  CHECK(
      error_in<Layout::nt, Shape{.tile_m = 88, .tile_n = 192, .stages = 3, .cluster_m = 2, .swap = true, .tail = true}>(
          {.m = 170, .n = 500, .k = 2200, .clusters = 5, .seed = 21}) == 0);
  CHECK(error_in<Layout::tt, Shape{.tile_m = 64, .tile_n = 128, .stages = 3, .swap = true, .tail = true}>(
            {.m = 70, .n = 203, .k = 1560, .clusters = 13, .seed = 6}) == 0);
}

TEST_CASE("what gemm_wgmma shares goes by the length on the device") {
  for (const std::int64_t length : {0, 1, 64, 65, 128, 129, 200, 260}) {
    CAPTURE(length);
    CHECK(error_in<Layout::nt, tailed>({.m = 260, .n = 75, .k = 2112, .length = length, .clusters = 7, .seed = 1}) ==
          0);
    CHECK(error_in<Layout::nt, tailed_pairs>(
              {.m = 260, .n = 75, .k = 2112, .length = length, .clusters = 5, .seed = 2}) == 0);
  }
}

TEST_CASE("what follows a product follows one in parts") {
  using Added = Relu<bf16, Scaling::none, Residual::add, Accumulate::yes>;
  const Problem problem = {.m = 130, .n = 102, .k = 1600, .length = 129, .clusters = 5, .seed = 1};
  CHECK(error_of<bf16, bf16, Added, Layout::nt, tailed>(problem) == 0);
  CHECK(error_of<bf16, bf16, Relu<f16>, Layout::nt, tailed_pingpong>(problem) == 0);
  CHECK(error_of<bf16, bf16, Added, Layout::nt, tailed_pairs>(
            {.m = 130, .n = 102, .k = 1600, .length = 129, .clusters = 3, .seed = 1}) == 0);

  const Problem in_8_bits = {.m = 130, .n = 140, .k = 4230, .length = 129, .clusters = 5, .seed = 1};
  CHECK(error_in_8_bits<Scaling::row, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .tail = true}>(in_8_bits) == 0);
  CHECK(error_in_8_bits<Scaling::block, Shape{.tile_m = 128, .tile_n = 64, .stages = 3, .tail = true}>(in_8_bits) == 0);
}

TEST_CASE("parts of k are added in their order, whatever order blocks run in") {
  using Rounded = Ending<bf16, Activation::none, Residual::none, Scaling::none, Accumulate::no>;
  std::vector<double> first;
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    const Problem problem = {.m = 70, .n = 70, .k = 2048, .clusters = 16, .seed = seed};
    Operands<bf16, bf16, Layout::nt, Rounded> of(problem.m, problem.n, problem.k, 80);
    for (std::int64_t i = 0; i < problem.k; ++i)  // products whose sums are rounded
      of.x.at(69, i) = kiln::from_float<bf16>(std::sin(static_cast<float>(i)) * static_cast<float>(1 << i % 15));
    CHECK(multiply<bf16, bf16, Rounded, Layout::nt, tailed>(of, problem, {nullptr, nullptr, 70, 0}).nothing_else);
    std::vector<double> row;
    for (std::int64_t i = 0; i < problem.n; ++i) row.push_back(of.y.value(69, i));
    if (first.empty()) first = row;
    CHECK(row == first);
  }
}

}  // namespace
