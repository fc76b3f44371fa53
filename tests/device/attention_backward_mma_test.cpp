#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention_backward.hpp"
#include "attention_backward/mma.cuh"
#include "attention_offsets.hpp"

namespace {

using namespace test;

struct Tile {
  int m = 32, n = 32, warps = 2, stages = 2;
  bool sums_dq = true;
};

template <typename Form, Tile tile = Tile{}>
void launch_mma(AttentionBackward<Form>& of, std::uint32_t seed, int section) {
  using Tiles = kiln::attention::BackwardMma<Form, tile.m, tile.n, tile.warps, tile.stages, tile.sums_dq>;
  using Queries = kiln::attention::QueryMma<Form, tile.n, tile.warps, tile.stages>;
  const AttentionProblem& problem = of.problem;
  launch_rows<Form, tile.sums_dq>(of, seed);
  emulator::launch(
      {.grid = {tiles_of(of, false, tile.n)}, .block = {tile.warps * 32}, .shared_bytes = Tiles::bytes, .seed = seed},
      [&] {
        attention_backward_keys_mma<Form, tile.m, tile.n, tile.warps, tile.stages, tile.sums_dq>(
            of.q_rows(), of.k_rows(), of.v_rows(), of.dout_rows(), of.facts.data(), of.told_query_offsets.data(),
            of.told_key_offsets.data(), of.sums.data(), of.dk.data(), of.dv.data(), of.count(), of.rows(true),
            of.rows(false), problem.heads, problem.key_heads, of.terms(), section);
      });
  if (!tile.sums_dq)
    emulator::launch({.grid = {tiles_of(of, true, tile.warps * 16)},
                      .block = {tile.warps * 32},
                      .shared_bytes = Queries::bytes,
                      .seed = seed},
                     [&] {
                       attention_backward_queries_mma<Form, tile.n, tile.warps, tile.stages>(
                           of.q_rows(), of.k_rows(), of.v_rows(), of.dout_rows(), of.facts.data(),
                           of.told_query_offsets.data(), of.told_key_offsets.data(), of.dq.data(), of.count(),
                           of.rows(true), of.rows(false), problem.heads, problem.key_heads, of.terms(), section);
                     });
  launch_end(of, tile.sums_dq, seed);
}

template <typename Form, Tile tile = Tile{}>
double mma_error(const AttentionProblem& problem, std::uint32_t seed = 1, int section = 1) {
  AttentionBackward<Form> of(problem);
  launch_mma<Form, tile>(of, seed, section);
  return of.error();
}

constexpr double close = 8e-3;  // weights, their gradients and results are rounded to 8 bits
constexpr Tile recomputed = {.sums_dq = false};

TEST_CASE("attention_backward_mma takes lengths of one, odd ones and one past a tile") {
  using Form = AttentionForm<Layout::dense, Mask::none, 64>;
  for (const auto& sizes : {std::pair{1, 1}, {33, 65}, {31, 31}, {32, 32}, {70, 33}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    const AttentionProblem problem = {.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2};
    for (const std::uint32_t seed : {0u, 1u, 2u}) {
      CHECK(mma_error<Form>(problem, seed) < close);
      CHECK(mma_error<Form, recomputed>(problem, seed, 2) < close);
    }
  }
}

TEST_CASE("attention_backward_mma takes tiles whose warps share keys, and one buffer") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  const AttentionProblem problem = {.lengths = {{90, 100}}, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CHECK(mma_error<Form, Tile{.m = 32, .n = 32, .warps = 4, .stages = 1}>(problem, seed) < close);
    CHECK(mma_error<Form, Tile{.m = 64, .n = 32, .warps = 8, .stages = 2}>(problem, seed) < close);
    CHECK(mma_error<Form, Tile{.m = 64, .n = 64, .warps = 4, .stages = 2}>(problem, seed) < close);
    CHECK(mma_error<Form, Tile{.m = 64, .n = 32, .warps = 4, .stages = 1, .sums_dq = false}>(problem, seed) < close);
  }
}

TEST_CASE("attention_backward_mma takes head dimensions that differ, and some that are no multiple of 16 or 64") {
  const AttentionProblem problem = {.lengths = {{35, 50}}, .heads = 2, .scale = 0.2f};
  constexpr Tile shared = {.m = 32, .n = 32, .warps = 4};
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 96>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 128>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 40, 24>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 72, 40>, shared>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 72, 40>, recomputed>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>, shared>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>, recomputed>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 256>, shared>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 256>, recomputed>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 64, 64, SoftCap::none, Sinks::none, kiln::f16>>(problem) <
        close);
}

