// Problems of the four ops of attention.
#pragma once

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

}  // namespace kiln::gpu_tests
