#include <doctest/doctest.h>

#include "wgmma_product.hpp"

namespace {

using namespace wgmma_test;

TEST_CASE("gemm_wgmma multiplies matrices that fill no whole tiles, whatever order threads and copies run in") {
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{128, 64, 3}>({.m = 200, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{64, 96, 4}, f16>({.m = 70, .n = 203, .k = 65, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::nt, Shape{256, 32, 2}>({.m = 300, .n = 40, .k = 7, .clusters = 1}) == 0);
}

TEST_CASE("gemm_wgmma's boxes lie inside of x and w, but for what fills eight rows") {
  for (const std::int64_t m : {129, 200, 257}) {
    CAPTURE(m);
    const Problem problem{.m = m, .n = 150, .k = 72};
    CHECK(rows_outside<Layout::nt, Shape{128, 64, 3}>(problem) < 8);
    CHECK(rows_outside<Layout::nt, Shape{.tile_m = 80, .tile_n = 64, .stages = 3, .cluster_m = 2, .swap = true}>(
              problem) < 8);
    CHECK(rows_outside<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_n = 4}>(problem) < 8);
  }
  for (const std::int64_t m : {1, 33, 60}) {  // x in one tile
    CAPTURE(m);
    const Problem problem{.m = m, .n = 150, .k = 72};
    CHECK(rows_outside<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .swap = true}>(problem) < 8);
    CHECK(rows_outside<Layout::nt, Shape{128, 64, 3}>(problem) < 8);
  }
}

TEST_CASE("gemm_wgmma takes operands in which m and n run along memory") {
  CHECK(error_in<Layout::nn, Shape{64, 128, 3}>({.m = 67, .n = 200, .k = 130, .seed = 1}) == 0);
  CHECK(error_in<Layout::tn, Shape{128, 64, 3}>({.m = 200, .n = 100, .k = 130, .seed = 2}) == 0);
  CHECK(error_in<Layout::tt, Shape{128, 96, 3}, f16>({.m = 130, .n = 100, .k = 130, .seed = 3}) == 0);
}

TEST_CASE("gemm_wgmma is right at every k of a bucket, with as many parts as there are stages of k") {
  for (const std::int64_t k : {1, 63, 64, 65, 127, 129}) {
    CAPTURE(k);
    CHECK(error_in<Layout::tn, Shape{64, 64, 3}>({.m = 72, .n = 80, .k = k, .seed = 1}) == 0);
    CHECK(error_in<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .pingpong = true}>(
              {.m = 72, .n = 80, .k = k, .seed = 2}) == 0);
  }
  CHECK(error_in<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 3, .cluster_k = 2}>(
            {.m = 72, .n = 80, .k = 65, .seed = 3}) == 0);
  CHECK(error_in<Layout::tn, Shape{.tile_m = 64, .tile_n = 64, .stages = 4, .cluster_k = 5}>(
            {.m = 72, .n = 80, .k = 257, .seed = 4}) == 0);
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

TEST_CASE("gemm_wgmma's rows on the other side of wgmma may be multiples of 8, and its columns of 16") {
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

TEST_CASE("gemm_wgmma stores rows of odd multiples of 8 by pieces of 8, some at once") {
  for (const std::uint32_t seed : {0u, 1u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 88, .tile_n = 192, .stages = 2, .cluster_m = 2, .swap = true}>(
              {.m = 171, .n = 200, .k = 130, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 136, .tile_n = 128, .stages = 2, .swap = true}, f16>(
              {.m = 129, .n = 150, .k = 70, .seed = seed}) == 0);
  }
  CHECK(error_in<Layout::nt, Shape{.tile_m = 152, .tile_n = 256, .stages = 2, .swap = true}>(
            {.m = 160, .n = 264, .k = 70, .seed = 2}) == 0);
  CHECK(error_in<Layout::nt, Shape{.tile_m = 104, .tile_n = 64, .stages = 3, .cluster_k = 2, .swap = true}>(
            {.m = 101, .n = 72, .k = 328, .seed = 3}) == 0);
  CHECK(error_of<kiln::e4m3, kiln::e4m3, Relu<bf16, Scaling::row>, Layout::nt,
                 Shape{.tile_m = 88, .tile_n = 128, .stages = 2, .swap = true}>(
            {.m = 87, .n = 200, .k = 272, .seed = 4}) == 0);
  CHECK(error_of<bf16, bf16, Relu<float>, Layout::nt,
                 Shape{.tile_m = 88, .tile_n = 64, .stages = 2, .swap = true, .store = 4}>(
            {.m = 85, .n = 68, .k = 130, .seed = 5}) == 0);
}

TEST_CASE("gemm_wgmma shares k among the blocks of a cluster") {
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 16, .tile_n = 128, .stages = 4, .cluster_k = 4, .swap = true}>(
              {.m = 13, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 64, .stages = 4, .cluster_k = 2}>(
              {.m = 70, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nn, Shape{.tile_m = 64, .tile_n = 128, .stages = 3, .cluster_k = 2}, f16>(
              {.m = 70, .n = 264, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 64, .tile_n = 96, .stages = 4, .cluster_k = 3}>(
              {.m = 70, .n = 150, .k = 328, .seed = seed}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 8, .tile_n = 64, .stages = 4, .cluster_k = 5, .swap = true}>(
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
    CHECK(error_in<Layout::nt, Shape{.tile_m = 88, .tile_n = 64, .stages = 3, .swap = true}>(
              {.m = 200, .n = 75, .k = 72, .length = length, .seed = 6}) == 0);
    CHECK(error_in<Layout::nt, Shape{.tile_m = 128, .tile_n = 80, .stages = 3}>(
              {.m = 200, .n = 75, .k = 72, .length = length, .seed = 7}) == 0);
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

}  // namespace
