#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
#include "emulator/tensor_map.hpp"
// What kernels include comes after what they take for built in.
#include "attention_backward.hpp"
#include "attention_backward/wgmma.cuh"
#include "attention_offsets.hpp"

namespace {

using namespace test;

/// A tensor as [planes, tokens, heads, columns].
template <typename Tile, typename Form>
kiln::tensor_map map_of(const AttentionBackward<Form>& of, Matrix<typename Form::T>& operand, bool of_queries,
                        int heads, int rows) {
  const auto columns = static_cast<std::uint32_t>(operand.columns() / heads);
  const auto row_bytes = static_cast<std::uint64_t>(operand.stride() * 2);
  const auto plane_bytes = std::max(static_cast<std::uint64_t>(of.batch_stride(operand, of_queries) * 2), row_bytes);
  return emulator::tensor_map<kiln::tensor_map>(
      operand.data(), 2,
      {columns, static_cast<std::uint32_t>(heads), static_cast<std::uint32_t>(of.rows(of_queries)),
       static_cast<std::uint32_t>(of.planes())},
      {columns * 2, row_bytes, plane_bytes}, {Tile::box_columns, 1, static_cast<std::uint32_t>(rows), 1},
      Tile::swizzle);
}

struct Tile {
  int m = 64, n = 128, stages = 2;
  bool split = false, sums_dq = true, by_head = false;
};

template <typename Form, int tile_m>
void launch_queries(AttentionBackward<Form>& of, std::uint32_t seed, int section) {
  constexpr int tile_n = 64, stages = 2;
  using Tiles = kiln::attention::QueryWgmma<Form, tile_m, tile_n, stages>;
  const AttentionProblem& problem = of.problem;
  const auto q = map_of<typename Tiles::Query>(of, of.q, true, problem.heads, tile_m);
  const auto k = map_of<typename Tiles::Key>(of, of.k, false, problem.key_heads, tile_n);
  const auto v = map_of<typename Tiles::Value>(of, of.v, false, problem.key_heads, tile_n);
  const auto dout = map_of<typename Tiles::Gradient>(of, of.dout, true, problem.heads, tile_m);
  emulator::launch({.grid = {tiles_of(of, true, tile_m)},
                    .block = {Tiles::threads},
                    .shared_bytes = kiln::attention::QueryLayout<Tiles>::bytes,
                    .seed = seed},
                   [&] {
                     attention_backward_queries_wgmma<Form, tile_m, tile_n, stages>(
                         q, k, v, dout, of.facts.data(), of.told_query_offsets.data(), of.told_key_offsets.data(),
                         of.dq_rows(), of.count(), of.rows(true), of.rows(false), problem.heads, problem.key_heads,
                         of.terms(), section);
                   });
}

template <typename Form, Tile tile = Tile{}>
void launch_wgmma(AttentionBackward<Form>& of, std::uint32_t seed, int section) {
  using Tiles = kiln::attention::BackwardWgmma<Form, tile.m, tile.n, tile.stages, tile.split, tile.sums_dq>;
  const AttentionProblem& problem = of.problem;
  const auto q = map_of<typename Tiles::Query>(of, of.q, true, problem.heads, tile.m);
  const auto k = map_of<typename Tiles::Key>(of, of.k, false, problem.key_heads, tile.n);
  const auto v = map_of<typename Tiles::Value>(of, of.v, false, problem.key_heads, tile.n);
  const auto dout = map_of<typename Tiles::Gradient>(of, of.dout, true, problem.heads, tile.m);
  launch_rows<Form, tile.sums_dq, tile.by_head>(of, seed);
  emulator::launch(
      {.grid = {tiles_of(of, false, tile.n, tile.by_head ? problem.heads : problem.key_heads)},
       .block = {Tiles::threads},
       .shared_bytes = kiln::attention::BackwardLayout<Tiles>::bytes,
       .seed = seed},
      [&] {
        attention_backward_keys_wgmma<Form, tile.m, tile.n, tile.stages, tile.split, tile.sums_dq, tile.by_head>(
            q, k, v, dout, of.facts.data(), of.told_query_offsets.data(), of.told_key_offsets.data(), of.sums.data(),
            of.key_sums.data(), of.dk_rows(), of.dv_rows(), of.count(), of.rows(true), of.rows(false), problem.heads,
            problem.key_heads, of.terms(), section);
      });
  if (!tile.sums_dq) launch_queries<Form, tile.m>(of, seed, section);
  launch_end<true>(of, tile.sums_dq, seed);
  if (tile.by_head) launch_convert_keys(of, seed);
}

template <typename Form, Tile tile = Tile{}>
double wgmma_error(const AttentionProblem& problem, std::uint32_t seed = 1, int section = 1) {
  AttentionBackward<Form> of(problem);
  launch_wgmma<Form, tile>(of, seed, section);
  return of.error();
}

constexpr double close = 8e-3;  // weights, their gradients and results are rounded to 8 bits
constexpr Tile recomputed = {.sums_dq = false};

TEST_CASE("attention_backward_wgmma takes lengths of one, odd ones and one past a tile") {
  using Form = AttentionForm<Layout::dense, Mask::none, 64>;
  for (const auto& sizes : {std::pair{1, 1}, {65, 129}, {63, 127}, {64, 128}, {200, 140}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    for (const std::uint32_t seed : {0u, 1u})
      CHECK(wgmma_error<Form>({.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2}, seed) <
            close);
  }
}

TEST_CASE("attention_backward_wgmma takes wide tiles of queries, one warpgroup, and two that share keys") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  const AttentionProblem problem = {.lengths = {{200, 210}, {200, 210}}, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u}) {
    CAPTURE(seed);
    CHECK(wgmma_error<Form, Tile{.m = 128, .n = 128}>(problem, seed) < close);
    CHECK(wgmma_error<Form, Tile{.m = 64, .n = 64, .stages = 1}>(problem, seed, 2) < close);
    CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 96>, Tile{.n = 64, .split = true}>(problem, seed) <
          close);
    CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 128>, Tile{.n = 64, .split = true}>(problem, seed) <
          close);
    CHECK(wgmma_error<Form, Tile{.m = 128, .sums_dq = false}>(problem, seed) < close);
  }
}

