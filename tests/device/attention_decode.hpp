// Problems of attention_decode: caches among NaN, launches of both kernels, and what is right.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "attention_decode/mma.cuh"
#include "kernels.hpp"

namespace test {

using kiln::attention::CacheLayout;
using kiln::attention::Invariant;
using kiln::attention::Mask;
using kiln::attention::Sinks;
using kiln::attention::SoftCap;

struct DecodeProblem {
  std::vector<int> lengths;  // of each sequence's keys, as key_lengths says; none is more than longest
  int queries = 1, heads = 1, key_heads = 1;
  int page_size = 16;
  int left = 0;
  float scale = 0.5f, cap = 3.0f;
  std::uint32_t first_seed = 1;  // sequence i has the values of seed first_seed + i
};

/// Contiguous: each sequence has room for `longest` keys; NaN where it has none. Paged: pages lie in reverse among pages of NaN; entries
/// past a sequence's last page are no pages. Indexed: a sequence's keys lie in reverse among more rows, and begin anywhere.
template <typename Form>
class Decode {
 public:
  using T = typename Form::T;
  using Cache = typename Form::Cache;
  static constexpr int margin = 16 / sizeof(Cache);  // elements between rows of a cache
  static constexpr bool paged = Form::layout == CacheLayout::paged, indexed = Form::layout == CacheLayout::indexed;

  explicit Decode(DecodeProblem of)
      : problem(std::move(of)),
        longest(std::max(1, *std::ranges::max_element(problem.lengths))),
        entries(indexed ? longest : (longest + problem.page_size - 1) / problem.page_size),
        q(count() * problem.queries, problem.heads * Form::head_dim, problem.heads * Form::head_dim + 8),
        out(q.rows(), problem.heads * Form::value_dim, problem.heads * Form::value_dim + 8),
        k(cache_rows(), problem.key_heads * Form::head_dim, problem.key_heads * Form::head_dim + margin),
        v(cache_rows(), problem.key_heads * Form::value_dim, problem.key_heads * Form::value_dim + margin),
        k_scale(index(problem.key_heads), NAN),
        v_scale(k_scale),
        lse(count() * problem.heads, problem.queries, problem.queries + 1),
        sinks(Matrix<float>::random(1, problem.heads, problem.heads, 4)),
        table(static_cast<std::size_t>(count() * (entries + 1)), 1 << 30) {
    for (int i = 0; i < count(); ++i) {
      for (int page = 0; page * (indexed ? 1 : problem.page_size) < problem.lengths[index(i)]; ++page)
        table[index(i * (entries + 1) + page)] =
            indexed ? (i % cache_length() + cache_length() - page) % cache_length() : page_of(i, page);
      fill(i);
    }
    for (std::size_t head = 0; Form::has_bytes && head < k_scale.size(); ++head) {
      k_scale[head] = 0.75f + 0.25f * static_cast<float>(head);
      v_scale[head] = 1.5f - 0.5f * static_cast<float>(head);
    }
  }

  static constexpr int unlimited = 1 << 20;  // splits: a block takes one block of keys or more
  DecodeProblem problem;
  int longest, entries;
  Matrix<T> q, out;
  Matrix<Cache> k, v;
  std::vector<float> k_scale, v_scale;  // of each key head; those of another type than e4m3 are not read
  Matrix<float> lse;                    // a row a sequence and head
  Matrix<float> sinks;
  std::vector<int> table;
  std::vector<kiln::attention::Cut> cuts;  // of the last launch, one a block
  unsigned long long report = 0;
  const int* sequences = nullptr;  // how many there are, as a launch reads it from device memory

  [[nodiscard]] int count() const { return static_cast<int>(problem.lengths.size()); }
  /// Rows of a sequence.
  [[nodiscard]] int cache_length() const { return indexed ? longest + 5 : longest; }
  [[nodiscard]] int pages() const { return indexed ? cache_length() : 2 * count() * entries + 1; }
  /// Of k and v, where key `key` of a sequence lies.
  [[nodiscard]] std::int64_t row(int sequence, int key) const {
    if (indexed) return std::int64_t{sequence} * cache_length() + table[index(sequence * (entries + 1) + key)];
    if (!paged) return std::int64_t{sequence} * longest + key;
    const int page = table[index(sequence * (entries + 1) + key / problem.page_size)];
    return std::int64_t{page} * problem.page_size + key % problem.page_size;
  }

