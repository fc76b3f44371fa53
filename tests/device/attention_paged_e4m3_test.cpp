// Caches in e4m3, by mma and by wgmma.
#include <doctest/doctest.h>

#include "attention_offsets.hpp"
#include "attention_paged.hpp"

namespace {

using namespace test;

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

template <typename Form, int tile_n = 32, int warps = 2>
double bytes_error(const AttentionProblem& problem, int page_size, std::uint32_t seed = 1) {
  return mma_error<Form, tile_n, warps, kiln::e4m3>(problem, page_size, seed);
}
template <typename Form, int tile_m = 128, int tile_n = 64, int stages = 2, int staged = 1, bool pingpong = true,
          bool holds = false, bool late = true, int heads = 1, bool trims = false>
double widened_error(const AttentionProblem& problem, int page_size, std::uint32_t seed = 1) {
  PagedAttention<Form, kiln::e4m3> of(problem, page_size);
  const bool counted =
      of.template launch_wgmma_e4m3<tile_m, tile_n, stages, staged, pingpong, holds, late, heads, trims>(
          seed, of.of.longest());
  return counted ? of.of.error() : INFINITY;
}

TEST_CASE("attention_paged takes keys and values in e4m3, with their heads' scales, from pages of each size") {
  for (const int page_size : {1, 8, 16, 24, 64}) {
    CAPTURE(page_size);
    for (const std::uint32_t seed : {0u, 1u}) {
      CAPTURE(seed);
      CHECK(bytes_error<PagedForm<Mask::causal, 64>>(chunks, page_size, seed) < close);
    }
    CHECK(bytes_error<PagedForm<Mask::none, 64>, 64, 4>(chunks, page_size) < close);
    AttentionProblem problem = chunks;
    for (const int left : {0, 9, 70}) {
      CAPTURE(left);
      problem.left = left;
      CHECK(bytes_error<PagedForm<Mask::window, 64>>(problem, page_size) < close);
    }
  }
}

TEST_CASE("attention_paged takes caches in e4m3 of each head dimension, with groups, sinks and a cap, beside f16") {
  const AttentionProblem grouped = {.lengths = {{50, 90}, {3, 200}, {140, 150}}, .heads = 8, .key_heads = 1};
  using Sunk = PagedForm<Mask::causal, 72, 72, SoftCap::tanh, Sinks::head>;
  CHECK(bytes_error<Sunk>(grouped, 16) < close);
  const AttentionProblem three = {
      .lengths = {{35, 50}, {0, 9}, {2, 71}, {1, 1}}, .heads = 6, .key_heads = 3, .scale = 0.2f};
  for (const int page_size : {1, 8, 16, 64}) {
    CAPTURE(page_size);
    CHECK(bytes_error<PagedForm<Mask::causal, 128, 128, SoftCap::tanh>, 64, 4>(three, page_size) < close);
    CHECK(bytes_error<PagedForm<Mask::causal, 192, 128, SoftCap::none, Sinks::none, kiln::f16>>(three, page_size) <
          close);
    CHECK(bytes_error<PagedForm<Mask::none, 40, 24, SoftCap::none, Sinks::head, kiln::f16>, 96, 1>(three, page_size) <
          close);
  }
  CHECK(bytes_error<PagedForm<Mask::causal, 8>>(three, 16) < close);
  CHECK(bytes_error<PagedForm<Mask::causal, 256>>(three, 16) < close);
}

TEST_CASE_TEMPLATE("attention_paged takes each value of e4m3 for what it is", T, kiln::bf16, kiln::f16) {
  PagedAttention<PagedForm<Mask::none, 128, 128, SoftCap::none, Sinks::none, T>, kiln::e4m3> of(
      {.lengths = {{1, 1}}, .heads = 2, .key_heads = 2}, 16);
  const std::int64_t row = std::int64_t{of.table[0]} * 16;
  for (int i = 0; i < 256; ++i) of.v.at(row, i).bits = static_cast<unsigned char>(i);
  for (const bool wgmma : {false, true}) {
    CAPTURE(wgmma);
    if (wgmma)
      of.launch_wgmma_e4m3(1, 1);
    else
      of.launch_mma(1, 1);
    for (int i = 0; i < 256; ++i) {
      const double out = of.of.out.value(of.of.row(true, 0, 0), i);
      if (i % 128 == 127)
        CHECK(std::isnan(out));
      else
        CHECK(out == of.v.value(row, i) * (i < 128 ? 4 : 1));  // scales are 4 and 1
    }
  }
}

TEST_CASE("attention_paged gives all keys of a head one weight where the scale of keys in e4m3 is 0") {
  PagedAttention<PagedForm<Mask::causal, 64>, kiln::e4m3> of(chunks, 16);
  of.of.k_scales.at(0, 1) = 0;
  of.launch_mma(1, of.of.longest());
  CHECK(of.of.error() < close);
  of.launch_wgmma_e4m3(1, of.of.longest());
  CHECK(of.of.error() < close);
}

TEST_CASE("attention_paged widens chunks of prompts from pages of each size for wgmma") {
  using Causal = PagedForm<Mask::causal, 64>;
  for (const int page_size : {16, 32, 48, 64, 128, 256}) {
    CAPTURE(page_size);
    for (const std::uint32_t seed : {0u, 1u, 2u}) {
      CAPTURE(seed);
      CHECK(widened_error<Causal>(chunks, page_size, seed) < close);
      CHECK(widened_error<Causal, 64, 96, 3, 2, false>(chunks, page_size, seed) < close);
    }
    CHECK(widened_error<Causal, 128, 128, 2, 2, true, true>(chunks, page_size) < close);
    CHECK(widened_error<PagedForm<Mask::none, 64>>(chunks, page_size) < close);
  }
}

TEST_CASE("attention_paged widens nothing that a window hides to what counts") {
  AttentionProblem problem = chunks;
  for (const int left : {0, 9, 70, 500}) {
    CAPTURE(left);
    problem.left = left;
    for (const int page_size : {16, 64}) {
      CAPTURE(page_size);
      using Windowed = PagedForm<Mask::window, 64>;
      for (const std::uint32_t seed : {0u, 1u}) {
        CHECK(widened_error<Windowed>(problem, page_size, seed) < close);
        CHECK(widened_error<Windowed, 192, 80, 3, 1, true, false, true, 2, true>(problem, page_size, seed) < close);
        CHECK(widened_error<Windowed, 64, 32, 2, 2, false, true>(problem, page_size, seed) < close);
      }
    }
  }
}

TEST_CASE("attention_paged widens keys and values of each head dimension, with groups, sinks and a cap, beside f16") {
  const AttentionProblem grouped = {.lengths = {{50, 90}, {3, 200}, {140, 150}}, .heads = 8, .key_heads = 1};
  using Sunk = PagedForm<Mask::causal, 80, 80, SoftCap::tanh, Sinks::head>;
  CHECK(widened_error<Sunk, 128, 80, 2, 1, true, true, true, 4>(grouped, 16) < close);
  CHECK(widened_error<Sunk, 192, 96, 3, 2, true, false, true, 8, true>(grouped, 32) < close);
  const AttentionProblem pairs = {
      .lengths = {{35, 50}, {0, 9}, {2, 71}, {1, 1}}, .heads = 4, .key_heads = 2, .scale = 0.2f};
  for (const std::uint32_t seed : {0u, 1u}) {
    CAPTURE(seed);
    CHECK(widened_error<PagedForm<Mask::causal, 128>, 128, 112, 2, 1, true, true, true, 2>(pairs, 16, seed) < close);
    CHECK(widened_error<PagedForm<Mask::causal, 192, 128, SoftCap::none, Sinks::none, kiln::f16>, 128, 96>(
              pairs, 32, seed) < close);
    CHECK(widened_error<PagedForm<Mask::none, 48, 32, SoftCap::none, Sinks::head, kiln::f16>, 64, 144, 2, 1, false>(
              pairs, 16, seed) < close);
    CHECK(widened_error<PagedForm<Mask::causal, 256>>(pairs, 16, seed) < close);
    CHECK(widened_error<PagedForm<Mask::causal, 256>, 64, 64, 2, 1, false, false, true, 2>(pairs, 64, seed) < close);
  }
}

TEST_CASE("attention_paged reports lengths past their bounds, and clamps them, where it widens keys and values") {
  PagedAttention<PagedForm<Mask::causal, 64>, kiln::e4m3> of({.lengths = {{40, 50}, {20, 30}, {9, 64}}, .after = 0},
                                                             16);
  of.lengths[2] = 65;
  of.launch_wgmma_e4m3(1, 40);
  CHECK(of.of.reports[0] == 0);
  CHECK(of.of.reports[1] == report_of(65, 64));
  CHECK(of.of.error() < close);
}

}  // namespace
