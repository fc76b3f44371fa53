// What verification compares team ops with, beside the kernels themselves.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "all_gather/push.cuh"
#include "all_gather/reference.cuh"
#include "all_reduce/push.cuh"
#include "all_reduce/reference.cuh"
#include "all_to_all/prepare.cuh"
#include "all_to_all/push.cuh"
#include "all_to_all/reference.cuh"
#include "kernels.hpp"
#include "reduce_scatter/prepare.cuh"
#include "reduce_scatter/push.cuh"
#include "reduce_scatter/reference.cuh"
#include "team.hpp"

namespace {

using kiln::Direction;

constexpr int world = 3, rows = 2, stride = 3, row_words = 2, cols = 4 * row_words;
constexpr int chunk_words = 3, most_chunks = 2;
constexpr emulator::Launch blocks_of_ranks = {.grid = {world, 2}, .block = {256}},
                           blocks = {.grid = {2}, .block = {256}};

/// `count` floats, a multiple of 4, where words may lie; NaN at first.
struct Floats {
  explicit Floats(int count) : words(static_cast<std::size_t>(count / 4), uint4{~0u, ~0u, ~0u, ~0u}) {}
  [[nodiscard]] float* data() { return reinterpret_cast<float*>(words.data()); }
  [[nodiscard]] bool equal(Floats& other) {
    return std::memcmp(data(), other.data(), words.size() * sizeof(uint4)) == 0;
  }
  std::vector<uint4> words;
};

/// Runs the kernel on all ranks, with parts of `part` floats of one buffer as their x, and the reference for each rank. Outputs have `out`.
template <typename Kernel, typename Reference>
void compare(int part, int out, Kernel kernel, Reference reference) {
  test::Team team(world, static_cast<std::int64_t>(world) * most_chunks * chunk_words * 16);
  Floats x(world * part);
  for (int i = 0; i < world * part; ++i) x.data()[i] = static_cast<float>(i * 37 % 61 - 30) / 8;
  std::vector<Floats> got(world, Floats(out)), wanted = got;
  team.run({.blocks = 3, .seed = 1}, 1, [&](int, int rank) {
    kernel(x.words.data() + rank * part / 4, got[static_cast<std::size_t>(rank)].words.data(), team.workspace(),
           team.argument(rank));
  });
  for (int rank = 0; rank < world; ++rank) {
    Floats& wants = wanted[static_cast<std::size_t>(rank)];
    reference(x.data(), wants.data(), rank);
    CHECK(got[static_cast<std::size_t>(rank)].equal(wants));
  }
}

TEST_CASE("an all-gather's reference gives what the kernel gives") {
  std::vector<int> counts(world, 0), wanted(world, rows);
  compare(
      rows * cols, world * stride * cols,
      [&](const uint4* x, uint4* y, const auto& workspace, const auto& team) {
        kiln::all_gather_push<world, 32>(x, y, nullptr, test::length(rows), stride, row_words, rows, chunk_words,
                                         most_chunks, 2, workspace, team);
      },
      [&](const float* x, float* y, int) {
        emulator::launch(blocks_of_ranks, [&] { kiln::all_gather_reference(x, y, counts.data(), rows, cols, stride); });
      });
  CHECK(counts == wanted);
}

TEST_CASE("an all-reduce's reference gives what the kernel gives") {
  compare(
      rows * cols, rows * cols,
      [](const uint4* x, uint4* y, const auto& workspace, const auto& team) {
        kiln::all_reduce_push<float, world, 32>(x, y, test::length(rows), row_words, rows, chunk_words, most_chunks, 2,
                                                workspace, team);
      },
      [](const float* x, float* y, int) {
        emulator::launch(blocks, [&] { kiln::all_reduce_reference(x, y, rows, cols, world); });
      });
}

TEST_CASE("a reduce-scatter's reference gives what the kernel gives, with counts as they are prepared") {
  std::vector<int> counts(world, 0);
  emulator::launch({.grid = {1}, .block = {32}}, [&] { kiln::reduce_scatter_counts(counts.data(), rows, world); });
  compare(
      world * stride * cols, rows * cols,
      [&](const uint4* x, uint4* y, const auto& workspace, const auto& team) {
        kiln::reduce_scatter_push<float, world, 32>(x, counts.data(), y, test::length(rows), stride, row_words, rows,
                                                    chunk_words, most_chunks, 2, workspace, team);
      },
      [](const float* x, float* y, int rank) {
        emulator::launch(blocks, [&] {
          kiln::reduce_scatter_reference(x, y, rows, cols, stride, world * stride * cols, world, rank);
        });
      });
}

template <Direction direction>
void compare_all_to_all() {
  constexpr bool scatters = direction == Direction::scatter_heads;
  constexpr int all_heads = rows * world * cols, all_rows = world * stride * cols;
  std::vector<int> counts(world, 0), row_counts(world, 0), wanted(world, rows);
  emulator::launch({.grid = {1}, .block = {32}}, [&] { kiln::all_to_all_counts(counts.data(), rows, world); });
  compare(
      scatters ? all_heads : all_rows, scatters ? all_rows : all_heads,
      [&](const uint4* x, uint4* y, const auto& workspace, const auto& team) {
        kiln::all_to_all_push<world, 32, direction>(x, scatters ? nullptr : counts.data(), y, nullptr,
                                                    test::length(rows), stride, row_words, rows, chunk_words,
                                                    most_chunks, 2, workspace, team);
      },
      [&](const float* x, float* y, int rank) {
        emulator::launch(blocks_of_ranks, [&] {
          kiln::all_to_all_reference<float, direction>(x, y, scatters ? row_counts.data() : nullptr, rows, cols, stride,
                                                       scatters ? all_heads : all_rows, world, rank);
        });
      });
  CHECK(counts == wanted);
  if (scatters) CHECK(row_counts == wanted);
}

TEST_CASE("an all-to-all's reference gives what the kernel gives, both ways") {
  compare_all_to_all<Direction::scatter_heads>();
  compare_all_to_all<Direction::gather_heads>();
}

}  // namespace
