#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"
#include "attention_forward/mma.cuh"
#include "attention_offsets.hpp"

namespace {

using namespace test;

template <typename Form, int tile_n = 32, int warps = 2>
void launch_mma(Attention<Form>& of, std::uint32_t seed, int longest) {
  const AttentionProblem& problem = of.problem;
  const auto row_blocks = static_cast<unsigned>((longest + 16 * warps - 1) / (16 * warps));
  using kiln::attention::RowTile;
  const unsigned shared = RowTile<Form::head_dim, 16 * warps>::bytes +
                          2 * (RowTile<Form::head_dim, tile_n>::bytes + RowTile<Form::value_dim, tile_n>::bytes);
  emulator::launch({.grid = {row_blocks * static_cast<unsigned>(problem.heads * of.count())},
                    .block = {warps * 32},
                    .shared_bytes = shared,
                    .seed = seed},
                   [&] {
                     attention_mma<Form, tile_n, warps, typename Attention<Form>::Out>(
                         of.q_rows(), of.k_rows(), of.v_rows(), of.out_rows(), of.lse_sums(),
                         of.told_query_offsets.data(), of.told_key_offsets.data(), &of.reports[0], &of.reports[1],
                         of.count(), of.rows(true), of.rows(false), longest, problem.heads, problem.key_heads,
                         of.forward_terms(), of.q_scales.data(), of.k_scales.data(), of.v_scales.data());
                   });
}

template <typename Form, int tile_n = 32, int warps = 2>
double mma_error(const AttentionProblem& problem, std::uint32_t seed = 1) {
  Attention<Form> of(problem);
  launch_mma<Form, tile_n, warps>(of, seed, of.longest());
  return of.error();
}

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

TEST_CASE("attention_mma takes lengths of one, odd ones and one past a block") {
  using Form = AttentionForm<Layout::dense, Mask::none, 64>;
  for (const auto& sizes : {std::pair{1, 1}, {33, 65}, {7, 31}, {40, 32}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    for (const std::uint32_t seed : {0u, 1u, 2u})
      CHECK(mma_error<Form>({.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2}, seed) < close);
  }
}

TEST_CASE("attention_mma takes head dimensions that differ, and some that are no multiple of 16 or 64") {
  const AttentionProblem problem = {.lengths = {{35, 50}}, .scale = 0.2f};
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 96>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 40, 24>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 256>, 16>(problem) < close);
  CHECK(mma_error<AttentionForm<Layout::dense, Mask::none, 64, 64, SoftCap::none, Sinks::none, kiln::f16>>(problem) <
        close);
}

TEST_CASE(
    "a causal mask ends at the diagonal through the last query and key, or the first; rows without keys give 0 and -inf") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  for (const bool from_end : {true, false}) {
    CHECK(mma_error<Form>({.lengths = {{70, 40}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
    CHECK(mma_error<Form>({.lengths = {{40, 70}}, .heads = 3, .from_end = from_end}) < close);
  }
}

TEST_CASE("a window sees so many keys left and right of the diagonal") {
  using Form = AttentionForm<Layout::dense, Mask::window, 64>;
  CHECK(mma_error<Form>({.lengths = {{70, 100}}, .left = 20, .right = 5}) < close);
  CHECK(mma_error<Form>({.lengths = {{100, 30}}, .from_end = false, .left = 10, .right = 0}) < close);
}

TEST_CASE("packed sequences see nothing of each other or of what lies around them, and may be empty") {
  using Form = AttentionForm<Layout::packed, Mask::causal, 64>;
  CHECK(mma_error<Form>({.lengths = {{35, 40}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2}) < close);
}

TEST_CASE("a soft cap bends logits, a sink takes part in the sum") {
  using Form = AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>;
  CHECK(mma_error<Form>({.lengths = {{35, 40}, {9, 0}, {3, 70}}, .heads = 2, .left = 12, .right = 3}) < close);
}

TEST_CASE("attention_mma multiplies e4m3 as f16, each head by its own scales, into bf16") {
  using Dense = AttentionForm<Layout::dense, Mask::causal, 72, 40, SoftCap::none, Sinks::none, kiln::e4m3>;
  using Packed = AttentionForm<Layout::packed, Mask::none, 64, 64, SoftCap::tanh, Sinks::head, kiln::e4m3>;
  for (const std::uint32_t seed : {0u, 1u}) {
    CHECK(mma_error<Dense>({.lengths = {{40, 50}, {40, 50}}, .heads = 4, .key_heads = 2}, seed) < close);
    CHECK(mma_error<Packed>({.lengths = {{35, 40}, {0, 7}, {9, 0}, {3, 33}}, .heads = 3, .key_heads = 3}, seed) <
          close);
  }
}

TEST_CASE(
    "attention_mma lowers logits by their distance from either diagonal, after a soft cap, by each head's slope") {
  for (const bool from_end : {true, false}) {
    CAPTURE(from_end);
    CHECK(mma_error<WithSlopes<Layout::dense, Mask::none>>(
              {.lengths = {{40, 77}, {40, 77}}, .heads = 3, .from_end = from_end}) < close);
    CHECK(mma_error<WithSlopes<Layout::dense, Mask::causal>>(
              {.lengths = {{77, 40}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
  }
  CHECK(mma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>>(
            {.lengths = {{35, 77}, {9, 0}, {0, 5}, {3, 70}}, .heads = 2, .left = 12, .right = 3}) < close);
}

TEST_CASE("attention_mma adds a bias, whose -inf hides keys, by batch and head or one for all, after a soft cap") {
  for (const bool of_batch : {true, false})
    for (const bool of_heads : {true, false}) {
      CAPTURE(of_batch);
      CAPTURE(of_heads);
      CHECK(mma_error<WithBias<Mask::none>>({.lengths = {{40, 77}, {40, 77}},
                                             .heads = 4,
                                             .key_heads = 2,
                                             .bias_of_batch = of_batch,
                                             .bias_of_heads = of_heads}) < close);
    }
  CHECK(mma_error<WithBias<Mask::causal, SoftCap::tanh>>({.lengths = {{77, 40}}, .heads = 4, .key_heads = 2}) < close);
  CHECK(mma_error<WithBias<Mask::window, SoftCap::none, Alibi::head>>(
            {.lengths = {{40, 77}}, .heads = 2, .left = 12, .right = 3}) < close);
}

TEST_CASE("attention_mma drops the weights that seed, offset and position say, in tiles of any size, and leaves lse") {
  const AttentionProblem dense = {.lengths = {{40, 77}, {40, 77}}, .heads = 4, .key_heads = 2};
  constexpr double near = close / 0.7;  // weights are divided by what is kept
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, 32, 2>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, 16, 1>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, 64, 4>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::causal>, 48, 2>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::none, SoftCap::none, Sinks::head, 64, Bias::tensor>>(dense) < near);
  CHECK(mma_error<WithDropout<Layout::packed, Mask::window, SoftCap::tanh>>(
            {.lengths = {{35, 77}, {9, 0}, {0, 5}, {3, 70}, {31, 40}}, .heads = 2, .left = 12, .right = 3, .p = 0.9f}) <
        close / 0.1);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::none>>({.lengths = {{20, 30}}, .p = 0}) < close);
  CHECK(mma_error<WithDropout<Layout::dense, Mask::none>>({.lengths = {{20, 300}}, .p = 0.996f}) < 0.3);  // 255 of 256
}

TEST_CASE(
    "attention_mma reports offsets that fall or pass the tensors, and sequences past the longest, and is right in others") {
  using Form = AttentionForm<Layout::packed, Mask::none, 64>;
  check_reports_of_offsets<Attention<Form>>([](auto& of, int longest) { launch_mma<Form>(of, 1, longest); }, close);
  Attention<Form> of({.lengths = {{70, 50}, {20, 30}}});
  launch_mma<Form>(of, 1, 32);
  CHECK(of.reports[0] == report_of(70, 32));
  of.problem.lengths[0].first = 32;  // later queries are not computed
  CHECK(of.error() < close);
}

}  // namespace
