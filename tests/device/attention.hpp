// Problems of attention: operands among NaN, and what is right.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/attention/problem.cuh"
#include "common/philox.cuh"
#include "matrices.hpp"

namespace test {

using kiln::attention::Alibi;
using kiln::attention::Bias;
using kiln::attention::Dropout;
using kiln::attention::Layout;
using kiln::attention::Mask;
using kiln::attention::Sinks;
using kiln::attention::SoftCap;

struct AttentionProblem {
  std::vector<std::pair<int, int>> lengths;  // queries and keys of each sequence; dense: all alike
  int heads = 1, key_heads = 1;
  bool from_end = true;
  int left = 0, right = 0;
  float scale = 0.5f, cap = 3.0f;
  bool bias_of_batch = true, bias_of_heads = true;  // else all have one
  float p = 0.3f;                                   // of dropout, which takes it for 77 / 256
  int after = 3;                                    // rows behind those of sequences
};

struct AttentionRow {
  std::vector<double> weights;  // of keys; 0 where the query does not see them
  std::vector<double> kept;     // what dropout multiplies them by
  std::vector<double> slopes;   // what a change of a logit before the soft cap changes in it
  std::vector<double> out;
  double lse;
};

/// Tokens are rows, a head's columns lie side by side. Packed: NaN before the first offset and past the last; dense: NaN after each
/// sequence.
template <typename Form,
          typename Out_ = std::conditional_t<sizeof(typename Form::T) == 1, kiln::bf16, typename Form::T>>
class Attention {
 public:
  using T = typename Form::T;
  static constexpr bool scaled = sizeof(T) == 1;  // each head by scales of its own
  using Out = Out_;
  static constexpr bool packed = Form::layout == Layout::packed;
  static constexpr int before = 2;  // rows that no sequence has

  explicit Attention(AttentionProblem of)
      : problem(std::move(of)),
        query_offsets(offsets(true)),
        key_offsets(offsets(false)),
        told_query_offsets(query_offsets),
        told_key_offsets(key_offsets),
        q(operand(true, problem.heads * Form::head_dim, 1)),
        k(operand(false, problem.key_heads * Form::head_dim, 2)),
        v(operand(false, problem.key_heads * Form::value_dim, 3)),
        out(q.rows(), problem.heads * Form::value_dim, problem.heads * Form::value_dim + 8),
        lse(problem.heads * (packed ? 1 : count()), rows(true), rows(true) + 1),
        sinks(Matrix<float>::random(1, problem.heads, problem.heads, 4)),
        q_scales(scales(problem.heads, 0.5)),
        k_scales(scales(problem.key_heads, 2)),
        v_scales(scales(problem.key_heads, 4)),
        slopes(Matrix<float>::random(1, problem.heads, problem.heads, 6)),
        bias(made_bias()) {}

  AttentionProblem problem;
  std::vector<int> query_offsets, key_offsets;
  std::vector<int> told_query_offsets, told_key_offsets;  // what kernels are given
  unsigned long long reports[2] = {};                     // of queries and keys
  Matrix<T> q, k, v;
  Matrix<Out> out;
  Matrix<float> lse;  // a row a head
  Matrix<float> sinks;
  Matrix<float> q_scales, k_scales, v_scales;                     // 1 but of 8 bits
  Matrix<float> slopes;                                           // a head; of both signs
  Matrix<T> bias;                                                 // rows of queries, those of a head one after another
  std::vector<long long> dropout_seed = {0x123456789abcdef, -5};  // and an offset

