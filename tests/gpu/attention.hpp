// Problems of the four ops of attention.
#pragma once

#include <random>

#include "gpu/check_implementations.hpp"

namespace kiln::gpu_tests {

struct AttentionSizes {
  const char *batch, *queries, *keys, *heads, *key_heads, *head_dim, *value_dim;
};

inline Problem attention(const manifest::Op& op, const AttentionSizes& sizes,
                         std::initializer_list<manifest::Setting> choices) {
  std::vector<manifest::Setting> all = {{"batch", sizes.batch},         {"queries", sizes.queries},
                                        {"keys", sizes.keys},           {"heads", sizes.heads},
                                        {"key_heads", sizes.key_heads}, {"head_dim", sizes.head_dim},
                                        {"value_dim", sizes.value_dim}};
  all.insert(all.end(), choices);
  return manifest::make_problem(op, all);
}

/// With each case of lengths, and without lse.
inline void check_cases(Fixture& fixture, const manifest::Op& op, const Problem& problem, std::mt19937& generator) {
  for (std::size_t each = 0; each < op.prepare.value().cases.size(); ++each) {
    tune::Placement placement;
    placement.prepare_case = each;
    check_all(fixture, op, problem, placement, generator);
  }
  tune::Placement no_lse;
  no_lse.leave_optional_out = true;
  check_all(fixture, op, problem, no_lse, generator);
}

}  // namespace kiln::gpu_tests