  /// Both kernels on `blocks` blocks.
  template <int tile_n = 16, int key_warps = 2, int stages = 2, int row_warps = 1>
  void launch(unsigned blocks, std::uint32_t seed = 1, int splits = unlimited, bool with_lse = true) {
    using Tiling = kiln::attention::DecodeTiling<Form, tile_n, row_warps, key_warps, stages>;
    const int rows = problem.heads / problem.key_heads * problem.queries;
    const int planes = problem.key_heads * ((rows + Tiling::tile_m - 1) / Tiling::tile_m);
    const bool fixed = Form::invariant == Invariant::yes;
    const auto slots = static_cast<std::size_t>(fixed ? count() * planes * kiln::attention::most_chunks : 2 * blocks);
    std::vector<float> sums(slots * Tiling::tile_m * Form::value_dim, NAN);
    std::vector<kiln::attention::RowState> states(slots * Tiling::tile_m, {NAN, NAN});
    cuts.assign(blocks, {-1, -1, -1, -1});
    kiln::axis_length keys = length(longest);
    keys.report = &report;
    const std::int64_t outer = paged ? problem.page_size : cache_length();
    float* const lse_data = with_lse ? lse.data() : nullptr;
    const auto lse_batch_stride = lse.stride() * problem.heads;
    emulator::launch({.grid = {blocks}, .block = {Tiling::threads}, .shared_bytes = Tiling::bytes, .seed = seed}, [&] {
      attention_decode_mma<Form, tile_n, row_warps, key_warps, stages, 1>(
          {q.data(), q.stride() * problem.queries, q.stride(), Form::head_dim},
          {k.data(), outer * k.stride(), k.stride(), Form::head_dim},
          {v.data(), outer * v.stride(), v.stride(), Form::value_dim},
          {out.data(), out.stride() * problem.queries, out.stride(), Form::value_dim},
          {lse_data, lse_batch_stride, lse.stride()}, sinks.data(), problem.lengths.data(), sums.data(), states.data(),
          cuts.data(), length(count(), sequences), keys, problem.queries, problem.heads, problem.key_heads,
          {table.data(), {entries + 1}}, problem.page_size, pages(), problem.scale, problem.cap, problem.left, splits,
          k_scale.data(), v_scale.data());
    });
    emulator::launch(
        {.grid = {fixed ? static_cast<unsigned>(count() * planes) : blocks, static_cast<unsigned>(Tiling::tile_m)},
         .block = {128},
         .seed = seed},
        [&] {
          attention_decode_combine<Form, Tiling::block_n, Tiling::tile_m, 4>(
              out.data(), lse_data, sinks.data(), problem.lengths.data(), sums.data(), states.data(), cuts.data(),
              length(count(), sequences), keys, problem.queries, problem.heads, problem.key_heads,
              out.stride() * problem.queries, out.stride(), Form::value_dim, lse_batch_stride, lse.stride(),
              problem.left);
        });
  }

  /// The largest distance of out and lse from what is right. Infinite if anything beside was written.
  double error() {
    double largest = out.margins_untouched() && lse.margins_untouched() ? 0 : INFINITY;
    for (int sequence = 0; sequence < count(); ++sequence)
      for (int query = 0; query < problem.queries; ++query)
        for (int head = 0; head < problem.heads; ++head)
          largest = std::max(largest, error_of_row(sequence, query, head));
    return largest;
  }

  /// The bits of one sequence's results.
  [[nodiscard]] std::vector<std::uint32_t> bits(int sequence) {
    std::vector<std::uint32_t> all;
    for (int row = sequence * problem.queries; row < (sequence + 1) * problem.queries; ++row)
      for (std::int64_t column = 0; column < out.columns(); ++column) all.push_back(out.at(row, column).bits);
    for (int row = sequence * problem.heads; row < (sequence + 1) * problem.heads; ++row)
      for (int query = 0; query < problem.queries; ++query) {
        all.emplace_back();
        std::memcpy(&all.back(), &lse.at(row, query), sizeof(float));
      }
    return all;
  }