  [[nodiscard]] int count() const { return static_cast<int>(problem.lengths.size()); }
  /// Of one sequence, or of all: what the kernels are told.
  [[nodiscard]] int rows(bool of_queries) const {
    if (packed) return (of_queries ? query_offsets : key_offsets).back() + problem.after;
    return of_queries ? problem.lengths[0].first : problem.lengths[0].second;
  }
  template <typename Element>
  [[nodiscard]] std::int64_t batch_stride(const Matrix<Element>& of, bool of_queries) const {
    return packed ? 0 : of.stride() * (rows(of_queries) + problem.after);
  }
  [[nodiscard]] std::int64_t lse_batch_stride() const { return packed ? 0 : lse.stride() * problem.heads; }
  [[nodiscard]] std::int64_t bias_head_stride() const {
    return problem.bias_of_heads ? bias.stride() * problem.lengths[0].first : 0;
  }
  [[nodiscard]] std::int64_t bias_batch_stride() const {
    return problem.bias_of_batch
               ? bias.stride() * problem.lengths[0].first * (problem.bias_of_heads ? problem.heads : 1)
               : 0;
  }
  [[nodiscard]] kiln::attention::HeadRows<const T> q_rows() {
    return {q.data(), batch_stride(q, true), q.stride(), Form::head_dim};
  }
  [[nodiscard]] kiln::attention::HeadRows<const T> k_rows() {
    return {k.data(), batch_stride(k, false), k.stride(), Form::head_dim};
  }
  [[nodiscard]] kiln::attention::HeadRows<const T> v_rows() {
    return {v.data(), batch_stride(v, false), v.stride(), Form::value_dim};
  }
  [[nodiscard]] kiln::attention::HeadRows<Out> out_rows() {
    return {out.data(), batch_stride(out, true), out.stride(), Form::value_dim};
  }
  [[nodiscard]] kiln::attention::LogSums lse_sums() { return {lse.data(), lse_batch_stride(), lse.stride()}; }
  [[nodiscard]] kiln::attention::ScoreTerms<T> terms() {
    return {problem.scale, problem.cap, problem.from_end,    problem.left, problem.right,
            slopes.data(), bias_rows(), dropout_seed.data(), problem.p};
  }
  [[nodiscard]] kiln::attention::ForwardTerms<T> forward_terms() { return {terms(), sinks.data()}; }
  [[nodiscard]] kiln::attention::BiasRows<T> bias_rows() {
    return {bias.data(), bias_batch_stride(), bias_head_stride(), bias.stride()};
  }
  [[nodiscard]] int longest() const { return std::max_element(problem.lengths.begin(), problem.lengths.end())->first; }

  /// The largest distance of out, over its values' scale, and of lse from what is right. Infinite if anything else was written, or nothing.
  double error() {
    double largest = out.margins_untouched() && lse.margins_untouched() ? 0 : INFINITY;
    std::vector<bool> row_written(static_cast<std::size_t>(out.rows()));
    for (int sequence = 0; sequence < count(); ++sequence) {
      for (int query = 0; query < problem.lengths[static_cast<std::size_t>(sequence)].first; ++query) {
        row_written[static_cast<std::size_t>(row(true, sequence, query))] = true;
        for (int head = 0; head < problem.heads; ++head)
          largest = std::max(largest, error_of_row(sequence, query, head));
      }
    }
    for (std::int64_t i = 0; i < out.rows(); ++i) {
      for (std::int64_t j = 0; j < out.columns(); ++j) {
        if (!row_written[static_cast<std::size_t>(i)] && !std::isnan(out.value(i, j))) return INFINITY;
      }
    }
    return largest;
  }

