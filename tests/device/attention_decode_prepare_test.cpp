#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention_decode.hpp"
#include "attention_decode/prepare.cuh"
#include "attention_decode/reference.cuh"

namespace {

using namespace test;

enum Case { equal, skewed, empty, one_long };

std::vector<int> decode_lengths(int batch, int keys, unsigned long long seed, Case which) {
  std::vector<int> lengths(static_cast<std::size_t>(batch), -1);
  emulator::launch({.grid = {static_cast<unsigned>(batch + 255) / 256}, .block = {256}, .seed = 1},
                   [&] { attention_cache_lengths(lengths.data(), batch, keys, seed, which); });
  return lengths;
}

TEST_CASE("prepared lengths of a cache are those of their case, and within the bound") {
  for (const int batch : {1, 2, 7, 300})
    for (const int keys : {1, 5, 1000})
      for (const Case which : {equal, skewed, empty, one_long}) {
        const std::vector<int> lengths = decode_lengths(batch, keys, 77, which);
        CHECK(std::ranges::min(lengths) >= 0);
        CHECK(std::ranges::max(lengths) <= keys);
      }
  CHECK(decode_lengths(3, 100, 5, equal) == std::vector<int>(3, 100));
  CHECK(std::ranges::is_sorted(decode_lengths(20, 1000, 5, skewed)));
  CHECK(std::ranges::count(decode_lengths(20, 1000, 5, empty), 0) == 10);
  const std::vector<int> one = decode_lengths(20, 1000, 5, one_long);
  CHECK(one[5] == 1000);
  CHECK(std::ranges::count_if(one, [](int each) { return each > 300; }) == 1);
}

TEST_CASE("a prepared table has distinct pages in no order, and none past a sequence's last key") {
  constexpr int batch = 6, keys = 100, page_size = 16, entries = 7, stride = 9, pages = batch * entries;
  const std::vector<int> lengths = {0, 1, 16, 17, 99, 100};
  std::vector<int> table(batch * stride, -5);
  emulator::launch({.grid = {1}, .block = {256}, .seed = 1}, [&] {
    attention_cache_table({table.data(), {stride}}, lengths.data(), batch, keys, page_size, pages, 123);
  });
  std::set<int> seen;
  std::vector<int> order;
  for (int i = 0; i < batch; ++i)
    for (int j = 0; j < stride; ++j) {
      const int page = table[static_cast<std::size_t>(i * stride + j)];
      if (j >= entries) {
        CHECK(page == -5);
      } else if (j * page_size >= lengths[static_cast<std::size_t>(i)]) {
        CHECK(page == -1);
      } else {
        CHECK(seen.insert(page).second);
        CHECK(page >= 0);
        CHECK(page < pages);
        order.push_back(page);
      }
    }
  CHECK_FALSE(std::ranges::is_sorted(order));
}

TEST_CASE(
    "prepared indices are distinct rows of a sequence's cache, no two one after another, and none past its last key") {
  constexpr int batch = 4, keys = 40, rows = 55, stride = 43;
  const std::vector<int> lengths = {0, 1, 39, 40};
  std::vector<int> table(batch * stride, -5);
  emulator::launch({.grid = {1}, .block = {256}, .seed = 1}, [&] {
    attention_cache_indices({table.data(), {stride}}, lengths.data(), batch, keys, rows, 123);
  });
  for (int i = 0; i < batch; ++i) {
    std::set<int> seen;
    for (int j = 0; j < stride; ++j) {
      const auto at = static_cast<std::size_t>(i * stride + j);
      if (j >= keys) {
        CHECK(table[at] == -5);
      } else if (j >= lengths[static_cast<std::size_t>(i)]) {
        CHECK(table[at] == -1);
      } else {
        CHECK(seen.insert(table[at]).second);
        CHECK(table[at] >= 0);
        CHECK(table[at] < rows);
        if (j > 0) CHECK(table[at] != table[at - 1] + 1);
      }
    }
  }
}

TEST_CASE("prepared values grow with the root of a key's place, in the pages of its sequence alone") {
  constexpr int keys = 50, page_size = 16, entries = 4, heads = 2, columns = 8, pages = 9, stride = heads * columns;
  const std::vector<int> lengths = {50, 20}, table = {7, 0, 3, 5, 8, 2, -1, -1};
  std::vector<float> v(static_cast<std::size_t>(pages * page_size * stride), NAN);
  emulator::launch({.grid = {2 * keys}, .block = {128}, .seed = 1}, [&] {
    attention_cache_values<float, CacheLayout::paged>({v.data(), page_size * stride, stride, columns}, lengths.data(),
                                                      {table.data(), {entries}}, keys, heads, columns, page_size, pages,
                                                      7);
  });
  std::int64_t written = std::ranges::count_if(v, [](float each) { return !std::isnan(each); });
  CHECK(written == (50 + 20) * stride);
  for (int sequence = 0; sequence < 2; ++sequence)
    for (int key = 0; key < lengths[static_cast<std::size_t>(sequence)]; ++key) {
      const int page = table[static_cast<std::size_t>(sequence * entries + key / page_size)];
      double largest = 0;
      for (int i = 0; i < stride; ++i)
        largest = std::max(
            largest, std::fabs(double{v[static_cast<std::size_t>((page * page_size + key % page_size) * stride + i)]}));
      CHECK(largest <= std::sqrt(1.0 + key));
      CHECK(largest >= 0.4 * std::sqrt(1.0 + key));
    }
}

/// attention_decode_reference's out and lse beside the test's own.
template <typename Form>
double reference_error(const DecodeProblem& problem, int step = 1) {
  Decode<Form> of(problem);
  const auto outer = Decode<Form>::paged ? of.problem.page_size : of.cache_length();
  Matrix<float> out(of.out.rows(), of.out.columns(), of.out.stride());
  emulator::launch({.grid = {static_cast<unsigned>(of.count() * problem.queries), static_cast<unsigned>(problem.heads)},
                    .block = {256},
                    .seed = 1},
                   [&] {
                     attention_decode_reference<Form>(
                         {of.q.data(), of.q.stride() * problem.queries, of.q.stride(), Form::head_dim},
                         {of.k.data(), outer * of.k.stride(), of.k.stride(), Form::head_dim},
                         {of.v.data(), outer * of.v.stride(), of.v.stride(), Form::value_dim},
                         {out.data(), out.stride() * problem.queries, out.stride(), Form::value_dim},
                         {of.lse.data(), of.lse.stride() * problem.heads, of.lse.stride()}, of.sinks.data(),
                         of.problem.lengths.data(), {of.table.data(), {of.entries + 1}}, of.longest, problem.queries,
                         problem.heads, problem.key_heads, problem.page_size, of.pages(), problem.scale, problem.cap,
                         problem.left, step, of.k_scale.data(), of.v_scale.data());
                   });
  for (std::int64_t row = 0; row < out.rows(); ++row)
    for (std::int64_t column = 0; column < out.columns(); ++column)
      of.out.at(row, column) = kiln::from_float<typename Form::T>(out.at(row, column));
  return of.error();
}

TEST_CASE("attention_decode_reference is right in each layout, with each mask, a soft cap and sinks") {
  const DecodeProblem problem = {.lengths = {40, 0, 1, 17}, .queries = 2, .heads = 4, .key_heads = 2, .left = 9};
  constexpr double rounded = 4e-3;
  CHECK(reference_error<FormOfDecode<CacheLayout::contiguous, Mask::causal, 16>>(problem) < rounded);
  CHECK(reference_error<FormOfDecode<CacheLayout::paged, Mask::window, 16, 8>>(problem) < rounded);
  CHECK(reference_error<FormOfDecode<CacheLayout::indexed, Mask::window, 16, 8>>(problem) < rounded);
  CHECK(
      reference_error<FormOfDecode<CacheLayout::paged, Mask::none, 16, 16, Invariant::no, SoftCap::tanh, Sinks::head>>(
          problem) < rounded);
  using OfBytes = FormOfDecode<CacheLayout::paged, Mask::causal, 16, 32, Invariant::no, SoftCap::none, Sinks::none,
                               kiln::bf16, kiln::e4m3>;
  CHECK(reference_error<OfBytes>(problem) < rounded);
  CHECK(std::isinf(reference_error<FormOfDecode<CacheLayout::paged, Mask::none, 16>>(problem, 2)));  // a sample
}

}  // namespace
