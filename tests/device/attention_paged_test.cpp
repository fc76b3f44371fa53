#include <doctest/doctest.h>

#include "attention_offsets.hpp"
#include "attention_paged.hpp"

namespace {

using namespace test;

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

template <typename Form, int tile_m = 128, int tile_n = 64, int stages = 2, bool pingpong = true, bool holds = false,
          bool late = true, int heads = 1, bool trims = false>
double wgmma_error(const AttentionProblem& problem, int page_size, std::uint32_t seed = 1) {
  PagedAttention<Form> of(problem, page_size);
  const bool counted =
      of.template launch_wgmma<tile_m, tile_n, stages, pingpong, holds, late, heads, trims>(seed, of.of.longest());
  return counted ? of.of.error() : INFINITY;
}

TEST_CASE("attention_paged takes chunks of prompts from pages of each size") {
  using Causal = PagedForm<Mask::causal, 64>;
  for (const int page_size : {16, 32, 48, 64, 128, 256}) {
    CAPTURE(page_size);
    for (const std::uint32_t seed : {0u, 1u}) {
      CAPTURE(seed);
      CHECK(mma_error<Causal>(chunks, page_size, seed) < close);
      CHECK(wgmma_error<Causal>(chunks, page_size, seed) < close);
      CHECK(wgmma_error<Causal, 64, 96, 3, false>(chunks, page_size, seed) < close);
    }
    CHECK(wgmma_error<PagedForm<Mask::none, 64>>(chunks, page_size) < close);
    CHECK(mma_error<PagedForm<Mask::none, 64>>(chunks, page_size) < close);
  }
}

TEST_CASE("attention_paged takes pages of any size by mma") {
  for (const int page_size : {1, 8, 24}) {
    CAPTURE(page_size);
    CHECK(mma_error<PagedForm<Mask::causal, 64>>(chunks, page_size) < close);
  }
}

TEST_CASE("attention_paged reads nothing of what a window hides") {
  AttentionProblem problem = chunks;
  for (const int left : {0, 9, 70, 500}) {
    CAPTURE(left);
    problem.left = left;
    for (const int page_size : {16, 64}) {
      CAPTURE(page_size);
      using Windowed = PagedForm<Mask::window, 64>;
      for (const std::uint32_t seed : {0u, 1u}) {
        CHECK(mma_error<Windowed>(problem, page_size, seed) < close);
        CHECK(wgmma_error<Windowed>(problem, page_size, seed) < close);
        CHECK(wgmma_error<Windowed, 192, 80, 3, true, false, true, 2, true>(problem, page_size, seed) < close);
        CHECK(wgmma_error<Windowed, 64, 32, 2, false, true>(problem, page_size, seed) < close);
      }
    }
  }
}

TEST_CASE("attention_paged takes heads that differ, share tiles, have sinks and a cap, and f16") {
  const AttentionProblem grouped = {.lengths = {{50, 90}, {3, 200}, {140, 150}}, .heads = 8, .key_heads = 1};
  using Sunk = PagedForm<Mask::causal, 72, 72, SoftCap::tanh, Sinks::head>;
  CHECK(mma_error<Sunk>(grouped, 16) < close);
  CHECK(wgmma_error<Sunk, 128, 80, 2, true, true, true, 4>(grouped, 16) < close);
  CHECK(wgmma_error<Sunk, 192, 80, 3, true, false, true, 8, true>(grouped, 32) < close);
  using Apart = PagedForm<Mask::causal, 192, 128, SoftCap::none, Sinks::none, kiln::f16>;
  CHECK(mma_error<Apart>({.lengths = {{35, 50}, {2, 70}}, .scale = 0.2f}, 32) < close);
  CHECK(wgmma_error<Apart, 128, 96>({.lengths = {{35, 50}, {2, 70}}, .scale = 0.2f}, 32) < close);
}

template <typename Form, typename Cache = typename Form::T>
double reference_error(AttentionProblem problem) {
  problem.left = 9;
  PagedAttention<Form, Cache> of(std::move(problem), 16);
  of.launch_reference();
  return of.of.error();
}

TEST_CASE("attention_paged's reference is right with each mask, a soft cap and sinks, and caches in e4m3") {
  const AttentionProblem problem = {.lengths = {{7, 20}, {0, 4}, {3, 3}, {2, 33}}, .heads = 4, .key_heads = 2};
  constexpr double rounded = 4e-3;
  using Sunk = PagedForm<Mask::none, 16, 16, SoftCap::tanh, Sinks::head>;
  CHECK(reference_error<PagedForm<Mask::causal, 16>>(problem) < rounded);
  CHECK(reference_error<Sunk>(problem) < rounded);
  CHECK(reference_error<PagedForm<Mask::causal, 16, 32>, kiln::e4m3>(problem) < rounded);
  CHECK(reference_error<PagedForm<Mask::window, 16, 8>, kiln::e4m3>(problem) < rounded);
  CHECK(reference_error<Sunk, kiln::e4m3>(problem) < rounded);
}

TEST_CASE("attention_paged reports lengths and offsets past their bounds, and clamps them") {
  for (const bool wgmma : {false, true}) {
    CAPTURE(wgmma);
    PagedAttention<PagedForm<Mask::causal, 64>> of({.lengths = {{40, 50}, {20, 30}, {9, 64}}, .after = 0}, 16);
    const auto launch = [&] {
      of.of.reports[0] = of.of.reports[1] = 0;
      if (wgmma)
        of.launch_wgmma(1, 40);
      else
        of.launch_mma(1, 40);
    };
    launch();
    CHECK(of.of.reports[0] == 0);
    CHECK(of.of.reports[1] == 0);
    of.lengths[2] = 65;
    launch();
    CHECK(of.of.reports[1] == report_of(65, 64));
    CHECK(of.of.error() < close);
    of.lengths[2] = -3;
    of.of.told_query_offsets.back() += 1000;
    launch();
    CHECK(of.of.reports[0] == report_of(of.of.rows(true) + 1000, of.of.rows(true)));
    CHECK(of.of.reports[1] == report_of(-3, 64));
    of.of.problem.lengths[2].second = 0;
    CHECK(of.of.error() < close);
    of.lengths[2] = 0;
    of.of.told_query_offsets.back() -= 1000;
    const auto launch_with = [&](int longest) {
      of.of.reports[0] = 0;
      if (wgmma)
        of.launch_wgmma(1, longest);
      else
        of.launch_mma(1, longest);
    };
    launch_with(39);
    CHECK(of.of.reports[0] == report_of(40, 39));
  }
}

}  // namespace
