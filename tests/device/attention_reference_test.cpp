#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
#include "emulator/launch.hpp"
// What kernels include comes after what they take for built in.
#include "attention.hpp"
#include "attention_forward/reference.cuh"

namespace {

using namespace test;

/// The largest distance of the reference's float results from what is right.
template <typename Form>
double reference_error(const AttentionProblem& problem) {
  Attention<Form, float> of(problem);
  const bool scaled = of.scaled;
  emulator::launch({.grid = {static_cast<unsigned>(of.rows(true) * (of.packed ? 1 : of.count())),
                             static_cast<unsigned>(problem.heads)},
                    .block = {256},
                    .seed = 1},
                   [&] {
                     attention_forward_reference<Form>(
                         of.q_rows(), of.k_rows(), of.v_rows(), of.out_rows(), of.lse_sums(),
                         scaled ? of.q_scales.data() : nullptr, scaled ? of.k_scales.data() : nullptr,
                         scaled ? of.v_scales.data() : nullptr, of.sinks.data(), of.query_offsets.data(),
                         of.key_offsets.data(), of.count(), of.rows(true), of.rows(false), problem.heads,
                         problem.key_heads, problem.scale, problem.cap, problem.from_end, problem.left, problem.right,
                         1, of.slopes.data(), of.bias_rows(), of.dropout_seed.data(), problem.p);
                   });
  return of.error();
}

constexpr double exact = 1e-6;  // results are rounded to float

TEST_CASE("the reference of attention_forward gives out and lse of each mask, layout and choice") {
  CHECK(reference_error<AttentionForm<Layout::dense, Mask::none, 64>>({.lengths = {{7, 300}, {7, 300}}, .heads = 2}) <
        exact);
  CHECK(reference_error<AttentionForm<Layout::dense, Mask::causal, 40, 24>>(
            {.lengths = {{20, 9}}, .heads = 4, .key_heads = 2}) < exact);
  CHECK(reference_error<AttentionForm<Layout::packed, Mask::window, 64, 64, SoftCap::tanh, Sinks::head>>(
            {.lengths = {{5, 9}, {0, 3}, {4, 0}}, .heads = 2, .left = 3, .right = 1}) < exact);
}

template <Layout layout, Mask mask, SoftCap soft_cap = SoftCap::none, Sinks sinks = Sinks::none>
using InEightBits = AttentionForm<layout, mask, 64, 64, soft_cap, sinks, kiln::e4m3>;

TEST_CASE("the reference of attention_forward drops weights and leaves lse") {
  CHECK(reference_error<WithDropout<Layout::dense, Mask::causal, SoftCap::none, Sinks::head>>(
            {.lengths = {{40, 50}, {40, 50}}, .heads = 2}) < exact);
  CHECK(reference_error<WithDropout<Layout::packed, Mask::none>>({.lengths = {{35, 40}, {20, 30}}, .heads = 2}) <
        exact);
}

TEST_CASE("the reference of attention_forward scales each head of 8-bit q, k and v by its own") {
  CHECK(reference_error<InEightBits<Layout::dense, Mask::causal>>({.lengths = {{20, 30}}, .heads = 4, .key_heads = 2}) <
        exact);
  CHECK(reference_error<InEightBits<Layout::packed, Mask::none, SoftCap::tanh, Sinks::head>>(
            {.lengths = {{5, 9}, {4, 0}}, .heads = 3, .key_heads = 3}) < exact);
}

TEST_CASE("the reference of attention_forward adds a bias of each sequence or of each head") {
  for (const bool apart : {true, false})
    CHECK(reference_error<WithBias<Mask::none>>(
              {.lengths = {{25, 35}, {25, 35}}, .heads = 2, .bias_of_batch = apart, .bias_of_heads = !apart}) < exact);
}

TEST_CASE(
    "the reference of attention_forward lowers logits by each head's slope, after a soft cap, from either diagonal") {
  for (const bool from_end : {true, false})
    CHECK(reference_error<WithSlopes<Layout::dense, Mask::causal, SoftCap::tanh>>(
              {.lengths = {{50, 30}}, .heads = 4, .key_heads = 2, .from_end = from_end}) < exact);
}

}  // namespace