 private:
  template <typename Number>
  [[nodiscard]] static std::size_t index(Number of) {
    return static_cast<std::size_t>(of);
  }
  [[nodiscard]] std::int64_t cache_rows() const {
    return paged ? std::int64_t{pages()} * problem.page_size : std::int64_t{count()} * cache_length();
  }
  [[nodiscard]] int page_of(int sequence, int page) const { return pages() - 2 - 2 * (sequence * entries + page); }
  [[nodiscard]] int keys_of(int sequence) const { return std::max(problem.lengths[index(sequence)], 0); }
  [[nodiscard]] bool sees(int sequence, int query, int key) const {
    const int diagonal = keys_of(sequence) - problem.queries + query;
    return Form::mask == Mask::none ||
           (key <= diagonal && (Form::mask != Mask::window || key >= diagonal - problem.left));
  }

  /// Queries, and keys and values that some query sees. The others stay NaN.
  void fill(int sequence) {
    const std::uint32_t seed = problem.first_seed + static_cast<std::uint32_t>(sequence);
    const int keys = keys_of(sequence);
    const auto queries = Matrix<T>::random(problem.queries, q.columns(), q.columns(), seed);
    auto some_k = Matrix<Cache>::random(keys, k.columns(), k.columns(), seed + 100);
    auto some_v = Matrix<Cache>::random(keys, v.columns(), v.columns(), seed + 200);
    auto some_q = queries;
    for (int query = 0; query < problem.queries; ++query)
      for (std::int64_t column = 0; column < q.columns(); ++column)
        q.at(sequence * problem.queries + query, column) = some_q.at(query, column);
    for (int key = 0; key < keys; ++key) {
      bool seen = false;
      for (int query = 0; query < problem.queries; ++query) seen |= sees(sequence, query, key);
      if (!seen) continue;
      for (std::int64_t column = 0; column < k.columns(); ++column)
        k.at(row(sequence, key), column) = some_k.at(key, column);
      for (std::int64_t column = 0; column < v.columns(); ++column)
        v.at(row(sequence, key), column) = some_v.at(key, column);
    }
  }

  double error_of_row(int sequence, int query, int head) {
    const int key_head = head / (problem.heads / problem.key_heads), keys = keys_of(sequence);
    const std::int64_t q_row = sequence * problem.queries + query;
    double sum = Form::sinks == Sinks::head ? std::exp(sinks.value(0, head)) : 0;
    std::vector<double> weights(index(keys));
    for (int key = 0; key < keys; ++key) {
      if (!sees(sequence, query, key)) continue;
      double dot = 0;
      for (int i = 0; i < Form::head_dim; ++i)
        dot += q.value(q_row, head * Form::head_dim + i) * k.value(row(sequence, key), key_head * Form::head_dim + i);
      dot *= Form::has_bytes ? problem.scale * k_scale[index(key_head)] : problem.scale;
      if (Form::soft_cap == SoftCap::tanh) dot = problem.cap * std::tanh(dot / problem.cap);
      sum += weights[index(key)] = std::exp(dot);
    }
    double largest = 0;
    for (int column = 0; column < Form::value_dim; ++column) {
      double result = 0;
      for (int key = 0; key < keys; ++key)
        if (weights[index(key)] != 0)
          result += weights[index(key)] / sum * v.value(row(sequence, key), key_head * Form::value_dim + column);
      if (Form::has_bytes) result *= v_scale[index(key_head)];
      largest = std::max(largest, distance(out.value(q_row, head * Form::value_dim + column), result));
    }
    const double found = lse.value(sequence * problem.heads + head, query), wanted = std::log(sum);
    return std::max(largest, found == wanted ? 0 : distance(found, wanted));
  }
};

template <CacheLayout layout, Mask mask, int head_dim, int value_dim = head_dim, Invariant invariant = Invariant::no,
          SoftCap soft_cap = SoftCap::none, Sinks sinks = Sinks::none, typename T = kiln::bf16, typename Cache = T>
using FormOfDecode =
    kiln::attention::DecodeForm<T, head_dim, value_dim, layout, mask, soft_cap, sinks, invariant, Cache>;

}  // namespace test