TEST_CASE("attention_backward_wgmma takes head dimensions that differ, and of 32 times an odd number") {
  const AttentionProblem problem = {.lengths = {{70, 90}}, .heads = 2, .scale = 0.2f};
  constexpr Tile split = {.n = 64, .split = true};
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 96>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 128>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>, split>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 256>, Tile{.n = 64, .stages = 1, .split = true}>(problem) <
        close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 96>, recomputed>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 256>, Tile{.n = 64, .split = true, .sums_dq = false}>(
            problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64, 64, SoftCap::none, Sinks::none, kiln::f16>>(problem) <
        close);
}

TEST_CASE("attention_backward_wgmma takes head dimensions of any multiple of 8, past which its tiles have zeros") {
  const AttentionProblem problem = {.lengths = {{70, 90}}, .heads = 2, .scale = 0.2f};
  constexpr Tile split = {.n = 64, .split = true};
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 72>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 40>, Tile{.m = 128}>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 112, 80>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 104, 72>, split>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 8, 8>, split>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 224>, Tile{.n = 64, .stages = 1, .split = true}>(problem) <
        close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 80, 56>, recomputed>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 80>, Tile{.by_head = true}>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 112, 72>, Tile{.n = 64, .split = true, .by_head = true}>(
            problem) < close);
  for (const std::uint32_t seed : {0u, 1u})
    CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 72>>(
              {.lengths = {{3, 70}, {0, 5}, {129, 131}, {9, 0}}, .heads = 2, .scale = 0.2f}, seed) < close);
}

TEST_CASE("attention_backward_wgmma takes 128 keys where the sums of dk and dv leave few registers") {
  using Causal = AttentionForm<Layout::dense, Mask::causal, 192, 128>;
  const AttentionProblem small = {.lengths = {{70, 90}}, .heads = 2, .scale = 0.2f};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(wgmma_error<Causal>({.lengths = {{200, 210}, {200, 210}}, .heads = 2}, seed) < close);
    CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 192, 128>>(
              {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 130}}, .heads = 2}, seed) < close);
  }
  for (const auto& sizes : {std::pair{1, 1}, {65, 129}, {63, 127}, {64, 128}})
    CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 192, 128>>({.lengths = {sizes}, .heads = 1}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::window, 192, 128>>(
            {.lengths = {{150, 300}}, .left = 30, .right = 5}) < close);
  CHECK(wgmma_error<Causal, recomputed>(small) < close);
  CHECK(wgmma_error<Causal, Tile{.by_head = true}>({.lengths = {{140, 150}}, .heads = 4, .key_heads = 2}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 144>>(small) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 160>>(small) < close);
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::none, 208, 112>, recomputed>(
            {.lengths = {{3, 70}, {129, 1}, {70, 131}}, .scale = 0.2f}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 192, 128, SoftCap::none, Sinks::none, kiln::f16>>(small) <
        close);
}

