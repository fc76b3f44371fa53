#include <doctest/doctest.h>

#include "attention_context.hpp"
#include "attention_context/fused_wgmma.cuh"
#include "attention_context/push_mma.cuh"
#include "attention_context/push_wgmma.cuh"
#include "attention_context/reference.cuh"
#include "emulator/tensor_map.hpp"

namespace {

using kiln::bf16;
using kiln::team::Report;
using test::Context;
using test::ContextProblem;
using test::Mask;

constexpr double close = 6e-3;  // weights and results are rounded to 8 bits

template <typename T, int head_dim, int value_dim, Mask mask>
using Form = kiln::attention::Form<T, head_dim, value_dim, kiln::attention::Layout::packed, mask,
                                   kiln::attention::SoftCap::none, kiln::attention::Sinks::none>;

struct Run {
  std::uint32_t seed = 1;
  int launches = 1, absent = -1;
  unsigned blocks = 2, resident = 0;  // of the kernel that attends while keys arrive
};

template <typename T, int head_dim, int value_dim, Mask mask, int World>
void run_mma(Context<T, head_dim, value_dim, mask, World>& of, Run how) {
  constexpr int warps = 2, tile_n = 32;
  using kiln::attention::RowTile;
  const ContextProblem& problem = of.problem;
  const auto row_tiles = static_cast<unsigned>((of.most_rows + 16 * warps - 1) / (16 * warps));
  const test::TeamPass attends = {
      {.grid = {row_tiles * static_cast<unsigned>(problem.heads * problem.batch)},
       .block = {warps * 32},
       .shared_bytes = RowTile<head_dim, 16 * warps>::bytes +
                       2 * (RowTile<head_dim, tile_n>::bytes + RowTile<value_dim, tile_n>::bytes),
       .seed = how.seed},
      [&](int, int rank) {
        auto& its = of.at(rank);
        attention_mma<Form<T, head_dim, value_dim, mask>, tile_n, warps>(
            {its.q.data(), 0, its.q.stride(), head_dim}, {its.keys.data(), 0, its.keys.stride(), head_dim},
            {its.values.data(), 0, its.values.stride(), value_dim}, {its.out.data(), 0, its.out.stride(), value_dim},
            {its.lse.data(), 0, its.lse.stride()}, its.query_offsets.data(), its.key_offsets.data(), nullptr, nullptr,
            problem.batch, of.tokens_of(rank), World * of.most_tokens(), of.most_rows, problem.heads, problem.key_heads,
            {{problem.scale, 0.0f, 1, 0, 0, nullptr, {}, nullptr, 0.0f}, nullptr});
      }};
  test::run_passes(of.team, {of.gather(how.seed), attends}, how.launches, how.absent);
}

template <typename Tile, typename T>
kiln::tensor_map map_of(test::Matrix<T>& of, int heads, int rows) {
  const auto columns = static_cast<std::uint32_t>(of.columns() / heads);
  const auto row_bytes = static_cast<std::uint64_t>(of.stride()) * sizeof(T);
  return emulator::tensor_map<kiln::tensor_map>(
      of.data(), sizeof(T), {columns, static_cast<std::uint32_t>(heads), static_cast<std::uint32_t>(of.rows()), 1},
      {columns * sizeof(T), row_bytes, row_bytes * static_cast<std::uint64_t>(of.rows())},
      {Tile::box_columns, 1, static_cast<std::uint32_t>(rows), 1}, Tile::swizzle);
}

template <int tile_m, int tile_n, bool pingpong, typename T, int head_dim, int value_dim, Mask mask, int World>
void run_wgmma(Context<T, head_dim, value_dim, mask, World>& of, Run how) {
  using Its = Form<T, head_dim, value_dim, mask>;
  using Tiles = kiln::attention::WgmmaTiling<Its, tile_m, tile_n, 2, true, pingpong, false>;
  const ContextProblem& problem = of.problem;
  struct Maps {
    kiln::tensor_map q, keys, values;
    unsigned counters[2] = {};
  };
  std::vector<Maps> maps;
  for (auto& its : of.ranks)
    maps.push_back({map_of<typename Tiles::Query>(its.q, problem.heads, tile_m),
                    map_of<typename Tiles::Key>(its.keys, problem.key_heads, tile_n),
                    map_of<typename Tiles::Value>(its.values, problem.key_heads, tile_n)});
  const test::TeamPass attends = {
      {.grid = {2},
       .block = {Tiles::threads},
       .shared_bytes = kiln::attention::SharedLayout<Tiles>::bytes,
       .seed = how.seed},
      [&](int, int rank) {
        auto& its = of.at(rank);
        Maps& by = maps[static_cast<std::size_t>(rank)];
        attention_wgmma<Its, tile_m, tile_n, 2, true, pingpong, false>(
            by.q, by.keys, by.values, {its.out.data(), 0, its.out.stride(), value_dim},
            {its.lse.data(), 0, its.lse.stride()}, its.query_offsets.data(), its.key_offsets.data(), nullptr, nullptr,
            of.rows_of(rank), by.counters, problem.batch, of.tokens_of(rank), World * of.most_tokens(), problem.heads,
            problem.key_heads, {{problem.scale, 0.0f, 1, 0, 0, nullptr, {}, nullptr, 0.0f}, nullptr}, 1, 1);
      }};
  test::run_passes(of.team, {of.gather(how.seed), attends}, how.launches, how.absent);
}

/// `of` as [sequences, rows, heads, columns].
template <typename Tile, typename T>
kiln::tensor_map map_of_sequences(test::Matrix<T>& of, int batch, int heads, int rows) {
  const auto columns = static_cast<std::uint32_t>(of.columns() / heads);
  const auto of_sequence = static_cast<std::uint32_t>(of.rows() / batch);
  const auto row_bytes = static_cast<std::uint64_t>(of.stride()) * sizeof(T);
  return emulator::tensor_map<kiln::tensor_map>(
      of.data(), sizeof(T),
      {columns, static_cast<std::uint32_t>(heads), of_sequence, static_cast<std::uint32_t>(batch)},
      {columns * sizeof(T), row_bytes, row_bytes * of_sequence},
      {Tile::box_columns, 1, static_cast<std::uint32_t>(rows), 1}, Tile::swizzle);
}

/// The parts of all ranks, from `first` on.
template <typename Tile, typename T>
kiln::tensor_map map_of_parts(const unsigned char* first, int world, int tokens, int heads, int columns, int rows) {
  const auto of_head = static_cast<std::uint64_t>(columns) * sizeof(T);
  const std::uint64_t of_token = of_head * static_cast<std::uint64_t>(heads);
  return emulator::tensor_map<kiln::tensor_map>(first, sizeof(T),
                                                {static_cast<std::uint32_t>(columns), static_cast<std::uint32_t>(heads),
                                                 static_cast<std::uint32_t>(tokens), static_cast<std::uint32_t>(world)},
                                                {of_head, of_token, of_token * static_cast<std::uint64_t>(tokens)},
                                                {Tile::box_columns, 1, static_cast<std::uint32_t>(rows), 1},
                                                Tile::swizzle);
}

template <int tile_m, int tile_n, bool pingpong, typename T, int head_dim, int value_dim, Mask mask, int World>
void run_fused(Context<T, head_dim, value_dim, mask, World>& of, Run how) {
  using Its = Form<T, head_dim, value_dim, mask>;
  using Tiles = kiln::attention::WgmmaTiling<Its, tile_m, tile_n, 2, true, pingpong, false>;
  const ContextProblem& problem = of.problem;
  struct Maps {
    kiln::tensor_map q, k, v, keys[2], values[2];
  };
  std::vector<Maps> maps;
  for (int rank = 0; rank < World; ++rank) {
    auto& its = of.at(rank);
    Maps made = {map_of_sequences<typename Tiles::Query>(its.q, problem.batch, problem.heads, tile_m),
                 map_of_sequences<typename Tiles::Key>(its.k, problem.batch, problem.key_heads, tile_n),
                 map_of_sequences<typename Tiles::Value>(its.v, problem.batch, problem.key_heads, tile_n),
                 {},
                 {}};
    for (std::uint64_t half = 0; half < 2; ++half) {
      const std::uint64_t by = half * of.team.argument(rank).half_bytes;
      made.keys[half] = map_of_parts<typename Tiles::Key, T>(of.pushed_keys().of[rank] + by, World, of.most_tokens(),
                                                             problem.key_heads, head_dim, tile_n);
      made.values[half] = map_of_parts<typename Tiles::Value, T>(
          of.pushed_values().of[rank] + by, World, of.most_tokens(), problem.key_heads, value_dim, tile_n);
    }
    maps.push_back(made);
  }
  const test::TeamPass all = {
      {.grid = {how.blocks},
       .block = {Tiles::threads},
       .shared_bytes = kiln::attention::ContextShared::offset<Tiles> + sizeof(kiln::attention::ContextShared),
       .seed = how.seed},
      [&](int, int rank) {
        auto& its = of.at(rank);
        const Maps& by = maps[static_cast<std::size_t>(rank)];
        attention_context_fused<Its, World, tile_m, tile_n, 2, pingpong, false>(
            by.q, by.k, by.v, by.keys[0], by.values[0], by.keys[1], by.values[1],
            {of.words(its.k), {its.k.stride() / 8}}, {of.words(its.v), {its.v.stride() / 8}},
            {its.out.data(), {its.out.stride()}}, its.lse.data(), problem.batch, of.rows_of(rank), problem.heads,
            problem.key_heads, problem.key_heads * head_dim / 8, problem.key_heads * value_dim / 8, problem.scale,
            of.most_rows, problem.chunk_rows, 2, 1, of.pushed_keys(), of.pushed_values(), of.team.argument(rank));
      },
      how.resident};
  test::run_passes(of.team, {all}, how.launches, how.absent);
}

template <Mask mask, int World, int head_dim = 64, int value_dim = head_dim, typename T = bf16>
double mma_error(const ContextProblem& problem, Run how = {}) {
  Context<T, head_dim, value_dim, mask, World> of(problem);
  run_mma(of, how);
  for (int rank = 0; rank < World; ++rank) CHECK(of.team.idle(rank, static_cast<unsigned>(how.launches)));
  return of.error();
}

template <Mask mask, int World, int tile_m, int tile_n, int head_dim = 64, int value_dim = head_dim, typename T = bf16>
double wgmma_error(const ContextProblem& problem, Run how = {}) {
  Context<T, head_dim, value_dim, mask, World> of(problem);
  run_wgmma<tile_m, tile_n, (tile_m > 64)>(of, how);
  for (int rank = 0; rank < World; ++rank) CHECK(of.team.idle(rank, static_cast<unsigned>(how.launches)));
  return of.error();
}

template <Mask mask, int World, int tile_m, int tile_n, int head_dim = 64, int value_dim = head_dim, typename T = bf16>
double fused_error(const ContextProblem& problem, Run how = {}) {
  Context<T, head_dim, value_dim, mask, World> of(problem);
  run_fused<tile_m, tile_n, (tile_m > 64)>(of, how);
  for (int rank = 0; rank < World; ++rank) CHECK(of.team.idle(rank, static_cast<unsigned>(how.launches)));
  return of.error();
}

TEST_CASE("attention_context attends over the keys of all ranks, whose numbers may differ, launch after launch") {
  const ContextProblem two = {.rows = {33, 18}, .batch = 2, .heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(mma_error<Mask::none, 2>(two, {.seed = seed, .launches = seed == 1 ? 3 : 1}) < close);
    CHECK(mma_error<Mask::causal, 2>(two, {seed}) < close);
  }
  const ContextProblem three = {.rows = {1, 33, 32}, .heads = 2, .key_heads = 2, .padding = 0};
  CHECK(mma_error<Mask::none, 3, 128>(three) < close);
  CHECK(mma_error<Mask::causal, 3, 128, 64>(three, {.launches = 3}) < close);
  const ContextProblem four = {.rows = {2, 1, 7, 16}, .batch = 3, .chunk_rows = 5};
  CHECK(mma_error<Mask::none, 4>(four) < close);
  CHECK(mma_error<Mask::causal, 4, 64, 64, kiln::f16>(four) < close);
  CHECK(mma_error<Mask::causal, 1>({.rows = {20}}) < close);
}

TEST_CASE("attention_context attends by wgmma once all keys are there") {
  const ContextProblem two = {.rows = {70, 33}, .batch = 2, .heads = 2};
  CHECK(wgmma_error<Mask::none, 2, 64, 64>(two, {0}) < close);
  CHECK(wgmma_error<Mask::causal, 2, 128, 64>(two) < close);
  const ContextProblem three = {.rows = {1, 65, 64}, .padding = 0};
  CHECK(wgmma_error<Mask::none, 3, 64, 64, 128>(three, {.launches = 3}) < close);
  CHECK(wgmma_error<Mask::causal, 3, 64, 64, 128>(three) < close);
  CHECK(wgmma_error<Mask::causal, 2, 64, 64, 72, 40>(two) < close);
}

TEST_CASE("attention_context attends by wgmma while keys arrive, launch after launch") {
  const ContextProblem two = {.rows = {70, 33}, .batch = 2, .heads = 4, .key_heads = 2};
  for (const std::uint32_t seed : {0u, 1u, 2u}) {
    CAPTURE(seed);
    CHECK(fused_error<Mask::none, 2, 64, 64>(two, {seed}) < close);
    CHECK(fused_error<Mask::causal, 2, 128, 64>(two, {seed}) < close);
  }
  const ContextProblem three = {.rows = {1, 65, 64}, .padding = 0};
  CHECK(fused_error<Mask::none, 3, 64, 64, 128>(three, {.launches = 3}) < close);
  CHECK(fused_error<Mask::causal, 3, 64, 64, 128>(three, {.launches = 3}) < close);
  const ContextProblem four = {.rows = {130, 3, 129, 64}, .chunk_rows = 40};
  CHECK(fused_error<Mask::none, 4, 192, 80>(four) < close);
  CHECK(fused_error<Mask::causal, 4, 192, 80, 64, 32, kiln::f16>(four) < close);
  CHECK(fused_error<Mask::causal, 1, 64, 64>({.rows = {70}}) < close);
  CHECK(fused_error<Mask::causal, 2, 64, 64, 72, 40>(two) < close);
}

TEST_CASE("attention_context needs no two blocks of a rank to run at once while keys arrive") {
  const ContextProblem problem = {.rows = {70, 65}, .heads = 3};
  const Run how = {.launches = 2, .blocks = 4, .resident = 1};
  CHECK(fused_error<Mask::none, 2, 64, 64>(problem, how) < close);
  CHECK(fused_error<Mask::causal, 2, 64, 64>(problem, how) < close);
}

TEST_CASE("attention_context takes logits from -50 to 50") {
  const ContextProblem steep = {.rows = {30, 40}, .scale = 5.0f};
  CHECK(mma_error<Mask::none, 2>(steep) < close);
  CHECK(mma_error<Mask::causal, 2>(steep) < close);
  CHECK(wgmma_error<Mask::causal, 2, 64, 64>(steep) < close);
  CHECK(fused_error<Mask::none, 2, 64, 64>(steep) < close);
  CHECK(fused_error<Mask::causal, 2, 64, 64>(steep) < close);
}

/// Rank 1 of three never comes. `unharmed`: a rank that needs no other, and so is right all the same.
template <Mask mask, typename Launch>
void check_absence(Launch launch, int unharmed = -1) {
  Context<bf16, 64, 64, mask, 3> of({.rows = {20, 30, 33}, .batch = 2});
  of.team.timeout_ns = 100'000;
  for (const int rank : {0, 2}) of.fill_results(rank);
  launch(of, Run{.absent = 1});
  for (const int rank : {0, 2}) {
    if (rank == unharmed) {
      CHECK(of.error(rank) < close);
    } else {
      CHECK(of.is_spoilt(rank));
    }
    CHECK(of.team.reports(rank, Report::timed_out, 1));
    CHECK(of.team.idle(rank, 1));
    of.fill_results(rank);
  }
  launch(of, Run{.absent = 1});  // they take part no more
  for (const int rank : {0, 2}) {
    CHECK(of.is_spoilt(rank));
    CHECK(of.team.idle(rank, 2));
  }
}

TEST_CASE("attention_context gives NaN where a rank did not come") {
  const auto by_mma = [](auto& of, const Run& how) { run_mma(of, how); };
  const auto by_wgmma = [](auto& of, const Run& how) { run_wgmma<64, 64, false>(of, how); };
  const auto fused = [](auto& of, const Run& how) { run_fused<64, 64, false>(of, how); };
  check_absence<Mask::none>(by_mma);
  check_absence<Mask::causal>(by_mma);
  check_absence<Mask::causal>(by_wgmma);
  check_absence<Mask::none>(fused);
  check_absence<Mask::causal>(fused, 0);
}

/// The largest distance of the reference's results from what is right.
template <Mask mask>
double reference_error() {
  constexpr int world = 2, rows = 5, batch = 2, heads = 2, key_heads = 1, head_dim = 64, value_dim = 32;
  Context<bf16, head_dim, value_dim, mask, world> of(
      {.rows = {rows, rows}, .batch = batch, .heads = heads, .key_heads = key_heads, .padding = 0});
  const auto joined = [&](auto member) {
    std::vector<bf16> all;
    for (auto& rank : of.ranks) {
      auto& its = rank.*member;
      all.insert(all.end(), its.data(), its.data() + its.rows() * its.stride());
    }
    return all;
  };
  using Rank = typename decltype(of)::Rank;
  const auto q = joined(&Rank::q), k = joined(&Rank::k), v = joined(&Rank::v);
  for (int rank = 0; rank < world; ++rank) {
    auto& its = of.at(rank);
    test::Matrix<float> out(batch * rows, heads * value_dim, heads * value_dim);
    emulator::launch({.grid = {batch * rows, heads}, .block = {256}, .seed = 1}, [&] {
      kiln::attention_context_reference<bf16, head_dim, value_dim, mask>(
          {q.data(), rows * heads * head_dim, heads * head_dim, head_dim},
          {k.data(), rows * key_heads * head_dim, key_heads * head_dim, head_dim},
          {v.data(), rows * key_heads * value_dim, key_heads * value_dim, value_dim},
          {out.data(), rows * heads * value_dim, heads * value_dim, value_dim}, its.lse.data(), batch, rows, heads,
          key_heads, of.problem.scale, world, rank, 1);
    });
    for (std::int64_t row = 0; row < out.rows(); ++row)
      for (std::int64_t column = 0; column < out.columns(); ++column)
        its.out.at(row, column) = kiln::from_float<bf16>(out.at(row, column));
  }
  return of.error();
}

TEST_CASE("the reference of attention_context gives out and lse of each rank") {
  CHECK(reference_error<Mask::none>() < 3e-3);  // results are rounded to bf16 by the test
  CHECK(reference_error<Mask::causal>() < 3e-3);
}

}  // namespace
