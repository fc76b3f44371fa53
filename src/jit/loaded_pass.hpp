// A pass and its arguments with static names folded, as the texts that they were: what launch forms are made of, and messages.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cuda/driver_types.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

struct LoadedArgument {
  manifest::ArgumentKind kind = manifest::ArgumentKind::tensor;
  int index = 0;            // tensor; slot of the call frame
  std::int64_t offset = 0;  // workspace
  manifest::Expression value;
  std::int64_t minimum = 0, maximum = 0;                  // of value: what its type holds
  std::vector<manifest::Expression> shape, strides, box;  // tensor_map, outermost first
  std::uint32_t swizzle = 0;
  manifest::DType dtype = manifest::DType::f32;
  bool absent = false;  // tensor_map: none is made
};

struct LoadedPass {
  CUfunction function = nullptr;
  std::array<manifest::Expression, 3> grid;
  CUlaunchConfig config{};
  std::array<CUlaunchAttribute, 3> attributes{};
  unsigned attribute_count = 0;
  std::int64_t most_blocks =
      std::numeric_limits<std::int64_t>::max();  // of a cooperative launch: what the device holds at once
  std::vector<LoadedArgument> arguments;
  std::string kernel;  // for messages
};

}  // namespace kiln::jit
