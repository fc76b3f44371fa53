// What a launch reads of an executable: flat, without texts, made once when the plan is made. What a bucket leaves open is all that is
// computed here; what is unusual is refused with a bool, and the Executable says it in words.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "cuda/driver_types.hpp"
#include "jit/tensor_map.hpp"
#include "kiln/arguments.hpp"
#include "manifest/formula.hpp"

namespace kiln::jit {

/// kiln::axis_length of templates/common/length.cuh, as the device sees it.
struct AxisLength {
  const std::int32_t* on_device;
  CUdeviceptr report;
  std::int32_t bound;
  std::int32_t unused;
};
static_assert(sizeof(AxisLength) == 24);

/// The dynamic part of a frame at one call, and what kernel arguments point into. Of each array as much is set as there is.
struct CallFrame {
  std::array<std::int64_t, max_axes + max_runtime>
      slots;  // axes, then run-time values (integers as numbers, reals as bits)
  std::array<const void*, max_tensors> tensors;
  std::array<AxisLength, max_axes> lengths;
  /// Of constants, expressions and workspaces. Each pass has its own where all fit, so that constants stay from launch to launch.
  std::array<std::int64_t, manifest::max_arguments> values;
  std::array<CUtensorMap, manifest::max_tensor_maps>
      maps;  // those that are not kept: of one pass, since the driver has copied them then

  [[nodiscard]] std::span<const std::int64_t> view() const noexcept { return slots; }
};

inline constexpr std::int64_t most_grid_x = 2147483647;
inline constexpr std::int64_t most_grid_yz = 65535;

/// What cuLaunchKernelEx is given for one pass. It points into the frame that it is linked to (PassForm::link), and at descriptors that the
/// calling thread keeps.
struct alignas(64) PassCall {
  CUlaunchConfig config;
  CUfunction function;  // on one line with the config
  std::array<const void*, manifest::max_arguments> parameters;
};

/// What all passes of one launch are given.
struct LaunchInput {
  CallFrame& frame;  // filled for this problem and these arguments
  const Arguments& arguments;
  CUstream stream;
  CUdeviceptr workspace;
  CUdeviceptr reports;
};

/// A run-time value, where LaunchForm::defaults does not settle it.
struct RuntimeForm {
  manifest::Formula value;   // when the launch gives none
  bool has_value = false;    // else the launch must give one
  bool value_holds = false;  // the default is within the limits, whatever the sizes
  bool given_holds = false;  // anything is
  bool has_minimum = false;
  manifest::Formula minimum;
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

inline constexpr std::int64_t most_alignment = std::int64_t{1} << 31;

struct TensorForm {
  std::uint32_t mask = 0;    // address bits that must be 0
  std::uint16_t lowest = 0;  // 1: null is refused
  std::uint16_t tensor = 0;
};

/// Up to `most` of them, in place.
template <typename T, std::size_t most>
class Few {
 public:
  void push_back(T item) { items_[count_++] = std::move(item); }
  [[nodiscard]] const T* begin() const noexcept { return items_.data(); }
  [[nodiscard]] const T* end() const noexcept { return items_.data() + count_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
  std::array<T, most> items_{};
};

/// In the order in which a launch reads it, from the beginning of a cache line: when the driver is done with the launch before, none of this
/// is near the processor any more, and each line that a launch touches costs it nanoseconds.
struct alignas(64) PassForm {
  /// An argument that is made at each launch: an address in the workspace, or a formula's value.
  struct Computed {
    manifest::ArgumentKind kind;
    std::uint8_t to;          // index into CallFrame::values
    std::int64_t offset = 0;  // into the workspace
    manifest::Formula value;
    std::int64_t minimum = 0, maximum = 0;  // of value
  };
  struct GridSize {
    std::uint32_t offset;  // of the dimension, in bytes into CUlaunchConfig
    std::uint32_t most;
    manifest::Formula blocks;
    /// Writes the value of `blocks` into a launch's config; false when it is out of its limits.
    [[nodiscard]] bool set(std::int64_t size, CUlaunchConfig& config) const noexcept {
      if (static_cast<std::uint64_t>(size) - 1 >= most) [[unlikely]]
        return false;
      const auto dimension = static_cast<unsigned>(size);
      std::memcpy(reinterpret_cast<std::byte*>(&config) + offset, &dimension, sizeof dimension);
      return true;
    }
  };
  static constexpr std::size_t piece = 8;  // of constants: whole pieces need no loop over single ones

