#include <doctest/doctest.h>

#include "attention_offsets.hpp"
#include "attention_wgmma.hpp"

namespace {

using namespace test;

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

TEST_CASE("attention_wgmma takes lengths of one, odd ones and one past a block") {
  using Form = AttentionForm<Layout::dense, Mask::none, 64>;
  for (const auto& sizes : {std::pair{1, 1}, {129, 65}, {7, 63}, {140, 200}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    for (const std::uint32_t seed : {0u, 1u, 2u}) {
      CAPTURE(seed);
      CHECK(wgmma_error<Form>({.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2}, seed) <
            close);
    }
  }
}

TEST_CASE("attention_wgmma takes its products in turn, by turns of warpgroups, and with three of these") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  const AttentionProblem problem = {.lengths = {{200, 210}, {200, 210}}, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    CHECK(wgmma_error<Form, Tile{.overlap = false, .lazy = 1}>(problem, seed) < close);
    CHECK(wgmma_error<Form, Tile{.pingpong = true, .lazy = 1}>(problem, seed) < close);
    CHECK(wgmma_error<Form, Tile{.m = 192, .n = 80, .stages = 3, .pingpong = true}>(problem, seed) < close);
    CHECK(wgmma_error<Form, Tile{.m = 64, .n = 16, .stages = 1}>(problem, seed) < close);
  }
}

TEST_CASE(
    "attention_wgmma waits for values amid exponentials, with queries in registers, and moves rows' origins one by one") {
  constexpr Tile rows = {.pingpong = true, .lazy = 2}, amid = {.n = 128, .pingpong = true, .late = true, .lazy = 2},
                 held = {.pingpong = true, .holds_queries = true, .late = true, .drawn = true, .lazy = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    for (const float scale : {0.1f, 5.0f}) {  // of few moves, and of many
      CAPTURE(scale);
      const AttentionProblem problem = {.lengths = {{200, 410}, {200, 410}}, .heads = 2, .scale = scale};
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 64>, rows>(problem, seed) < close);
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 128>, amid>(problem, seed) < close);
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64>, held>(problem, seed) < close);
    }
  }
  // Rows without keys, sinks and columns past a multiple of 32.
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 72, 72, SoftCap::none, Sinks::head>, held>(
            {.lengths = {{270, 100}}, .heads = 4, .key_heads = 2, .from_end = false}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 64>, amid>(
            {.lengths = {{270, 100}}, .heads = 4, .key_heads = 2}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::window, 64>, held>(
            {.lengths = {{90, 90}, {0, 40}, {200, 300}}, .heads = 2, .left = 70}) < close);
}

TEST_CASE("blocks of attention_wgmma_pair bring keys and values to each other, also where one has no queries") {
  constexpr Tile two = {.n = 64, .pingpong = true, .pair = true},
                 three = {.m = 192, .n = 80, .stages = 3, .pingpong = true, .pair = true, .lazy = 2};
  using Form = AttentionForm<Layout::dense, Mask::none, 128>;
  for (const auto& sizes : {std::pair{1, 1}, {129, 65}}) {
    const auto queries = sizes.first, keys = sizes.second;
    CAPTURE(queries);
    for (const std::uint32_t seed : {0u, 1u}) {
      CAPTURE(seed);
      const AttentionProblem problem = {.lengths = {{queries, keys}}, .heads = 2, .key_heads = 1};
      CHECK(wgmma_error<Form, two>(problem, seed) < close);
      CHECK(wgmma_error<Form, three>(problem, seed) < close);
    }
  }
  CHECK(wgmma_error<Form, two>({.lengths = {{257, 130}, {257, 130}}, .heads = 2, .key_heads = 2}, 1, 4) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 256>, Tile{.n = 80, .stages = 1, .pair = true}>(
            {.lengths = {{70, 90}}}) < close);
}

