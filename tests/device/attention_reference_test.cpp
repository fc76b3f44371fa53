#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"
#include "attention_forward/reference.cuh"

namespace {

using namespace test;

template <typename Form>
double reference_error(const AttentionProblem& problem) {
  Attention<Form> of(problem);
  Matrix<float> out(of.out.rows(), of.out.columns(), of.out.stride());
  const auto planes = static_cast<unsigned>(of.packed ? 1 : of.count());
  emulator::launch(
      {.grid = {planes * static_cast<unsigned>(of.rows(true)), static_cast<unsigned>(problem.heads)},
       .block = {256},
       .seed = 1},
      [&] {
        attention_forward_reference<Form>(
            of.q.data(), of.k.data(), of.v.data(), out.data(), of.lse.data(), of.sinks.data(), of.query_offsets.data(),
            of.key_offsets.data(), of.count(), of.rows(true), of.rows(false), problem.heads, problem.key_heads,
            of.batch_stride(of.q, true), of.q.stride(), Form::head_dim, of.batch_stride(of.k, false), of.k.stride(),
            Form::head_dim, of.batch_stride(of.v, false), of.v.stride(), Form::value_dim, of.batch_stride(of.out, true),
            of.out.stride(), Form::value_dim, of.lse_batch_stride(), of.lse.stride(), problem.scale, problem.cap,
            problem.from_end, problem.left, problem.right, 1, of.slopes.data(), of.bias.data(), of.bias_batch_stride(),
            of.bias_head_stride(), of.bias.stride(), of.dropout_seed.data(), problem.p);
      });
  return of.error_of(out);
}

TEST_CASE("the reference of attention_forward gives the results of each mask, layout and choice") {
  constexpr double close = 1e-6;
  CHECK(reference_error<AttentionForm<Layout::dense, Mask::none, 64>>({.lengths = {{20, 300}, {20, 300}}, .heads = 2}) <
        close);
  CHECK(reference_error<AttentionForm<Layout::packed, Mask::window, 40, 24, SoftCap::tanh, Sinks::head>>(
            {.lengths = {{35, 40}, {9, 0}, {20, 30}}, .heads = 2, .left = 12, .right = 3}) < close);
  CHECK(reference_error<WithDropout<Layout::dense, Mask::causal, SoftCap::none, Sinks::head>>(
            {.lengths = {{40, 50}, {40, 50}}, .heads = 2}) < close);
  CHECK(reference_error<WithDropout<Layout::packed, Mask::none>>({.lengths = {{35, 40}, {20, 30}}, .heads = 2}) <
        close);
  for (const bool apart : {true, false})
    CHECK(reference_error<WithBias<Mask::none>>(
              {.lengths = {{25, 35}, {25, 35}}, .heads = 2, .bias_of_batch = apart, .bias_of_heads = !apart}) < close);
  for (const bool from_end : {true, false})
    CHECK(reference_error<WithSlopes<Layout::dense, Mask::causal, SoftCap::tanh>>(
              {.lengths = {{50, 30}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < close);
}

}  // namespace