TEST_CASE("heads of a group add up in dk and dv; queries without keys and keys without queries have gradients of 0") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  for (const bool from_end : {true, false}) {
    CAPTURE(from_end);
    for (const AttentionProblem& problem :
         {AttentionProblem{.lengths = {{70, 40}}, .heads = 4, .key_heads = 1, .from_end = from_end},
          AttentionProblem{.lengths = {{40, 70}}, .heads = 4, .key_heads = 2, .from_end = from_end},
          AttentionProblem{.lengths = {{5, 170}}, .from_end = from_end},
          AttentionProblem{.lengths = {{170, 5}}, .from_end = from_end}}) {
      CHECK(mma_error<Form>(problem) < close);
      CHECK(mma_error<Form, recomputed>(problem) < close);
    }
  }
}

TEST_CASE("attention_backward_mma's window sees so many keys left and right of the diagonal") {
  using Form = AttentionForm<Layout::dense, Mask::window, 64>;
  for (const AttentionProblem& problem :
       {AttentionProblem{.lengths = {{70, 100}}, .left = 20, .right = 5},
        AttentionProblem{.lengths = {{70, 100}}, .left = 1000, .right = 1000},
        AttentionProblem{.lengths = {{100, 30}}, .from_end = false, .left = 10, .right = 0}}) {
    CHECK(mma_error<Form>(problem) < close);
    CHECK(mma_error<Form, recomputed>(problem) < close);
  }
}