  // What each launch reads.
  std::uint8_t lengths = 0;          // bit i: axis i has one
  bool has_more = false;             // any of what stands behind `grid`
  Few<GridSize, 3> grid;             // sizes that a bucket leaves open
  std::uint8_t constant_pieces = 0;  // 0 too where no other pass writes where they are linked
  Few<TensorMapForm, manifest::max_tensor_maps> maps;
  std::unique_ptr<TensorMapCache> made_maps;
  std::array<std::int64_t, manifest::max_arguments>
      constants{};  // CallFrame::values, 0 where they are computed or another pass's
  std::vector<Computed> computed;
  std::array<const LoadedArgument*, manifest::max_tensor_maps> map_arguments{};
  const std::string* kernel = nullptr;
  // What linking reads.
  CUlaunchConfig config{};  // sizes that a bucket fixes are in place
  CUfunction function = nullptr;
  std::size_t arguments = 0;
  std::uint8_t first_value = 0, past_values = 0;                 // of constants
  std::array<std::uint16_t, manifest::max_arguments> offsets{};  // of each argument, in bytes into CallFrame
  Few<std::uint8_t, manifest::max_tensor_maps> absent_maps;      // parameters that are given zeros

  /// Writes into a frame and a call what is the same at each launch with them: most of the call, addresses in the frame above all.
  void link(CallFrame& frame, PassCall& call) const noexcept;

  /// Writes the rest into a call that is linked to the input's frame. False when a size or an argument is out of its limits. Throws as
  /// make_tensor_map does.
  [[nodiscard]] bool arrange(const LaunchInput& input, PassCall& call) const {
    call.config.hStream = input.stream;
    // Calls nothing, so that what a launch works with stays in registers.
    for (const GridSize& size : grid) {
      std::int64_t blocks = 0;
      if (!size.blocks.evaluate_share(input.frame.view(), blocks) || !size.set(blocks, call.config)) [[unlikely]]
        return arrange_any(LaunchInput(input), call);  // a copy: the input itself stays in registers
    }
    for (unsigned left = lengths; left != 0; left &= left - 1)
      arrange_length(input, static_cast<std::size_t>(std::countr_zero(left)));
    return !has_more || arrange_more(LaunchInput(input), call);
  }

 private:
  static void arrange_length(const LaunchInput& input, std::size_t axis) noexcept {
    const CUdeviceptr report = input.reports + axis * sizeof(std::uint64_t);
    AxisLength& length = input.frame.lengths[axis];
    length.on_device = input.arguments.lengths[axis];
    length.report = input.reports == 0 ? 0 : report;
    length.bound = static_cast<std::int32_t>(input.frame.slots[axis]);
  }
  /// The same whatever its sizes are.
  [[nodiscard]] bool arrange_any(const LaunchInput& input, PassCall& call) const;
  /// Constants, what is computed, descriptors.
  [[nodiscard]] bool arrange_more(const LaunchInput& input, PassCall& call) const;
  [[nodiscard]] bool compute(const LaunchInput& input) const;
  void arrange_maps(const LaunchInput& input, PassCall& call) const;
  /// One that is not kept: where the driver finds it at this launch.
  [[nodiscard]] const CUtensorMap* make_map(const TensorMapForm& form, const void* address, CallFrame& frame) const;
};

/// Of all passes; laid out as a PassForm is.
struct LaunchForm {
  static constexpr int few_values = max_runtime / 2, few_tensors = max_tensors / 2;

  struct Bucketed {
    std::uint64_t lowest = 0, range = 0;
    std::size_t axis = 0;
  };

