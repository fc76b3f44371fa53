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
  const auto planes = static_cast<unsigned>(of.planes());
  const auto pass = [&](unsigned rows, int heads, auto kernel, auto*... gradients) {
    emulator::launch({.grid = {planes * rows, static_cast<unsigned>(heads)}, .block = {256}, .seed = 1}, [&] {
      kernel(of.q.data(), of.k.data(), of.v.data(), of.out.data(), of.lse.data(), of.dout.data(),
             of.query_offsets.data(), of.key_offsets.data(), gradients..., of.count(), of.rows(true), of.rows(false),
             problem.heads, problem.key_heads, of.batch_stride(of.q, true), of.q.stride(), Form::head_dim,
             of.batch_stride(of.k, false), of.k.stride(), Form::head_dim, of.batch_stride(of.v, false), of.v.stride(),
             Form::value_dim, of.batch_stride(of.out, true), of.out.stride(), Form::value_dim, of.lse_batch_stride(),
             of.lse.stride(), problem.scale, problem.cap, problem.from_end, problem.left, problem.right, 1,
             of.slopes.data(), of.bias.data(), of.bias_batch_stride(), of.bias_head_stride(), of.bias.stride());
    });
  };
  pass(static_cast<unsigned>(of.rows(true)), problem.heads, attention_backward_reference_queries<Form>, dq.data());
  pass(static_cast<unsigned>(of.rows(false)), problem.key_heads, attention_backward_reference_keys<Form>, dk.data(),
       dv.data());
  if (Form::sinks == Sinks::head)
    emulator::launch({.grid = {static_cast<unsigned>(problem.heads)}, .block = {1024}, .seed = 1}, [&] {
      attention_backward_reference_sinks<typename Form::T, Form::value_dim, Form::layout>(
          of.out.data(), of.lse.data(), of.dout.data(), of.sinks.data(), of.query_offsets.data(), of.dsink.data(),
          of.count(), of.rows(true), of.batch_stride(of.out, true), of.out.stride(), Form::value_dim,
          of.lse_batch_stride(), of.lse.stride());
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
  for (const bool apart : {true, false})
    CHECK(reference_error<WithBias<Mask::none, SoftCap::tanh>>(
              {.lengths = {{25, 35}, {25, 35}}, .heads = 2, .bias_of_batch = apart, .bias_of_heads = !apart}) < close);
  CHECK(reference_error<WithSlopes<Layout::dense, Mask::causal, SoftCap::tanh>>({.lengths = {{40, 40}}, .heads = 2}) <
        close);
  CHECK(reference_error<WithSlopes<Layout::packed, Mask::window>>(
            {.lengths = {{35, 40}, {0, 0}, {20, 30}}, .heads = 2, .left = 12, .right = 3}) < close);
}

}  // namespace
