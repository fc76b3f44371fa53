// attention_wgmma of a problem, and its error.
#pragma once

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
#include "emulator/tensor_map.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"
#include "attention_forward/wgmma.cuh"
#include "attention_forward/wgmma_pair.cuh"

namespace test {

/// q, k or v as [planes, tokens, heads, columns].
template <typename Tile, typename Form>
kiln::tensor_map map_of(const Attention<Form>& of, Matrix<typename Form::T>& operand, bool of_queries, int heads,
                        int rows, int heads_of_box = 1) {
  const auto columns = static_cast<std::uint32_t>(operand.columns() / heads);
  const auto planes = static_cast<std::uint32_t>(of.packed ? 1 : of.count());
  constexpr unsigned bytes = sizeof(typename Form::T);
  const auto row_bytes = static_cast<std::uint64_t>(operand.stride() * bytes);
  const auto plane_bytes =
      std::max(static_cast<std::uint64_t>(of.batch_stride(operand, of_queries) * bytes), row_bytes);
  return emulator::tensor_map<kiln::tensor_map>(
      operand.data(), bytes,
      {columns, static_cast<std::uint32_t>(heads), static_cast<std::uint32_t>(of.rows(of_queries)), planes},
      {columns * bytes, row_bytes, plane_bytes},
      {Tile::box_columns, static_cast<std::uint32_t>(heads_of_box), static_cast<std::uint32_t>(rows), 1},
      Tile::swizzle);
}

struct Tile {
  int m = 128, n = 64, stages = 2;
  bool overlap = true, pingpong = false, promoted = false, holds_queries = false, late = false, drawn = false,
       pair = false;
  int lazy = 0, section = 1, heads = 1;
  bool trims = false;
};

/// Returns whether the counters are left as they have to be.
template <typename Form, Tile tile = Tile{}>
bool launch_wgmma(Attention<Form>& of, std::uint32_t seed, unsigned blocks, int longest) {
  using Tiles = kiln::attention::WgmmaTiling<Form, tile.m, tile.n, tile.stages, tile.overlap, tile.pingpong, tile.lazy,
                                             tile.promoted, tile.holds_queries, tile.late, tile.pair ? 2 : 1,
                                             tile.heads, tile.trims>;
  const AttentionProblem& problem = of.problem;
  const auto q = map_of<typename Tiles::Query>(of, of.q, true, problem.heads, tile.m / tile.heads, tile.heads);
  const auto k = map_of<typename Tiles::Key>(of, of.k, false, problem.key_heads, tile.n);
  const auto v = map_of<typename Tiles::Value>(of, of.v, false, problem.key_heads, tile.n);
  unsigned counters[2] = {};
  emulator::launch(
      {.grid = {blocks},
       .block = {Tiles::threads},
       .shared_bytes = kiln::attention::SharedLayout<Tiles>::bytes,
       .cluster = {tile.pair ? 2u : 1u},
       .seed = seed},
      [&] {
        if constexpr (tile.pair) {
          attention_wgmma_pair<Form, tile.m, tile.n, tile.stages, tile.pingpong, tile.lazy, tile.trims>(
              q, k, v, of.out_rows(), of.lse_sums(), of.count(), of.rows(true), of.rows(false), problem.heads,
              problem.key_heads, of.forward_terms());
        } else {
          attention_wgmma<Form, tile.m, tile.n, tile.stages, tile.overlap, tile.pingpong, tile.lazy, tile.promoted,
                          tile.holds_queries, tile.late, tile.heads, tile.trims, typename Attention<Form>::Out>(
              q, k, v, of.out_rows(), of.lse_sums(), of.told_query_offsets.data(), of.told_key_offsets.data(),
              &of.reports[0], &of.reports[1], longest, counters, of.count(), of.rows(true), of.rows(false),
              problem.heads, problem.key_heads, of.forward_terms(), tile.section, tile.drawn, of.q_scales.data(),
              of.k_scales.data(), of.v_scales.data());
        }
      });
  return counters[0] == 0 && counters[1] == 0;
}

template <typename Form, Tile tile = Tile{}>
double wgmma_error(const AttentionProblem& problem, std::uint32_t seed = 1, unsigned blocks = 2) {
  Attention<Form> of(problem);
  return launch_wgmma<Form, tile>(of, seed, blocks, of.longest()) ? of.error() : INFINITY;
}

}  // namespace test