  /// What is right, of a query in its sequence and one of its heads.
  AttentionRow right_row(int sequence, int query, int head) {
    const auto [queries, keys] = problem.lengths[static_cast<std::size_t>(sequence)];
    const int key_head = head / (problem.heads / problem.key_heads);
    const std::int64_t q_row = row(true, sequence, query);
    double sum = Form::sinks == Sinks::head ? std::exp(sinks.value(0, head)) : 0;
    AttentionRow right{
        std::vector<double>(static_cast<std::size_t>(keys)), std::vector<double>(static_cast<std::size_t>(keys), 1.0),
        std::vector<double>(static_cast<std::size_t>(keys), 1.0), std::vector<double>(Form::value_dim), 0};
    for (int key = 0; key < keys; ++key) {
      if (!sees(query, key, queries, keys)) continue;
      const auto at = static_cast<std::size_t>(key);
      double dot = 0;
      for (int i = 0; i < Form::head_dim; ++i)
        dot += q.value(q_row, head * Form::head_dim + i) *
               k.value(row(false, sequence, key), key_head * Form::head_dim + i);
      dot *= problem.scale * q_scales.value(0, head) * k_scales.value(0, key_head);
      if (Form::soft_cap == SoftCap::tanh) {
        const double bent = std::tanh(dot / problem.cap);
        dot = problem.cap * bent;
        right.slopes[at] = 1 - bent * bent;
      }
      if (Form::alibi == Alibi::head)
        dot -= slopes.value(0, head) * std::abs(query + (problem.from_end ? keys - queries : 0) - key);
      if (Form::bias == Bias::tensor)
        dot += bias.value(
            (std::int64_t{problem.bias_of_batch ? sequence : 0} * (problem.bias_of_heads ? problem.heads : 1) +
             (problem.bias_of_heads ? head : 0)) *
                    queries +
                query,
            key);
      sum += right.weights[at] = std::exp(dot);
    }
    for (int key = 0; key < keys; ++key) {
      double& weight = right.weights[static_cast<std::size_t>(key)];
      if (weight == 0) continue;
      weight /= sum;
      double& kept = right.kept[static_cast<std::size_t>(key)];
      if (Form::dropout == Dropout::philox)
        kept = drawn(sequence, query, head, key) < std::lround(problem.p * 256)
                   ? 0
                   : 256 / (256 - std::round(problem.p * 256));
      for (int column = 0; column < Form::value_dim; ++column)
        right.out[static_cast<std::size_t>(column)] +=
            weight * kept * v.value(row(false, sequence, key), key_head * Form::value_dim + column) *
            v_scales.value(0, key_head);
    }
    right.lse = std::log(sum);
    return right;
  }
  float& lse_at(int sequence, int query, int head) {
    return packed ? lse.at(head, row(true, sequence, query)) : lse.at(sequence * problem.heads + head, query);
  }
  [[nodiscard]] std::int64_t row(bool of_queries, int sequence, int position) const {
    if (packed) return (of_queries ? query_offsets : key_offsets)[static_cast<std::size_t>(sequence)] + position;
    return std::int64_t{sequence} * (rows(of_queries) + problem.after) + position;
  }
  /// Values in the rows of sequences, NaN in all others.
  [[nodiscard]] Matrix<T> operand(bool of_queries, int columns, std::uint32_t seed) const {
    const std::int64_t all = packed ? rows(of_queries) : std::int64_t{count()} * (rows(of_queries) + problem.after);
    const auto stride = columns + static_cast<int>(16 / sizeof(T));
    auto values = Matrix<T>::random(all, columns, stride, seed);
    Matrix<T> made(all, columns, stride);
    for (int sequence = 0; sequence < count(); ++sequence) {
      const auto& [queries, keys] = problem.lengths[static_cast<std::size_t>(sequence)];
      for (int i = 0; i < (of_queries ? queries : keys); ++i) {
        for (int column = 0; column < columns; ++column)
          made.at(row(of_queries, sequence, i), column) = values.at(row(of_queries, sequence, i), column);
      }
    }
    return made;
  }

