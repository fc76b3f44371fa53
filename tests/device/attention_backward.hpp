// Problems of attention_backward: those of attention_forward with its results, a gradient of these, and what is right.
#pragma once

#include "attention.hpp"
#include "attention_backward/rows.cuh"
#include "emulator/launch.hpp"

namespace test {

/// Gradients lie among NaN, as what they are of.
template <typename Form>
class AttentionBackward : public Attention<Form> {
 public:
  using T = typename Form::T;
  using Base = Attention<Form>;

  explicit AttentionBackward(const AttentionProblem& of)
      : Base(of),
        dout(this->operand(true, of.heads * Form::value_dim, 5)),
        dq(like(this->q)),
        dk(like(this->k)),
        dv(like(this->v)),
        dsink(1, of.heads, of.heads),
        facts(static_cast<std::size_t>(planes() * of.heads * this->rows(true)), {NAN, NAN}),
        sums(facts.size() * Form::head_dim, NAN),
        key_sums(
            static_cast<std::size_t>(planes() * of.key_heads * this->rows(false)) * (Form::head_dim + Form::value_dim),
            NAN) {
    for_each_row([&](int sequence, int query, int head) {
      const AttentionRow right = this->right_row(sequence, query, head);
      for (int i = 0; i < Form::value_dim; ++i)
        this->out.at(this->row(true, sequence, query), head * Form::value_dim + i) =
            kiln::from_float<T>(static_cast<float>(right.out[static_cast<std::size_t>(i)]));
      this->lse_at(sequence, query, head) = static_cast<float>(right.lse);
    });
  }

  Matrix<T> dout, dq, dk, dv;
  Matrix<float> dsink;
  std::vector<kiln::attention::RowFacts> facts;  // workspaces, whose contents are those of earlier launches
  std::vector<float> sums, key_sums;

  [[nodiscard]] int planes() const { return Base::packed ? 1 : this->count(); }
  [[nodiscard]] kiln::attention::HeadRows<const T> dout_rows() {
    return {dout.data(), this->batch_stride(dout, true), dout.stride(), Form::value_dim};
  }
  [[nodiscard]] kiln::attention::HeadRows<T> dq_rows() { return rows_of(dq, true, Form::head_dim); }
  [[nodiscard]] kiln::attention::HeadRows<T> dk_rows() { return rows_of(dk, false, Form::head_dim); }
  [[nodiscard]] kiln::attention::HeadRows<T> dv_rows() { return rows_of(dv, false, Form::value_dim); }
  template <typename R>
  [[nodiscard]] kiln::attention::HeadRows<R> rows_of(Matrix<R>& of, bool of_queries, int columns) {
    return {of.data(), this->batch_stride(of, of_queries), of.stride(), columns};
  }

  /// The largest distance of a gradient from what is right, as a part of the largest in its tensor. Infinite if anything else was
  /// written, or nothing.
  double error() { return error_of(dq, dk, dv); }
  /// The same of gradients of another type, with the same rows and columns.
  template <typename R>
  double error_of(Matrix<R>& of_q, Matrix<R>& of_k, Matrix<R>& of_v) {
    Wanted wanted_q(dq), wanted_k(dk), wanted_v(dv);
    std::vector<double> wanted_sinks(static_cast<std::size_t>(this->problem.heads));
    for_each_row([&](int sequence, int query, int head) {
      add_row(sequence, query, head, wanted_q, wanted_k, wanted_v, wanted_sinks);
    });
    for (int sequence = 0; sequence < this->count(); ++sequence)
      for (int key = 0; key < this->problem.lengths[static_cast<std::size_t>(sequence)].second; ++key) {
        wanted_k.exists[static_cast<std::size_t>(this->row(false, sequence, key))] = true;
        wanted_v.exists[static_cast<std::size_t>(this->row(false, sequence, key))] = true;
      }
    double worst = std::max({wanted_q.error(of_q), wanted_k.error(of_k), wanted_v.error(of_v)});
    if (Form::sinks == Sinks::head)
      for (int head = 0; head < this->problem.heads; ++head) {
        const double wanted = wanted_sinks[static_cast<std::size_t>(head)];
        worst = std::max(worst, distance(dsink.value(0, head), wanted) / std::max(1.0, std::fabs(wanted)));
      }
    return worst;
  }

