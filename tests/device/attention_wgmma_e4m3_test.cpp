#include <doctest/doctest.h>

#include "attention_wgmma.hpp"

namespace {

using namespace test;

template <Layout layout, Mask mask, int head_dim, int value_dim = head_dim, SoftCap soft_cap = SoftCap::none,
          Sinks sinks = Sinks::none>
using Form = AttentionForm<layout, mask, head_dim, value_dim, soft_cap, sinks, kiln::e4m3>;

// A weight is rounded by 2^-4 of itself at most; values are 1 at most.
constexpr double close = 0.025;
// Where all weights are alike, rounding leaves them so, and results are as those of 16 bits.
constexpr float uniform = 1e-6f;
constexpr double close_to_mean = 4e-3;

template <typename Form, Tile tile>
void check(AttentionProblem problem, std::uint32_t seed) {
  CAPTURE(seed);
  CHECK(wgmma_error<Form, tile>(problem, seed) < close);
  problem.scale = uniform;
  CHECK(wgmma_error<Form, tile>(problem, seed) < close_to_mean);
}

TEST_CASE("attention_wgmma in e4m3 takes lengths of one, odd ones and one past a block") {
  for (const auto& sizes : {std::pair{1, 1}, {129, 65}, {7, 63}, {140, 200}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    for (const std::uint32_t seed : {0u, 1u, 2u})
      check<Form<Layout::dense, Mask::none, 64>, Tile{.promoted = true}>(
          {.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2}, seed);
  }
}

TEST_CASE(
    "attention_wgmma in e4m3 adds blocks of keys in f32 or as wgmma does, by turns of warpgroups, and with three of these") {
  using Causal = Form<Layout::dense, Mask::causal, 64>;
  const AttentionProblem problem = {.lengths = {{200, 210}}, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    check<Causal, Tile{.pingpong = true, .promoted = true, .holds_queries = true}>(problem, seed);
    check<Causal, Tile{.m = 192, .n = 96, .stages = 3, .pingpong = true, .promoted = true, .late = true}>(problem,
                                                                                                          seed);
    check<Causal, Tile{.n = 128, .pingpong = true, .promoted = true, .holds_queries = true, .late = true}>(problem,
                                                                                                           seed);
    check<Causal, Tile{.m = 64, .n = 160, .stages = 1}>(problem, seed);
    check<Causal, Tile{.overlap = false, .promoted = true}>(problem, seed);
  }
}

TEST_CASE("attention_wgmma in e4m3 takes head dimensions that differ, and of 32 times an odd number") {
  const AttentionProblem problem = {.lengths = {{70, 150}}, .scale = 0.2f};
  check<Form<Layout::dense, Mask::none, 96>, Tile{.promoted = true}>(problem, 1);
  check<Form<Layout::dense, Mask::causal, 128>, Tile{.n = 128, .pingpong = true, .promoted = true}>(problem, 1);
  check<Form<Layout::dense, Mask::none, 192, 128>, Tile{.n = 96, .promoted = true}>(problem, 1);
  check<Form<Layout::dense, Mask::none, 256>, Tile{.stages = 1, .promoted = true}>(problem, 1);
  check<Form<Layout::dense, Mask::none, 64, 160>, Tile{.promoted = true}>(problem, 1);
}

TEST_CASE("attention_wgmma in e4m3 holds queries in registers, from rows of each swizzle") {
  const AttentionProblem problem = {.lengths = {{130, 70}}, .scale = 0.2f};
  check<Form<Layout::dense, Mask::none, 128>, Tile{.promoted = true, .holds_queries = true}>(problem, 1);
  check<Form<Layout::dense, Mask::none, 192, 32>, Tile{.promoted = true, .holds_queries = true}>(problem, 1);
  check<Form<Layout::dense, Mask::none, 96, 32>, Tile{.m = 192, .n = 32, .holds_queries = true}>(problem, 1);
}

TEST_CASE("attention_wgmma in e4m3 sees what a mask lets it see; rows without keys give 0 and -inf") {
  for (const bool from_end : {true, false})
    check<Form<Layout::dense, Mask::causal, 64>, Tile{.promoted = true}>(
        {.lengths = {{270, 100}}, .heads = 4, .key_heads = 2, .from_end = from_end}, 1);
  using Window = Form<Layout::dense, Mask::window, 64>;
  check<Window, Tile{.promoted = true}>({.lengths = {{150, 300}}, .left = 30, .right = 5}, 1);
  check<Window, Tile{.promoted = true}>({.lengths = {{300, 100}}, .from_end = false, .left = 10, .right = 0}, 1);
}

TEST_CASE(
    "packed sequences of attention_wgmma in e4m3 may be empty and see nothing of each other, though their neighbours be NaN") {
  AttentionProblem problem = {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2};
  for (int i = 0; i < 20; ++i) problem.lengths.emplace_back(i % 3, i % 5);
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    check<Form<Layout::packed, Mask::causal, 64>,
          Tile{.promoted = true, .holds_queries = true, .late = true, .drawn = true, .section = 2}>(problem, seed);
    check<Form<Layout::packed, Mask::none, 96>, Tile{.n = 96}>({.lengths = {{3, 70}, {129, 1}, {5, 97}}, .scale = 0.2f},
                                                               seed);
  }
}

TEST_CASE("attention_wgmma in e4m3 scales logits of each head before it caps them, and adds sinks") {
  using Capped = Form<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>;
  check<Capped, Tile{.promoted = true}>(
      {.lengths = {{35, 140}, {9, 0}, {3, 70}}, .heads = 6, .key_heads = 2, .left = 12, .right = 3}, 1);
}

TEST_CASE("attention_wgmma in e4m3 lowers logits by each head's slope, in that head's own scale") {
  using Sloped =
      AttentionForm<Layout::dense, Mask::causal, 64, 64, SoftCap::none, Sinks::none, kiln::e4m3, Alibi::head>;
  CHECK(wgmma_error<Sloped, Tile{.promoted = true}>({.lengths = {{70, 90}}, .heads = 4, .key_heads = 2}) < close);
}

}  // namespace