 private:
  /// As attention_forward/op.toml says.
  [[nodiscard]] unsigned drawn(int sequence, int query, int head, int key) const {
    const auto place = static_cast<std::uint64_t>((packed ? query_offsets[static_cast<std::size_t>(sequence)] : 0) +
                                                  query - query % 2 - query / 8 % 2 * 8);
    const auto group = static_cast<std::uint64_t>(key / 16 * 4 + key % 8 / 2);
    const std::uint64_t counter = (static_cast<std::uint64_t>(packed ? 0 : sequence) << 48) +
                                  (static_cast<std::uint64_t>(head) << 38) + (place << 18) + group;
    const auto low = [](std::uint64_t word) { return static_cast<unsigned>(word); };
    const auto [seed, offset] =
        std::pair(static_cast<std::uint64_t>(dropout_seed[0]), static_cast<std::uint64_t>(dropout_seed[1]));
    const uint4 words = kiln::philox_4x32_10({low(counter), low(counter >> 32), low(offset), low(offset >> 32)},
                                             low(seed), low(seed >> 32));
    const unsigned word =
        std::array{words.x, words.y, words.z, words.w}[static_cast<std::size_t>(query % 2 * 2 + key % 2)];
    return word >> (8 * (query / 8 % 2 * 2 + key / 8 % 2)) & 255;
  }
  /// Some keys are hidden: here and there, from whole queries, and at either end.
  [[nodiscard]] Matrix<T> made_bias() const {
    if (Form::bias == Bias::none) return Matrix<T>(1, 1, 1);
    const auto [queries, keys] = problem.lengths[0];
    const int planes = (problem.bias_of_batch ? count() : 1) * (problem.bias_of_heads ? problem.heads : 1);
    auto made = Matrix<T>::random(std::int64_t{planes} * queries, keys, keys + 2 + keys % 2, 7);
    for (std::int64_t row = 0; row < made.rows(); ++row)
      for (int key = 0; key < keys; ++key) {
        const std::int64_t kind = row % 11;
        if ((row + key) % 7 == 0 || kind == 5 || (kind == 7 && key < keys * 3 / 4) || (kind == 8 && key >= keys / 4))
          made.at(row, key) = kiln::from_float<T>(-INFINITY);
      }
    return made;
  }
  [[nodiscard]] std::vector<int> offsets(bool of_queries) const {
    std::vector<int> made = {before};
    for (const auto& [queries, keys] : problem.lengths) made.push_back(made.back() + (of_queries ? queries : keys));
    return made;
  }
  /// Those of neighbouring heads differ by a hundred times.
  static Matrix<float> scales(int heads, double first) {
    Matrix<float> made(1, heads, heads);
    for (int head = 0; head < heads; ++head)
      made.at(0, head) = static_cast<float>(scaled ? first / (head % 2 * 99 + 1) : 1);
    return made;
  }
  [[nodiscard]] bool sees(int query, int key, int queries, int keys) const {
    const int from = query + (problem.from_end ? keys - queries : 0);
    if (Form::mask == Mask::causal) return key <= from;
    return Form::mask == Mask::none || (key >= from - problem.left && key <= from + problem.right);
  }

  double error_of_row(int sequence, int query, int head) {
    const AttentionRow right = right_row(sequence, query, head);
    const std::int64_t q_row = row(true, sequence, query);
    double largest = 0;
    for (int column = 0; column < Form::value_dim; ++column)
      largest = std::max(largest, distance(out.value(q_row, head * Form::value_dim + column),
                                           right.out[static_cast<std::size_t>(column)]) /
                                      v_scales.value(0, head / (problem.heads / problem.key_heads)));
    const double found = lse_at(sequence, query, head);
    return std::max(largest, found == right.lse ? 0 : distance(found, right.lse));
  }
};

template <Layout layout, Mask mask, int head_dim, int value_dim = head_dim, SoftCap soft_cap = SoftCap::none,
          Sinks sinks = Sinks::none, typename T = kiln::bf16, Alibi alibi = Alibi::none, Bias bias = Bias::none,
          Dropout dropout = Dropout::none>
using AttentionForm =
    kiln::attention::Form<T, head_dim, value_dim, layout, mask, soft_cap, sinks, alibi, bias, dropout>;

/// With ALiBi, a bias or dropout.
template <Layout layout, Mask mask, SoftCap soft_cap = SoftCap::none>
using WithSlopes = AttentionForm<layout, mask, 64, 64, soft_cap, Sinks::none, kiln::bf16, Alibi::head>;
template <Mask mask, SoftCap soft_cap = SoftCap::none, Alibi alibi = Alibi::none>
using WithBias = AttentionForm<Layout::dense, mask, 64, 64, soft_cap, Sinks::none, kiln::bf16, alibi, Bias::tensor>;
template <Layout layout, Mask mask, SoftCap soft_cap = SoftCap::none, Sinks sinks = Sinks::none, int dim = 64,
          Bias bias = Bias::none, typename T = kiln::bf16>
using WithDropout = AttentionForm<layout, mask, dim, dim, soft_cap, sinks, T, Alibi::none, bias, Dropout::philox>;

}  // namespace test