TEST_CASE("heads of one key head share a tile of attention_wgmma") {
  constexpr Tile two = {.pingpong = true, .holds_queries = true, .late = true, .lazy = 2, .section = 2, .heads = 2},
                 four = {.n = 80, .late = true, .drawn = true, .lazy = 2, .section = 8, .heads = 4, .trims = true},
                 eight = {.m = 192,
                          .n = 80,
                          .stages = 3,
                          .pingpong = true,
                          .late = true,
                          .drawn = true,
                          .lazy = 2,
                          .section = 8,
                          .heads = 8,
                          .trims = true},
                 alone = {.m = 64, .section = 8, .heads = 8};
  using Windowed = AttentionForm<Layout::dense, Mask::window, 64>;
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    for (const auto& [queries, keys] : {std::pair{1, 1}, {23, 70}, {49, 50}, {40, 25}}) {
      CAPTURE(queries);
      for (const int left : {0, 9, 500}) {
        CAPTURE(left);
        const AttentionProblem problem = {
            .lengths = {{queries, keys}, {queries, keys}}, .heads = 16, .key_heads = 2, .left = left};
        CHECK(wgmma_error<Windowed, eight>(problem, seed, 3) < close);
      }
    }
    const AttentionProblem grouped = {.lengths = {{70, 90}}, .heads = 8, .key_heads = 2, .left = 20, .right = 3};
    CHECK(wgmma_error<Windowed, two>(grouped, seed) < close);
    CHECK(wgmma_error<Windowed, four>(grouped, seed) < close);
    CHECK(wgmma_error<Windowed, four>({.lengths = {{90, 210}}, .heads = 4, .left = 110, .right = 3}, seed) < close);
  }
  using Causal = AttentionForm<Layout::dense, Mask::causal, 72, 72, SoftCap::none, Sinks::head>;
  CHECK(wgmma_error<Causal, four>({.lengths = {{37, 20}}, .heads = 8, .key_heads = 2, .from_end = false}) < close);
  CHECK(wgmma_error<Causal, alone>({.lengths = {{17, 40}}, .heads = 8, .key_heads = 1}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::none, Sinks::head>, eight>(
            {.lengths = {{30, 33}, {0, 7}, {1, 1}, {20, 0}, {26, 90}}, .heads = 8, .left = 15}, 1, 3) < close);
}