TEST_CASE("packed sequences of attention_backward_mma see nothing of each other, and may be empty") {
  using Form = AttentionForm<Layout::packed, Mask::causal, 64>;
  AttentionProblem problem = {.lengths = {{35, 40}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2};
  for (int i = 0; i < 40; ++i) problem.lengths.emplace_back(i % 3, i % 5);
  for (const std::uint32_t seed : {0u, 1u}) {
    CHECK(mma_error<Form>(problem, seed) < close);
    CHECK(mma_error<Form, recomputed>(problem, seed) < close);
  }
}

TEST_CASE("attention_backward_mma bends logits by a soft cap, and sinks have gradients") {
  using Form = AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>;
  const AttentionProblem problem = {.lengths = {{35, 40}, {9, 0}, {3, 70}}, .heads = 2, .left = 12, .right = 3};
  CHECK(mma_error<Form>(problem) < close);
  CHECK(mma_error<Form, recomputed>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::causal, 64, 64, SoftCap::none, Sinks::head>>(
            {.lengths = {{50, 40}, {50, 40}}, .heads = 4, .key_heads = 2}) < close);
}

TEST_CASE("dk and dv always have the same bits, and so has dq where it is not a sum of parts") {
  using Form = AttentionForm<Layout::dense, Mask::none, 64>;
  const auto bits = [](std::uint32_t seed) {
    AttentionBackward<Form> of({.lengths = {{100, 130}}, .heads = 2});
    launch_mma<Form, recomputed>(of, seed, 1);
    std::vector<std::uint16_t> all;
    for (Matrix<kiln::bf16>* each : {&of.dq, &of.dk, &of.dv})
      for (std::int64_t i = 0; i < each->rows(); ++i)
        for (std::int64_t j = 0; j < each->columns(); ++j) all.push_back(each->at(i, j).bits);
    return all;
  };
  const auto first = bits(0);
  for (const std::uint32_t seed : {1u, 2u, 3u, 4u}) CHECK(bits(seed) == first);
}

TEST_CASE("attention_backward_mma takes ALiBi's slopes, which have no gradient, before either diagonal and past it") {
  for (const bool from_end : {true, false}) {
    CAPTURE(from_end);
    const AttentionProblem dense = {.lengths = {{70, 45}, {70, 45}}, .heads = 4, .key_heads = 2, .from_end = from_end};
    CHECK(mma_error<WithSlopes<Layout::dense, Mask::none>>(dense) < close);
    CHECK(mma_error<WithSlopes<Layout::dense, Mask::none>, recomputed>(dense) < close);
    CHECK(mma_error<WithSlopes<Layout::dense, Mask::causal>, Tile{.m = 64, .n = 32, .warps = 4}>(dense) < close);
  }
  const AttentionProblem packed = {.lengths = {{35, 45}, {9, 0}, {0, 5}, {3, 70}}, .heads = 2, .left = 12, .right = 3};
  CHECK(mma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>>(packed) < close);
  CHECK(mma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>, recomputed>(packed) < close);
}

TEST_CASE(
    "attention_backward_mma takes a bias, whose -inf hides keys, by batch and head or one for all, after a soft cap") {
  for (const bool of_batch : {true, false})
    for (const bool of_heads : {true, false}) {
      CAPTURE(of_batch);
      CAPTURE(of_heads);
      CHECK(mma_error<WithBias<Mask::none>>({.lengths = {{70, 45}, {70, 45}},
                                             .heads = 4,
                                             .key_heads = 2,
                                             .bias_of_batch = of_batch,
                                             .bias_of_heads = of_heads}) < close);
    }
  const AttentionProblem problem = {.lengths = {{70, 45}, {70, 45}}, .heads = 2, .left = 12, .right = 3};
  CHECK(mma_error<WithBias<Mask::causal, SoftCap::tanh>, Tile{.m = 64, .n = 32, .warps = 4}>(problem) < close);
  CHECK(mma_error<WithBias<Mask::causal, SoftCap::tanh>, recomputed>(problem) < close);
  CHECK(mma_error<WithBias<Mask::window, SoftCap::none, Alibi::head>>(problem) < close);
  CHECK(mma_error<WithBias<Mask::none>, recomputed>(problem) < close);
}

TEST_CASE(
    "attention_backward_mma drops what the forward pass does, in tiles of any size, and deltas are those of all weights") {
  const AttentionProblem dense = {.lengths = {{70, 45}, {70, 45}}, .heads = 4, .key_heads = 2};
  constexpr double near = close / 0.7;  // weights are divided by what is kept
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, recomputed>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.m = 64, .n = 32, .warps = 4}>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.m = 64, .n = 64, .warps = 4}>(dense) < near);
  const AttentionProblem packed = {
      .lengths = {{35, 45}, {9, 0}, {0, 5}, {3, 70}, {31, 40}}, .heads = 2, .left = 12, .right = 3, .p = 0.6f};
  using Packed = WithDropout<Layout::packed, Mask::window, SoftCap::tanh, Sinks::head>;
  CHECK(mma_error<Packed>(packed) < close / 0.4);
  CHECK(mma_error<Packed, recomputed>(packed) < close / 0.4);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::none, SoftCap::none, Sinks::none, 64, Bias::tensor, kiln::f16>>(
            dense) < near);
}

TEST_CASE("attention_backward_mma reports offsets that fall or pass the tensors, and is right in other sequences") {
  using Of = AttentionBackward<AttentionForm<Layout::packed, Mask::none, 64>>;
  check_reports_of_offsets<Of>([](Of& of, int) { launch_mma(of, 1, 1); }, close, false);
  Of of({.lengths = {{40, 50}, {20, 30}, {9, 12}}});
  of.told_query_offsets.back() = of.query_offsets[2] - 2;
  launch_mma(of, 1, 1);
  CHECK(of.reports[0] == report_of(-2, of.rows(true)));
  CHECK(of.dq.margins_untouched());
}

}  // namespace
