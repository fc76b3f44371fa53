#include "empty.hpp"

#include <limits>

namespace kiln_torch {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

constexpr EmptyRule rules[] = {
    {"gemm", "k", true},
    {"gemm_batched", "k", true},
    {"gemm_grouped", "groups"},  // no row is in a group
    {"gemm_grouped", "k", true},
    {"all_gather_gemm", "k"},
    {"gemm_reduce_scatter", "k"},
    {"gemm_all_reduce", "k"},
    {"rms_norm_backward", "rows"},
    {"layer_norm_backward", "rows"},
    {"attention_forward", "batch", false, "lse", minus_infinity},  // packed: no row is in a sequence
    {"attention_forward", "keys", false, "lse", minus_infinity},
    {"attention_paged", "batch", false, "lse", minus_infinity},  // no row is in a sequence
    {"attention_paged", "keys", false, "lse", minus_infinity},
    {"attention_decode", "keys", false, "lse", minus_infinity},
    {"attention_backward", "batch"},
    {"attention_backward", "queries"},
    {"attention_backward", "keys"},
    {"attention_backward", "heads"},
    {"quantise", "rows", false, "y_dynamic_scale", 1},  // as of zeros
    {"quantise", "cols", false, "y_dynamic_scale", 1},
};

}  // namespace

const EmptyRule* find_empty_rule(std::string_view op, std::string_view axis) {
  for (const EmptyRule& each : rules)
    if (each.op == op && each.axis == axis) return &each;
  return nullptr;
}

}  // namespace kiln_torch