TEST_CASE("heads share a tile of attention_wgmma where its rows, or eight of them, are no multiple of theirs") {
  constexpr Tile
      three = {.n = 80, .late = true, .drawn = true, .lazy = 1, .section = 6, .heads = 3, .trims = true},
      five = {.m = 192,
              .n = 80,
              .stages = 3,
              .pingpong = true,
              .late = true,
              .drawn = true,
              .lazy = 2,
              .section = 5,
              .heads = 5,
              .trims = true},
      six = {.m = 192, .n = 80, .stages = 3, .pingpong = true, .lazy = 2, .section = 6, .heads = 6},
      seven = {.pingpong = true, .holds_queries = true, .late = true, .lazy = 2, .section = 7, .heads = 7},
      alone = {.m = 64, .overlap = false, .section = 5, .heads = 5},
      wide = {.m = 192, .n = 80, .stages = 3, .pingpong = true, .late = true, .lazy = 2, .section = 7, .heads = 7};
  using Windowed = AttentionForm<Layout::dense, Mask::window, 64>;
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    for (const auto& [queries, keys] : {std::pair{1, 1}, {38, 90}, {39, 40}, {53, 25}}) {
      CAPTURE(queries);
      for (const int left : {0, 9, 500}) {
        CAPTURE(left);
        CHECK(wgmma_error<Windowed, five>(
                  {.lengths = {{queries, keys}, {queries, keys}}, .heads = 10, .key_heads = 2, .left = left}, seed, 3) <
              close);
      }
    }
    const auto grouped = [](int queries, int left, int heads, int key_heads) {
      return AttentionProblem{
          .lengths = {{queries, queries + 120}}, .heads = heads, .key_heads = key_heads, .left = left, .right = 3};
    };
    for (const auto& [queries, left] : {std::pair{41, 20}, {43, 150}, {90, 110}}) {
      CAPTURE(queries);
      CHECK(wgmma_error<Windowed, three>(grouped(queries, left, 6, 2), seed) < close);
      CHECK(wgmma_error<Windowed, five>(grouped(queries, left, 5, 1), seed) < close);
      CHECK(wgmma_error<Windowed, six>(grouped(queries, left, 12, 1), seed) < close);
      CHECK(wgmma_error<Windowed, seven>(grouped(queries, left, 7, 1), seed) < close);
      CHECK(wgmma_error<Windowed, alone>(grouped(queries, left, 5, 1), seed) < close);
    }
  }
  using Causal = AttentionForm<Layout::dense, Mask::causal, 72, 72, SoftCap::none, Sinks::head>;
  CHECK(wgmma_error<Causal, three>({.lengths = {{45, 20}}, .heads = 6, .key_heads = 2, .from_end = false}) < close);
  CHECK(wgmma_error<Causal, six>({.lengths = {{70, 90}}, .heads = 6}) < close);
  CHECK(wgmma_error<Causal, alone>({.lengths = {{27, 40}}, .heads = 10, .key_heads = 1}) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 128>, wide>({.lengths = {{60, 170}}, .heads = 7}) <
        close);
  using Packed = AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::none, Sinks::head>;
  const std::vector<std::pair<int, int>> lengths = {{40, 43}, {0, 7}, {1, 1}, {20, 0}, {26, 90}};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CHECK(wgmma_error<Packed, five>({.lengths = lengths, .heads = 5, .left = 15}, seed, 3) < close);
    CHECK(wgmma_error<Packed, seven>({.lengths = lengths, .heads = 14, .key_heads = 2, .left = 15}, seed, 3) < close);
  }
}

TEST_CASE("warpgroups of attention_wgmma without queries let the others have their turns") {
  constexpr Tile turns = {.m = 192, .n = 80, .stages = 3, .pingpong = true, .late = true, .lazy = 2, .trims = true},
                 one_stage = {.n = 64, .stages = 1, .drawn = true, .trims = true},
                 held = {.pingpong = true, .holds_queries = true, .late = true, .lazy = 2, .trims = true},
                 pair = {.n = 64, .pingpong = true, .pair = true, .lazy = 2, .trims = true};
  for (const std::uint32_t seed : {0u, 1u, 2u, 3u}) {
    CAPTURE(seed);
    for (const auto& [queries, keys] : {std::pair{1, 300}, {65, 64}, {193, 130}, {260, 161}, {192, 0}}) {
      CAPTURE(queries);
      const AttentionProblem problem = {.lengths = {{queries, keys}, {queries, keys}}, .heads = 2, .key_heads = 2};
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64>, turns>(problem, seed) < close);
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 64>, held>(problem, seed) < close);
      CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64>, one_stage>(problem, seed) < close);
    }
    CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 64>, turns>(
              {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2}, seed, 3) < close);
    CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 128>, pair>(
              {.lengths = {{140, 130}, {140, 130}}, .heads = 2, .key_heads = 2}, seed, 4) < close);
  }
}

TEST_CASE("attention_wgmma takes head dimensions that differ, and of 32 times an odd number") {
  const AttentionProblem problem = {.lengths = {{70, 90}}, .scale = 0.2f};
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 96>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 128>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 192, 128>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 256>, Tile{.n = 80, .stages = 1}>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 64, 64, SoftCap::none, Sinks::none, kiln::f16>>(problem) <
        close);
}