 private:
  /// What a tensor is to hold in rows that exist, and NaN elsewhere.
  struct Wanted {
    explicit Wanted(const Matrix<T>& of)
        : columns(of.columns()),
          values(static_cast<std::size_t>(of.rows() * of.columns())),
          exists(static_cast<std::size_t>(of.rows())) {}
    std::int64_t columns;
    std::vector<double> values;
    std::vector<bool> exists;

    double& at(std::int64_t row, std::int64_t column) {
      return values[static_cast<std::size_t>(row * columns + column)];
    }
    template <typename R>
    double error(Matrix<R>& found) {
      if (!found.margins_untouched()) return INFINITY;
      double largest = 0, worst = 0;
      for (const double each : values) largest = std::max(largest, std::fabs(each));
      for (std::int64_t i = 0; i < found.rows(); ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          const double value = found.value(i, j);
          if (!exists[static_cast<std::size_t>(i)]) {
            if (!std::isnan(value)) return INFINITY;
          } else {
            worst = std::max(worst, distance(value, at(i, j)));
          }
        }
      return largest == 0 ? (worst == 0 ? 0 : INFINITY) : worst / largest;
    }
  };

  static Matrix<T> like(const Matrix<T>& of) { return Matrix<T>(of.rows(), of.columns(), of.stride()); }

  template <typename Visit>
  void for_each_row(Visit visit) {
    for (int sequence = 0; sequence < this->count(); ++sequence)
      for (int query = 0; query < this->problem.lengths[static_cast<std::size_t>(sequence)].first; ++query)
        for (int head = 0; head < this->problem.heads; ++head) visit(sequence, query, head);
  }