TEST_CASE("attention_backward_wgmma's causal mask ends at either diagonal, and heads of a group add up") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  for (const bool from_end : {true, false}) {
    CHECK(wgmma_error<Form>({.lengths = {{270, 100}}, .heads = 4, .key_heads = 1, .from_end = from_end}) < close);
    CHECK(wgmma_error<Form, recomputed>({.lengths = {{270, 100}}, .heads = 2, .from_end = from_end}) < close);
    CHECK(wgmma_error<Form>({.lengths = {{100, 270}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
  }
}

TEST_CASE("attention_backward_wgmma adds up dk and dv of heads that share a key head, a block each") {
  using Causal = AttentionForm<Layout::dense, Mask::causal, 64>;
  constexpr Tile by_head = {.by_head = true}, alone = {.sums_dq = false, .by_head = true};
  const AttentionProblem grouped = {.lengths = {{200, 140}, {200, 140}}, .heads = 4, .key_heads = 2};
  CHECK(wgmma_error<Causal, by_head>(grouped, 0) < close);
  CHECK(wgmma_error<Causal, Tile{.m = 128, .by_head = true}>(grouped, 1, 8) < close);
  const AttentionProblem small = {.lengths = {{70, 90}}, .heads = 4, .key_heads = 1, .scale = 0.2f};
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 128>, by_head>(small) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 96>, alone>(small) < close);
  CHECK(
      wgmma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>, Tile{.n = 64, .split = true, .by_head = true}>(
          small) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64, 64, SoftCap::none, Sinks::none, kiln::f16>, by_head>(
            small) < close);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, by_head>(
            {.lengths = {{140, 131}, {140, 131}}, .heads = 2, .key_heads = 1}) < close / 0.7);
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::window, 64>, by_head>(
            {.lengths = {{10, 200}, {0, 200}, {100, 1000}}, .heads = 2, .from_end = false, .left = 40, .right = 3}) <
        close);
  AttentionProblem packed = {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 4, .key_heads = 2};
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 64>, by_head>(packed, 0, 0) < close);
  for (int i = 0; i < 40; ++i) packed.lengths.emplace_back(i % 3, i % 5);
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 64>, by_head>(packed, 1) < close);
}

TEST_CASE("attention_backward_wgmma's window sees so many keys left and right of the diagonal") {
  using Form = AttentionForm<Layout::dense, Mask::window, 64>;
  CHECK(wgmma_error<Form>({.lengths = {{150, 300}}, .left = 30, .right = 5}) < close);
  CHECK(wgmma_error<Form>({.lengths = {{150, 300}}, .left = 200, .right = 100}) < close);
  CHECK(wgmma_error<Form>({.lengths = {{300, 100}}, .from_end = false, .left = 10, .right = 0}) < close);
}

TEST_CASE("packed sequences of attention_backward_wgmma see nothing of each other, whatever neighbours hold") {
  using Form = AttentionForm<Layout::packed, Mask::causal, 64>;
  AttentionProblem problem = {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2};
  for (int i = 0; i < 40; ++i) problem.lengths.emplace_back(i % 3, i % 5);
  CHECK(wgmma_error<Form>(problem, 0) < close);
  CHECK(wgmma_error<Form, Tile{.m = 128}>(problem, 1) < close);
  CHECK(wgmma_error<Form, recomputed>(problem, 0) < close);
  for (const std::uint32_t seed : {0u, 1u})
    CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::none, 128>, Tile{.n = 64, .split = true}>(
              {.lengths = {{3, 70}, {129, 1}}, .scale = 0.2f}, seed) < close);
}

TEST_CASE("attention_backward_wgmma is right with sorted tiles of few packed sequences, and with many sequences") {
  using Causal = AttentionForm<Layout::packed, Mask::causal, 64>;
  using Whole = AttentionForm<Layout::packed, Mask::none, 64>;
  AttentionProblem problem = {.lengths = {{20, 30}, {0, 7}, {300, 290}, {1, 1}, {20, 0}, {64, 140}}, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u}) {
    CHECK(wgmma_error<Causal>(problem, seed, 0) < close);
    CHECK(wgmma_error<Causal, recomputed>(problem, seed, 0) < close);
    CHECK(wgmma_error<Whole>(problem, seed, 0) < close);
    CHECK(wgmma_error<Whole, recomputed>(problem, seed, 0) < close);
  }
  for (int i = 0; i < 40; ++i) problem.lengths.emplace_back(i % 3, i % 5);
  CHECK(wgmma_error<Causal>(problem, 0, 0) < close);
}