  // A line with what stands before it in an Executable.
  std::uint32_t declared = 0;       // bit i: there is a run-time value i
  std::uint32_t open_defaults = 0;  // bit i: its default is not in `defaults`
  std::uint32_t any_given = 0;      // bit i: what is given for it holds, whatever it is
  std::uint32_t host_lengths = 0;   // bit i: axis i may not have its length on the device
  std::uint32_t constrained = 0;    // bit i: run-time value i stands in a constraint
  std::uint8_t axes = 0;
  bool has_many = false;         // either of these
  bool many_values = false;      // run-time values past few_values
  bool many_tensors = false;     // kernels take one past few_tensors
  bool has_constraints = false;  // of constraints_elsewhere, which hold wherever the others do
  bool holds_inside = false;     // no constraints_at_defaults
  std::vector<PassForm> passes;
  // A line of up to six tensors.
  Few<TensorForm, max_tensors> tensors;  // whose addresses must be looked at
  std::vector<RuntimeForm> runtime;
  /// Constraints that any size of the op can break, for a plan that stands in for another bucket's; below those that a size of the bucket can
  /// break, then those that are open when no run-time value of `constrained` is given, and the defaults hold.
  std::vector<manifest::Formula> constraints_elsewhere;
  // A line.
  std::array<std::int64_t, max_runtime> defaults{};
  Few<Bucketed, max_axes> bucket;  // the axes that are not exact
  std::vector<manifest::Formula> constraints, constraints_at_defaults;

  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    // In whole pieces, which need no loop over single slots: what lies behind is written over.
    std::memcpy(call.slots.data(), problem.axes.data(), sizeof problem.axes);
    std::int64_t* const values = call.slots.data() + axes;
    std::memcpy(values, defaults.data(), few_values * sizeof defaults[0]);
    std::memcpy(call.tensors.data(), arguments.tensors.data(), few_tensors * sizeof(const void*));
    if (has_many) [[unlikely]] {
      if (many_values)
        std::memcpy(values + few_values, defaults.data() + few_values, (max_runtime - few_values) * sizeof defaults[0]);
      if (many_tensors) call.tensors = arguments.tensors;
    }
    // In order: a default may be over values before it.
    for (std::uint32_t left = (arguments.runtime_set & declared) | open_defaults; left != 0; left &= left - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(left));
      if ((arguments.runtime_set & any_given) >> i & 1U) [[likely]]
        values[i] = arguments.runtime[i];
      else if (!fill_checked(i, call, arguments))
        return false;
    }
    return true;
  }
  [[nodiscard]] bool takes(const Arguments& arguments) const noexcept {
    std::uint32_t bits = arguments.lengths_set & host_lengths, nulls = 0;
    for (const TensorForm& each : tensors) {
      const auto address = reinterpret_cast<std::uint64_t>(arguments.tensors[each.tensor]);
      bits |= static_cast<std::uint32_t>(address) & each.mask;
      nulls += static_cast<std::uint32_t>(address < each.lowest);
    }
    return (bits | nulls) == 0;
  }
  [[nodiscard]] bool holds(const CallFrame& call, const Arguments& arguments) const noexcept {
    if (!has_constraints) [[likely]]
      return true;
    if (holds_inside && (arguments.runtime_set & constrained) == 0 && is_inside(call)) return true;
    return open_hold(call, arguments);
  }

 private:
  /// Of a run-time value that is given, or has no constant default.
  [[nodiscard]] bool fill_checked(std::size_t i, CallFrame& call, const Arguments& arguments) const noexcept;
  [[nodiscard]] bool open_hold(const CallFrame& call, const Arguments& arguments) const noexcept;
  [[nodiscard]] bool is_inside(const CallFrame& call) const noexcept {
    for (const Bucketed& each : bucket)
      if (static_cast<std::uint64_t>(call.slots[each.axis]) - each.lowest > each.range) return false;
    return true;
  }
};

/// Of what an Executable has loaded.
struct LaunchFormParts {
  std::span<const manifest::Range>
      op;  // what any problem with its exact sizes leaves open of each slot of the call frame
  std::span<const manifest::Range> bucket;  // what its bucket leaves open
  std::size_t axes = 0;
  std::span<const manifest::Runtime> runtime;         // defaults and minima specialised
  std::span<const manifest::Expression> constraints;  // specialised
  std::span<const LoadedPass> passes;                 // stay where they are
  bool has_workspace = true;                          // else a workspace's address is 0
};
LaunchForm make_launch_form(const LaunchFormParts& parts);

}  // namespace kiln::jit