  /// By the results that the kernels are given, which are rounded.
  void add_row(int sequence, int query, int head, Wanted& wanted_q, Wanted& wanted_k, Wanted& wanted_v,
               std::vector<double>& wanted_sinks) {
    const AttentionRow right = this->right_row(sequence, query, head);
    const std::int64_t q_row = this->row(true, sequence, query);
    const int key_head = head / (this->problem.heads / this->problem.key_heads), of_q = head * Form::head_dim,
              of_out = head * Form::value_dim, of_k = key_head * Form::head_dim, of_v = key_head * Form::value_dim;
    wanted_q.exists[static_cast<std::size_t>(q_row)] = true;
    double delta = 0;
    for (int i = 0; i < Form::value_dim; ++i)
      delta += this->out.value(q_row, of_out + i) * dout.value(q_row, of_out + i);
    if (Form::sinks == Sinks::head && right.lse > -INFINITY)
      wanted_sinks[static_cast<std::size_t>(head)] -= std::exp(this->sinks.value(0, head) - right.lse) * delta;
    for (std::size_t key = 0; key < right.weights.size(); ++key) {
      if (right.weights[key] == 0) continue;
      const std::int64_t k_row = this->row(false, sequence, static_cast<int>(key));
      double of_weight = -delta;
      for (int i = 0; i < Form::value_dim; ++i) {
        of_weight += right.kept[key] * dout.value(q_row, of_out + i) * this->v.value(k_row, of_v + i);
        wanted_v.at(k_row, of_v + i) += right.weights[key] * right.kept[key] * dout.value(q_row, of_out + i);
      }
      const double change = right.weights[key] * of_weight * right.slopes[key] * this->problem.scale;
      for (int i = 0; i < Form::head_dim; ++i) {
        wanted_q.at(q_row, of_q + i) += change * this->k.value(k_row, of_k + i);
        wanted_k.at(k_row, of_k + i) += change * this->q.value(q_row, of_q + i);
      }
    }
  }
};

/// `clears` sums of dq and `clears_keys` those of dk and dv.
template <typename Form, bool clears, bool clears_keys = false>
void launch_rows(AttentionBackward<Form>& of, std::uint32_t seed) {
  const int heads = of.problem.heads, queries = of.rows(true);
  constexpr int rows_of_block = 256 / kiln::attention::lanes_of_row<Form::value_dim>;
  const auto blocks = static_cast<unsigned>((of.planes() * queries + rows_of_block - 1) / rows_of_block);
  emulator::launch({.grid = {blocks, static_cast<unsigned>(heads)}, .block = {256}, .seed = seed}, [&] {
    attention_backward_rows<typename Form::T, Form::head_dim, Form::value_dim, Form::layout, clears>(
        {of.out.data(), of.batch_stride(of.out, true), of.out.stride(), Form::value_dim}, of.dout.data(), of.lse_sums(),
        of.told_query_offsets.data(), of.told_key_offsets.data(), &of.reports[0], &of.reports[1], of.facts.data(),
        of.sums.data(), of.key_sums.data(), clears_keys ? static_cast<long long>(of.key_sums.size()) : 0, of.count(),
        of.planes(), queries, of.rows(false), heads);
  });
}

/// `swizzled`: how sums of dq lie.
template <bool swizzled = false, typename Form>
void launch_end(AttentionBackward<Form>& of, bool converts, std::uint32_t seed) {
  const int heads = of.problem.heads, queries = of.rows(true);
  const auto threads = static_cast<unsigned>(of.planes() * queries * Form::head_dim / 8);
  if (converts)
    emulator::launch({.grid = {(threads + 255) / 256, static_cast<unsigned>(heads)}, .block = {256}, .seed = seed},
                     [&] {
                       attention_backward_convert<typename Form::T, Form::head_dim, Form::layout, swizzled>(
                           of.sums.data(), of.dq_rows(), of.told_query_offsets.data(), of.count(), of.planes(), queries,
                           heads, of.problem.scale);
                     });
  if (Form::sinks == Sinks::head)
    emulator::launch({.grid = {static_cast<unsigned>(heads)}, .block = {64}, .seed = seed}, [&] {
      attention_backward_sinks<64>(of.facts.data(), of.sinks.data(), of.dsink.data(), of.planes(), queries, heads);
    });
}

/// dk and dv from sums.
template <typename Form>
void launch_convert_keys(AttentionBackward<Form>& of, std::uint32_t seed) {
  const auto threads =
      static_cast<unsigned>(of.planes() * of.rows(false) * std::max(Form::head_dim, Form::value_dim) / 8);
  emulator::launch(
      {.grid = {(threads + 255) / 256, static_cast<unsigned>(2 * of.problem.key_heads)}, .block = {256}, .seed = seed},
      [&] {
        attention_backward_convert_keys<typename Form::T, Form::head_dim, Form::value_dim, Form::layout>(
            of.key_sums.data(), of.dk_rows(), of.dv_rows(), of.told_key_offsets.data(), of.count(), of.planes(),
            of.rows(false), of.problem.key_heads);
      });
}

/// Tiles of `size` rows that a grid has to have, where so many heads have tiles.
template <typename Form>
unsigned tiles_of(const AttentionBackward<Form>& of, bool of_queries, int size, int heads) {
  int all = 0;
  for (const auto& [queries, keys] : of.problem.lengths)
    all += ((of_queries ? queries : keys) + size - 1) / size * heads;
  return static_cast<unsigned>(all + 1);
}
template <typename Form>
unsigned tiles_of(const AttentionBackward<Form>& of, bool of_queries, int size) {
  return tiles_of(of, of_queries, size, of_queries ? of.problem.heads : of.problem.key_heads);
}

}  // namespace test