TEST_CASE("attention_backward_wgmma gives keys zeros that lie past the last query's window") {
  using Form = AttentionForm<Layout::packed, Mask::window, 64>;
  CHECK(wgmma_error<Form>({.lengths = {{10, 200}, {0, 200}, {100, 1000}}, .from_end = false, .left = 40, .right = 3}) <
        close);
}

TEST_CASE("attention_backward_wgmma bends logits by a soft cap, and sinks have gradients") {
  using Form = AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>;
  const AttentionProblem problem = {.lengths = {{35, 140}, {9, 0}, {3, 70}}, .heads = 2, .left = 12, .right = 3};
  CHECK(wgmma_error<Form>(problem) < close);
  CHECK(wgmma_error<Form, recomputed>(problem) < close);
}

TEST_CASE("attention_backward_wgmma takes ALiBi's slopes, which have no gradient, before either diagonal and past it") {
  for (const bool from_end : {true, false}) {
    CAPTURE(from_end);
    const AttentionProblem dense = {
        .lengths = {{140, 130}, {140, 130}}, .heads = 2, .key_heads = 1, .from_end = from_end};
    CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::none>>(dense) < close);
    CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::none>, recomputed>(dense) < close);
    CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::causal>, Tile{.n = 64, .split = true}>(dense) < close);
  }
  const AttentionProblem packed = {.lengths = {{35, 150}, {9, 0}, {0, 5}, {3, 70}}, .heads = 2, .left = 12, .right = 3};
  CHECK(wgmma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>>(packed) < close);
  CHECK(wgmma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>, recomputed>(packed) < close);
}

TEST_CASE(
    "attention_backward_wgmma takes a bias, whose -inf hides keys, by batch and head or one for all, after a soft cap") {
  for (const bool of_batch : {true, false})
    for (const bool of_heads : {true, false}) {
      CAPTURE(of_batch);
      CAPTURE(of_heads);
      CHECK(wgmma_error<WithBias<Mask::none>>({.lengths = {{140, 131}, {140, 131}},
                                               .heads = 2,
                                               .key_heads = 1,
                                               .bias_of_batch = of_batch,
                                               .bias_of_heads = of_heads}) < close);
    }
  const AttentionProblem problem = {.lengths = {{140, 131}, {140, 131}}, .heads = 2, .left = 12, .right = 3};
  CHECK(wgmma_error<WithBias<Mask::causal, SoftCap::tanh>, Tile{.n = 64, .split = true}>(problem) < close);
  CHECK(wgmma_error<WithBias<Mask::causal, SoftCap::tanh>, recomputed>(problem) < close);
  CHECK(wgmma_error<WithBias<Mask::window, SoftCap::none, Alibi::head>>(problem) < close);
  CHECK(wgmma_error<WithBias<Mask::none>, recomputed>(problem) < close);
}

TEST_CASE(
    "attention_backward_wgmma drops what the forward pass does, in tiles of any size, and deltas are those of all weights") {
  const AttentionProblem dense = {.lengths = {{140, 131}, {140, 131}}, .heads = 2, .key_heads = 1};
  constexpr double near = close / 0.7;  // weights are divided by what is kept
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>>(dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, recomputed>(dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.n = 64, .split = true}>(dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.n = 64, .stages = 1}>(dense) < near);
  const AttentionProblem packed = {
      .lengths = {{35, 151}, {9, 0}, {0, 5}, {3, 70}, {31, 40}}, .heads = 2, .left = 12, .right = 3, .p = 0.6f};
  using Packed = WithDropout<Layout::packed, Mask::window, SoftCap::tanh, Sinks::head>;
  CHECK(wgmma_error<Packed>(packed) < close / 0.4);
  CHECK(wgmma_error<Packed, recomputed>(packed) < close / 0.4);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::none, SoftCap::none, Sinks::none, 64, Bias::tensor, kiln::f16>>(
            dense) < near);
}

TEST_CASE("attention_backward_wgmma is right in other sequences where offsets fall or pass the tensors") {
  using Of = AttentionBackward<AttentionForm<Layout::packed, Mask::none, 64>>;
  check_reports_of_offsets<Of>([](Of& of, int) { launch_wgmma(of, 1, 1); }, close, false);
}

}  // namespace
