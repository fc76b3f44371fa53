// What an op gives where a size is 0, for which Kiln launches nothing.
#pragma once

#include <string_view>

namespace kiln_torch {

/// With `axis` of 0, results are zeros, except `output`, which is filled with `value`. `on_zeros`: the op is launched with inputs
/// of zeros in place of those without elements, because other tensors, such as a bias, follow the sum over nothing.
struct EmptyRule {
  std::string_view op, axis;
  bool on_zeros = false;
  std::string_view output = {};
  float value = 0;
};

/// Of an op that ships with Kiln; null where its contract has no result.
const EmptyRule* find_empty_rule(std::string_view op, std::string_view axis);

}  // namespace kiln_torch
