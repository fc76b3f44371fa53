// What a launch reads of an executable: flat, without texts, made once when the plan is made. What a bucket leaves open is all that is
// computed here; what is unusual is refused with a bool, and the Executable says it in words.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cuda/driver_types.hpp"
#include "jit/tensor_map.hpp"
#include "kiln/arguments.hpp"
#include "spec/formula.hpp"

namespace kiln::jit {

/// The dynamic part of a frame at one call: axes, then run-time values (integers as numbers, reals as bits).
struct CallFrame {
  std::array<std::int64_t, max_axes + max_runtime> slots;
  [[nodiscard]] std::span<const std::int64_t> view() const noexcept { return slots; }
};

/// kiln::axis_length of templates/common/length.cuh, as the device sees it.
struct AxisLength {
  const std::int32_t* on_device;
  CUdeviceptr report;
  std::int32_t bound;
  std::int32_t unused;
};
static_assert(sizeof(AxisLength) == 24);

/// Arguments of one pass that are computed at each launch; the others lie in the call's Arguments, its frame, or the form.
struct ComputedArguments {
  std::array<CUtensorMap, spec::max_tensor_maps> maps;
  std::array<AxisLength, max_axes> lengths;
  std::array<std::int64_t, spec::max_arguments> values;
};

inline constexpr std::int64_t most_grid_x = 2147483647;
inline constexpr std::int64_t most_grid_yz = 65535;

/// What cuLaunchKernelEx is given for one pass.
struct PassCall {
  CUlaunchConfig config;
  CUfunction function;
  std::array<const void*, spec::max_arguments> parameters;
  ComputedArguments computed;
};

/// What all passes of one launch are given.
struct LaunchInput {
  const CallFrame& frame;
  const Arguments& arguments;
  CUstream stream;
  CUdeviceptr workspace;
  CUdeviceptr reports;
};

/// A run-time value, where LaunchForm::defaults does not settle it.
struct RuntimeForm {
  spec::Formula value;       // when the launch gives none
  bool has_value = false;    // else the launch must give one
  bool value_holds = false;  // the default is within the limits, whatever the sizes
  bool given_holds = false;  // anything is
  bool has_minimum = false;
  spec::Formula minimum;
  std::int64_t lowest = 0, highest = 0;  // of its type

  [[nodiscard]] bool fill(bool given, std::int64_t bits, std::span<const std::int64_t> frame,
                          std::int64_t& slot) const noexcept {
    if (given) {
      slot = bits;
      if (given_holds) return true;
    } else {
      if (!has_value || !value.evaluate(frame, slot)) return false;
      if (value_holds) return true;
    }
    if (slot < lowest || slot > highest) return false;
    std::int64_t least = 0;
    return !has_minimum || (minimum.evaluate(frame, least) && slot >= least);
  }
};

struct TensorForm {
  std::uint64_t mask = 0;    // address bits that must be 0
  std::uint32_t lowest = 0;  // 1: null is refused
  std::uint32_t tensor = 0;
};

struct PassForm {
  /// Where an argument lies, and how far in.
  enum class Source : std::uint8_t { tensors, frame, constants, computed };
  struct Argument {
    Source source;
    std::uint16_t offset;  // bytes
  };
  struct Computed {
    spec::ArgumentKind kind;
    std::uint8_t to;          // index into ComputedArguments
    std::uint16_t from;       // tensor, or axis
    std::int64_t offset = 0;  // into the workspace
    spec::Formula value;
    std::int64_t minimum = 0, maximum = 0;  // of value
  };
  struct GridSize {
    unsigned CUlaunchConfig::*dimension;
    std::int64_t most;
    spec::Formula blocks;
  };

  CUlaunchConfig config{};  // sizes that a bucket fixes are in place
  CUfunction function = nullptr;
  std::vector<GridSize> grid;  // the others
  std::vector<Argument> arguments;
  std::vector<Computed> computed;
  std::vector<std::int64_t> constants;
  std::vector<TensorMaps> maps;  // by ComputedArguments::maps
  const std::string* kernel = nullptr;

  /// False when a size or an argument is out of its limits. Throws as TensorMaps::make does.
  [[nodiscard]] bool arrange(const LaunchInput& input, PassCall& call) const;
};

struct LaunchForm {
  std::size_t axes = 0;
  static constexpr std::size_t piece = 4;
  std::size_t runtime_pieces = 0;   // that hold all run-time values
  std::uint32_t declared = 0;       // bit i: there is a run-time value i
  std::uint32_t open_defaults = 0;  // bit i: its default is not in `defaults`
  std::array<std::int64_t, max_runtime> defaults{};
  std::vector<RuntimeForm> runtime;
  std::vector<TensorForm> tensors;  // whose addresses must be looked at
  /// Constraints that a size of the bucket can break; then those that are open when no run-time value of `constrained` is given, and the
  /// defaults hold; then those that any size of the op can break, for a plan that stands in for another bucket's.
  std::vector<spec::Formula> constraints, constraints_at_defaults, constraints_elsewhere;
  struct Bucketed {
    std::size_t axis;
    std::int64_t lowest, highest;
  };
  std::vector<Bucketed> bucket;   // the axes that are not exact
  std::uint32_t constrained = 0;  // bit i: run-time value i stands in a constraint
  std::vector<PassForm> passes;

  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    // In whole pieces, which need no loop over single slots: what lies behind is written over.
    std::memcpy(call.slots.data(), problem.axes.data(), sizeof problem.axes);
    std::int64_t* const values = call.slots.data() + axes;
    for (std::size_t i = 0; i < runtime_pieces; ++i)
      std::memcpy(values + i * piece, defaults.data() + i * piece, piece * sizeof(std::int64_t));
    // In order: a default may be over values before it.
    for (std::uint32_t left = (arguments.runtime_set & declared) | open_defaults; left != 0; left &= left - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(left));
      if (!runtime[i].fill((arguments.runtime_set >> i & 1U) != 0, arguments.runtime[i], call.view(), values[i]))
        return false;
    }
    return true;
  }
  [[nodiscard]] bool takes(const Arguments& arguments) const noexcept {
    for (const TensorForm& each : tensors) {
      const auto address = reinterpret_cast<std::uint64_t>(arguments.tensors[each.tensor]);
      if ((address & each.mask) != 0 || address < each.lowest) return false;
    }
    return true;
  }
  [[nodiscard]] bool holds(const CallFrame& call, const Arguments& arguments) const noexcept {
    const auto& open = !is_inside(call)                             ? constraints_elsewhere
                       : (arguments.runtime_set & constrained) == 0 ? constraints_at_defaults
                                                                    : constraints;
    for (const spec::Formula& each : open)
      if (!each.truth(call.view())) return false;
    return true;
  }
  [[nodiscard]] bool is_inside(const CallFrame& call) const noexcept {
    for (const Bucketed& each : bucket)
      if (call.slots[each.axis] < each.lowest || call.slots[each.axis] > each.highest) return false;
    return true;
  }
};

/// Of what an Executable has loaded.
struct LaunchFormParts {
  std::span<const spec::Range> op;  // what any problem with its exact sizes leaves open of each slot of the call frame
  std::span<const spec::Range> bucket;  // what its bucket leaves open
  std::size_t axes = 0;
  std::span<const spec::Runtime> runtime;         // defaults and minima specialised
  std::span<const spec::Expression> constraints;  // specialised
  std::span<const LoadedPass> passes;             // stay where they are
};
LaunchForm make_launch_form(const LaunchFormParts& parts);

}  // namespace kiln::jit
