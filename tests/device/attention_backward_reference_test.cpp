#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention_backward.hpp"
#include "attention_backward/reference.cuh"

namespace {

using namespace test;

template <typename Form>
double reference_error(const AttentionProblem& problem) {
  AttentionBackward<Form> of(problem);
  const auto like = [](const Matrix<typename Form::T>& each) {
    return Matrix<float>(each.rows(), each.columns(), each.stride());
  };
  Matrix<float> dq = like(of.dq), dk = like(of.dk), dv = like(of.dv);
  const kiln::attention::HeadRows<const typename Form::T> out = {of.out.data(), of.batch_stride(of.out, true),
                                                                 of.out.stride(), Form::value_dim};
  const auto planes = static_cast<unsigned>(of.planes());
  const auto pass = [&](unsigned rows, int heads, auto kernel, auto... gradients) {
    emulator::launch({.grid = {planes * rows, static_cast<unsigned>(heads)}, .block = {256}, .seed = 1}, [&] {
      kernel(of.q_rows(), of.k_rows(), of.v_rows(), out, of.lse_sums(), of.dout_rows(), of.query_offsets.data(),
             of.key_offsets.data(), gradients..., of.count(), of.rows(true), of.rows(false), problem.heads,
             problem.key_heads, problem.scale, problem.cap, problem.from_end, problem.left, problem.right, 1,
             of.slopes.data(), of.bias_rows(), of.dropout_seed.data(), problem.p);
    });
  };
  pass(static_cast<unsigned>(of.rows(true)), problem.heads, attention_backward_reference_queries<Form>,
       of.rows_of(dq, true, Form::head_dim));
  pass(static_cast<unsigned>(of.rows(false)), problem.key_heads, attention_backward_reference_keys<Form>,
       of.rows_of(dk, false, Form::head_dim), of.rows_of(dv, false, Form::value_dim));
  if (Form::sinks == Sinks::head)
    emulator::launch({.grid = {static_cast<unsigned>(problem.heads)}, .block = {1024}, .seed = 1}, [&] {
      attention_backward_reference_sinks<typename Form::T, Form::value_dim, Form::layout>(
          out, of.lse_sums(), of.dout.data(), of.sinks.data(), of.query_offsets.data(), of.dsink.data(), of.count(),
          of.rows(true));
    });
  return of.error_of(dq, dk, dv);
}

TEST_CASE("the reference of attention_backward gives the gradients of each mask, layout and choice") {
  constexpr double close = 1e-5;
  CHECK(reference_error<AttentionForm<Layout::dense, Mask::none, 64>>({.lengths = {{20, 300}, {20, 300}}, .heads = 2}) <
        close);
  CHECK(reference_error<AttentionForm<Layout::dense, Mask::causal, 40, 24>>(
            {.lengths = {{290, 290}}, .heads = 4, .key_heads = 2}) < close);
  CHECK(reference_error<AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>>(
            {.lengths = {{35, 40}, {0, 0}, {20, 30}}, .heads = 2, .left = 12, .right = 3}) < close);
  CHECK(reference_error<WithDropout<Layout::dense, Mask::causal, SoftCap::none, Sinks::head>>(
            {.lengths = {{50, 50}, {50, 50}}, .heads = 2}) < close);
  CHECK(reference_error<WithDropout<Layout::packed, Mask::none>>({.lengths = {{35, 40}, {20, 30}}, .heads = 2}) <
        close);
  for (const bool apart : {true, false})
    CHECK(reference_error<WithBias<Mask::none, SoftCap::tanh>>(
              {.lengths = {{25, 35}, {25, 35}}, .heads = 2, .bias_of_batch = apart, .bias_of_heads = !apart}) < close);
  CHECK(reference_error<WithSlopes<Layout::dense, Mask::causal, SoftCap::tanh>>({.lengths = {{40, 40}}, .heads = 2}) <
        close);
  CHECK(reference_error<WithSlopes<Layout::packed, Mask::window>>(
            {.lengths = {{35, 40}, {0, 0}, {20, 30}}, .heads = 2, .left = 12, .right = 3}) < close);
}

/// Central differences of a sum.
template <typename Sum>
float difference(float& by, Sum sum) {
  constexpr float step = 0x1p-10f;
  const float before = by;
  by = before + step;
  const double more = sum();
  by = before - step;
  const double less = sum();
  by = before;
  return static_cast<float>((more - less) / (2 * double{step}));
}

TEST_CASE("the gradients that tests compare with are differences of the results, all choices at once") {
  using Form = kiln::attention::Form<float, 8, 8, Layout::dense, Mask::window, SoftCap::tanh, Sinks::head, Alibi::head,
                                     Bias::tensor, Dropout::philox>;
  AttentionBackward<Form> of({.lengths = {{5, 6}, {5, 6}}, .heads = 4, .key_heads = 2, .left = 2, .right = 1});
  const auto loss = [&] {
    double sum = 0;
    for (int sequence = 0; sequence < 2; ++sequence)
      for (int query = 0; query < 5; ++query)
        for (int head = 0; head < 4; ++head) {
          const AttentionRow row = of.right_row(sequence, query, head);
          for (int i = 0; i < 8; ++i)
            sum += row.out[static_cast<std::size_t>(i)] * of.dout.value(of.row(true, sequence, query), head * 8 + i);
        }
    return sum;
  };
  const auto differences = [&](Matrix<float>& by, bool of_queries) {
    Matrix<float> made(by.rows(), by.columns(), by.stride());
    for (int sequence = 0; sequence < 2; ++sequence)
      for (int i = 0; i < (of_queries ? 5 : 6); ++i)
        for (std::int64_t column = 0; column < by.columns(); ++column) {
          const std::int64_t row = of.row(of_queries, sequence, i);
          made.at(row, column) = difference(by.at(row, column), loss);
        }
    return made;
  };
  Matrix<float> dq = differences(of.q, true), dk = differences(of.k, false), dv = differences(of.v, false);
  for (int head = 0; head < 4; ++head) of.dsink.at(0, head) = difference(of.sinks.at(0, head), loss);
  CHECK(of.error_of(dq, dk, dv) < 1e-4);
}

}  // namespace