TEST_CASE("attention_wgmma takes head dimensions of any multiple of 8, past which its tiles have zeros") {
  const AttentionProblem problem = {.lengths = {{70, 90}}, .heads = 2, .key_heads = 2, .scale = 0.2f};
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 40>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 72>, Tile{.m = 192, .n = 96, .pingpong = true}>(problem) <
        close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::causal, 80, 104>>(problem) < close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 8, 24, SoftCap::none, Sinks::none, kiln::f16>>(problem) <
        close);
  CHECK(wgmma_error<AttentionForm<Layout::dense, Mask::none, 224>, Tile{.n = 80, .stages = 1}>(problem) < close);
  for (const std::uint32_t seed : {0u, 1u, 2u})
    CHECK(wgmma_error<AttentionForm<Layout::packed, Mask::causal, 112, 56>>(
              {.lengths = {{3, 70}, {0, 5}, {129, 131}, {9, 0}}, .heads = 2, .scale = 0.2f}, seed) < close);
}

TEST_CASE("attention_wgmma's causal mask ends at either diagonal; rows without keys give 0 and -inf") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  for (const bool from_end : {true, false}) {
    CHECK(wgmma_error<Form>({.lengths = {{270, 100}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
    CHECK(wgmma_error<Form>({.lengths = {{100, 270}}, .heads = 3, .from_end = from_end}) < close);
  }
}

TEST_CASE("attention_wgmma's window sees so many keys left and right of the diagonal") {
  using Form = AttentionForm<Layout::dense, Mask::window, 64>;
  CHECK(wgmma_error<Form>({.lengths = {{150, 300}}, .left = 30, .right = 5}) < close);
  CHECK(wgmma_error<Form>({.lengths = {{150, 300}}, .left = 200, .right = 100}) < close);
  CHECK(wgmma_error<Form>({.lengths = {{300, 100}}, .from_end = false, .left = 10, .right = 0}) < close);
}

TEST_CASE(
    "packed sequences of attention_wgmma see nothing of each other, and may be empty; tiles are drawn or dealt out") {
  using Form = AttentionForm<Layout::packed, Mask::causal, 64>;
  AttentionProblem problem = {.lengths = {{135, 140}, {0, 7}, {1, 1}, {20, 0}, {64, 64}}, .heads = 2};
  for (int i = 0; i < 40; ++i) problem.lengths.emplace_back(i % 3, i % 5);
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CHECK(wgmma_error<Form>(problem, seed, 3) < close);
    CHECK(wgmma_error<Form, Tile{.drawn = true, .section = 2}>(problem, seed, 3) < close);
  }
}

TEST_CASE(
    "attention_wgmma reports offsets that fall or pass the tensors, and sequences past the longest, and is right in others") {
  using Form = AttentionForm<Layout::packed, Mask::none, 64>;
  check_reports_of_offsets<Attention<Form>>([](auto& of, int longest) { CHECK(launch_wgmma<Form>(of, 1, 2, longest)); },
                                            close);
  Attention<Form> of({.lengths = {{70, 50}, {20, 30}}});
  CHECK(launch_wgmma<Form>(of, 1, 2, 32));
  CHECK(of.reports[0] == report_of(70, 32));
  CHECK(of.error() < close);
}

TEST_CASE("the values of a sequence's last block are zero past its end, whatever its neighbour holds") {
  using Form = AttentionForm<Layout::packed, Mask::none, 96>;
  for (const std::uint32_t seed : {0u, 1u, 2u})
    CHECK(wgmma_error<Form>({.lengths = {{3, 70}, {129, 1}}, .scale = 0.2f}, seed) < close);
}

TEST_CASE("attention_wgmma's tiles go by sections of heads") {
  using Form = AttentionForm<Layout::dense, Mask::causal, 64>;
  CHECK(wgmma_error<Form, Tile{.n = 128, .section = 2}>({.lengths = {{200, 200}}, .heads = 5}, 1, 4) < close);
  CHECK(wgmma_error<Form, Tile{.n = 128, .drawn = true, .section = 9}>({.lengths = {{200, 200}}, .heads = 5}, 1, 4) <
        close);
}

TEST_CASE("attention_wgmma caps logits and adds sinks") {
  using Form = AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>;
  CHECK(wgmma_error<Form>({.lengths = {{35, 140}, {9, 0}, {3, 70}}, .heads = 2, .left = 12, .right = 3}) < close);
}

TEST_CASE(
    "attention_wgmma lowers logits by their distance from either diagonal, after a soft cap, by each head's slope") {
  for (const bool from_end : {true, false}) {
    CAPTURE(from_end);
    CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::none>>(
              {.lengths = {{140, 277}, {140, 277}}, .heads = 3, .from_end = from_end}) < close);
    CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::causal>>(
              {.lengths = {{277, 140}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
  }
  CHECK(wgmma_error<WithSlopes<Layout::dense, Mask::causal>, Tile{.m = 64, .n = 80, .overlap = false, .lazy = 1}>(
            {.lengths = {{90, 200}}, .heads = 2}) < close);
  CHECK(wgmma_error<WithSlopes<Layout::packed, Mask::window, SoftCap::tanh>>(
            {.lengths = {{35, 277}, {9, 0}, {0, 5}, {3, 70}}, .heads = 2, .left = 12, .right = 3}) < close);
}

TEST_CASE("attention_wgmma adds a bias, whose -inf hides keys, by batch and head or one for all, after a soft cap") {
  for (const bool of_batch : {true, false})
    for (const bool of_heads : {true, false}) {
      CAPTURE(of_batch);
      CAPTURE(of_heads);
      CHECK(wgmma_error<WithBias<Mask::none>>({.lengths = {{140, 277}, {140, 277}},
                                               .heads = 4,
                                               .key_heads = 2,
                                               .bias_of_batch = of_batch,
                                               .bias_of_heads = of_heads}) < close);
    }
  for (const auto& sizes : {std::pair{1, 1}, {3, 1}, {1, 67}})
    CHECK(wgmma_error<WithBias<Mask::none>, Tile{.n = 80, .pingpong = true}>({.lengths = {sizes}, .heads = 2}) < close);
  CHECK(wgmma_error<WithBias<Mask::causal, SoftCap::tanh>>({.lengths = {{277, 140}}, .heads = 4, .key_heads = 2}) <
        close);
  CHECK(wgmma_error<WithBias<Mask::window, SoftCap::none, Alibi::head>>(
            {.lengths = {{140, 277}}, .heads = 2, .left = 12, .right = 3}) < close);
  CHECK(wgmma_error<WithBias<Mask::none>, Tile{.m = 64, .n = 80, .overlap = false, .lazy = 1}>(
            {.lengths = {{90, 200}}, .heads = 2}) < close);
}

TEST_CASE(
    "attention_wgmma drops the weights that seed, offset and position say, in tiles of any size, and leaves lse") {
  const AttentionProblem dense = {.lengths = {{140, 277}, {140, 277}}, .heads = 4, .key_heads = 2};
  constexpr double near = close / 0.7;  // weights are divided by what is kept
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>>(dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.m = 64, .n = 80, .overlap = false, .lazy = 1}>(
            dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.m = 192, .n = 96, .pingpong = true}>(dense) <
        close);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::causal>, Tile{.n = 176}>(dense) < near);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::none, SoftCap::none, Sinks::head, 64, Bias::tensor>>(dense) <
        close);
  CHECK(
      wgmma_error<WithDropout<Layout::packed, Mask::window, SoftCap::tanh>>(
          {.lengths = {{35, 277}, {9, 0}, {0, 5}, {3, 70}, {31, 40}}, .heads = 2, .left = 12, .right = 3, .p = 0.9f}) <
      close / 0.1);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::none>>({.lengths = {{20, 30}}, .p = 0}) < close);
  CHECK(wgmma_error<WithDropout<Layout::dense, Mask::none>>({.lengths = {{20, 300}}, .p = 0.996f}) <
        0.3);  // 255 of 256
}

}  // namespace
