// A problem and its arguments, read from the caller's tensors by Op::bind.
#pragma once

#include <cstdint>

#include "kiln/arguments.hpp"
#include "kiln/problem.hpp"
#include "kiln/tensor.hpp"

namespace kiln {

/// One tensor of a call.
struct Operand {
  TensorId tensor;
  Tensor view;
};

/// What a launch is given. Made by Op::binding, filled by Op::bind as often as tensors change. A value like Problem.
/// Until then, and after tensors were refused, sizes that were not given are such that launches refuse it.
struct Binding {
  Problem problem;
  Arguments arguments;
  // Bit i stands for axis i, selection i and run-time value i: Op::binding was given it, so tensors must agree with it.
  std::uint32_t axes_given = 0, selections_given = 0, values_given = 0;
};

}  // namespace kiln
