// The flat data that a launch reads, made once with the plan. A launch computes only what the bucket leaves open.
// Functions here return false where a launch is impossible; Executable then forms the error message.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver_types.hpp"
#include "jit/tensor_map.hpp"
#include "kiln/arguments.hpp"
#include "manifest/formula.hpp"
#include "manifest/op.hpp"

namespace kiln::jit {

/// A kernel argument with its static names folded.
struct LoadedArgument {
  manifest::ArgumentKind kind = manifest::ArgumentKind::tensor;
  int index = 0;              // a tensor (or view), or a slot of the call frame
  std::int64_t offset = 0;    // bytes into the workspace block, also of workspace_map and workspace_view
  bool zeroed = false;        // workspace_map, workspace_view: of a zeroed workspace
  std::uint64_t address = 0;  // workspace_map of a symmetric workspace, which lies where the plan says
  manifest::Expression value;
  manifest::Range limits;       // of value: the range of its type
  const void* fixed = nullptr;  // peers, team: the structure, which outlives the launch form
  // Of a TMA descriptor: tensor_map or workspace_map.
  std::vector<manifest::Expression> shape, strides, box;  // of what it shows, outermost first; strides also of a view
  /// The tensor's or workspace's own, which the view must not leave; empty where it may.
  std::vector<manifest::Expression> tensor_shape, tensor_strides;
  std::string tensor;         // its name, for messages
  std::uint32_t swizzle = 0;  // bytes
  manifest::DType dtype = manifest::DType::f32;
  bool absent = false;  // the kernel gets a descriptor, or a view, of zeros
};

/// A pass with its static names folded, as expressions.
struct LoadedPass {
  CUfunction function = nullptr;
  std::array<manifest::Expression, 3> grid;
  CUlaunchConfig config{};
  std::array<CUlaunchAttribute, 3> attributes{};
  unsigned attribute_count = 0;
  std::int64_t most_blocks =
      std::numeric_limits<std::int64_t>::max();  // cooperative: blocks that the device holds at once
  std::vector<LoadedArgument> arguments;
  std::string kernel;  // for messages
};

/// What a kernel gets for a descriptor that is not made.
inline constexpr CUtensorMap no_tensor_map{};

/// Layout of kiln::axis_length in templates/common/length.cuh.
struct AxisLength {
  const std::int32_t* on_device;
  CUdeviceptr report;
  std::int32_t bound;
  std::int32_t unused;
};
static_assert(sizeof(AxisLength) == 24);

/// Elements of CallFrame::values that a pass may need.
inline constexpr std::size_t max_values = manifest::max_argument_words;
static_assert(max_values <= std::numeric_limits<std::uint8_t>::max());  // PassForm counts them in a byte

/// The dynamic part of a frame for one call. Kernel arguments point into it. Elements past those that the op has are
/// indeterminate.
struct CallFrame {
  std::array<std::int64_t, max_axes + max_runtime>
      slots;  // axes, then run-time values (integers as numbers, reals as bits)
  std::array<const void*, max_tensors> tensors;
  std::array<AxisLength, max_axes> lengths;
  /// Constants, values of expressions, workspace addresses and views. Each pass has elements of its own where all fit.
  std::array<std::int64_t, max_values> values;
  /// Descriptors of the present pass that TensorMapCache does not keep. The driver copies them during the launch.
  std::array<CUtensorMap, manifest::max_tensor_maps> maps;

  [[nodiscard]] std::span<const std::int64_t> view() const noexcept { return slots; }
};

inline constexpr std::int64_t most_grid_x = 2147483647;
inline constexpr std::int64_t most_grid_yz = 65535;

/// The arguments of cuLaunchKernelEx for one pass. Points into the frame that PassForm::link was given, and at
/// descriptors that the calling thread keeps.
struct alignas(64) PassCall {
  CUlaunchConfig config;
  CUfunction function;  // in the cache line of `config`
  std::array<const void*, manifest::max_arguments> parameters;
};

/// Where the workspaces of a launch lie: those with indeterminate contents, and those that are zeros between launches.
/// 0 where it needs none.
struct WorkspaceBlocks {
  WorkspaceBlocks(CUdeviceptr scratch_block = 0,
                  CUdeviceptr zeroed_block = 0) noexcept  // NOLINT: most plans need no zeros
      : scratch(scratch_block), zeroed(zeroed_block) {}
  CUdeviceptr scratch, zeroed;
};

/// The inputs that all passes of one launch share.
struct LaunchInput {
  CallFrame& frame;  // after LaunchForm::fill
  const Arguments& arguments;
  CUstream stream;
  WorkspaceBlocks workspace;
  CUdeviceptr reports;
};

/// Why a run-time value is refused.
enum class Fault : std::uint8_t { none, missing, not_computable, under_minimum, over_maximum, out_of_limits };

/// How LaunchForm::fill computes and checks a run-time value that is not a constant of LaunchForm::defaults.
struct RuntimeForm {
  manifest::Formula value;   // the default
  bool has_value = false;    // false: the launch must give the value
  bool is_read = true;       // false: nothing reads the default, which is not computed then
  bool value_holds = false;  // the default is within the limits at all sizes
  bool given_holds = false;  // every given value is within the limits
  bool has_minimum = false, has_maximum = false;
  manifest::Formula minimum, maximum;
  std::int64_t lowest = 0, highest = 0;  // range of the type

  [[nodiscard]] Fault fill(bool given, std::int64_t bits, std::span<const std::int64_t> frame,
                           std::int64_t& slot) const noexcept {
    if (given) {
      slot = bits;
      if (given_holds) return Fault::none;
    } else {
      if (!has_value) return Fault::missing;
      if (!value.evaluate(frame, slot)) return Fault::not_computable;
      if (value_holds) return Fault::none;
    }
    if (slot < lowest || slot > highest) return Fault::out_of_limits;
    std::int64_t bound = 0;
    if (has_minimum) {
      if (!minimum.evaluate(frame, bound)) return Fault::not_computable;
      if (slot < bound) return Fault::under_minimum;
    }
    if (!has_maximum) return Fault::none;
    if (!maximum.evaluate(frame, bound)) return Fault::not_computable;
    return slot <= bound ? Fault::none : Fault::over_maximum;
  }
};

inline constexpr std::int64_t most_alignment = std::int64_t{1} << 31;

struct TensorForm {
  std::uint32_t mask = 0;    // address bits that must be 0
  std::uint16_t lowest = 0;  // least address: 1 refuses null
  std::uint16_t tensor = 0;
};

/// A vector of at most `most` items, stored in place.
template <typename T, std::size_t most>
class StaticVector {
 public:
  void push_back(T item) { items_[count_++] = std::move(item); }
  [[nodiscard]] const T* begin() const noexcept { return items_.data(); }
  [[nodiscard]] const T* end() const noexcept { return items_.data() + count_; }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  std::size_t count_ = 0;
  std::array<T, most> items_{};
};

/// One pass. Members stand in the order in which a launch reads them, from the beginning of a cache line: the launch
/// before has evicted them, and each line that a launch reads costs nanoseconds.
struct alignas(64) PassForm {
  /// An argument that each launch computes: an address in the workspace, or the value of a formula.
  struct Computed {
    manifest::ArgumentKind kind;
    std::uint8_t to;          // index into CallFrame::values
    std::int64_t offset = 0;  // bytes into the workspace block
    manifest::Formula value;
    manifest::Range limits;  // of value
  };
  struct GridSize {
    std::uint32_t offset;  // of the dimension in CUlaunchConfig, bytes
    std::uint32_t most;
    manifest::Formula blocks;
    /// Writes `size` into `of`. Returns false when it is under 1 or above `most`.
    [[nodiscard]] bool set(std::int64_t size, CUlaunchConfig& of) const noexcept {
      if (static_cast<std::uint64_t>(size) - 1 >= most) [[unlikely]]
        return false;
      const auto dimension = static_cast<unsigned>(size);
      std::memcpy(reinterpret_cast<std::byte*>(&of) + offset, &dimension, sizeof dimension);
      return true;
    }
  };
  /// A word of a view that is elsewhere in the frame: the tensor's address, or a stride. Offsets in CallFrame, bytes.
  struct Copied {
    std::uint16_t from, to;
  };
  /// A parameter that is the same object at all launches.
  struct Fixed {
    std::uint8_t parameter;
    const void* address;
  };
  static constexpr std::size_t piece = 8;   // constants copied at once
  static constexpr std::size_t copies = 4;  // words of views copied at once

  // Read by every launch.
  std::uint16_t lengths = 0;         // bit i: the kernel takes axis i as an AxisLength, or its report
  bool has_more = false;             // arrange_more() is needed
  bool has_workspace_maps = false;   // workspace_maps is not empty
  StaticVector<GridSize, 3> grid;    // grid sizes that the bucket leaves open
  std::uint8_t constant_pieces = 0;  // pieces to copy at each launch; 0 where link() alone writes the constants
  StaticVector<TensorMapForm, manifest::max_tensor_maps> maps;
  std::unique_ptr<TensorMapCache> made_maps;
  std::vector<Computed> computed;
  std::vector<Copied> copied;  // a multiple of `copies` of them
  std::array<const LoadedArgument*, manifest::max_tensor_maps> map_arguments{};
  const std::string* kernel = nullptr;
  std::array<std::int64_t, max_values> constants{};  // for CallFrame::values; 0 for all others
  // Read by link().
  CUlaunchConfig config{};  // with the grid sizes that the bucket fixes
  CUfunction function = nullptr;
  std::size_t arguments = 0;
  std::uint8_t first_value = 0, past_values = 0;                 // the pass's range of CallFrame::values
  std::array<std::uint16_t, manifest::max_arguments> offsets{};  // of each argument in CallFrame, bytes
  std::vector<Fixed> fixed;                                      // arguments outside CallFrame
  // Read by launches of kernels with descriptors of workspaces.
  std::vector<TensorMapForm> workspace_maps;  // `tensor` is the index of the address in CallFrame::values

  /// Writes what is equal at all launches with this frame and call: constants, the config, parameter addresses.
  void link(CallFrame& frame, PassCall& call) const noexcept;

  /// Writes what differs between launches. `call` must be linked to the input's frame. Returns false when a size or an
  /// argument is out of its limits. Throws as make_tensor_map does.
  [[nodiscard]] bool arrange(const LaunchInput& input, PassCall& call) const {
    call.config.hStream = input.stream;
    // No call here, so that the launch's values stay in registers.
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
  /// arrange() for grid sizes of any form.
  [[nodiscard]] bool arrange_any(const LaunchInput& input, PassCall& call) const;
  /// Writes shared constants, computed arguments and descriptors.
  [[nodiscard]] bool arrange_more(const LaunchInput& input, PassCall& call) const;
  [[nodiscard]] bool compute(const LaunchInput& input) const;
  void arrange_maps(const LaunchInput& input, PassCall& call) const;
  void arrange_workspace_maps(const LaunchInput& input, PassCall& call) const;
  void arrange_map(const TensorMapCache::Entry* own, const TensorMapForm& form, const void* address, CallFrame& frame,
                   PassCall& call) const;
  /// Makes a descriptor and returns its address: in the cache, else in the frame. Throws as make_tensor_map does.
  [[nodiscard]] const CUtensorMap* make_map(const TensorMapForm& form, const void* address, CallFrame& frame) const;
};

/// All passes, and the checks before a launch. Laid out as PassForm is.
struct LaunchForm {
  static constexpr int few_axes = 8, few_values = 8, few_tensors = 8;  // as most ops have
  static constexpr int many = 16;  // run-time values or tensors, which are copied without a call

  struct Bucketed {
    std::uint64_t lowest = 0, range = 0;
    std::size_t axis = 0;
  };
  /// A default that is values[slot] * times + plus, and within its limits, where the launch gives none of the run-time
  /// values of `unless`. These are the value itself and those that its expressions read.
  struct Linear {
    std::uint32_t unless;
    std::uint8_t to;    // run-time value
    std::uint8_t slot;  // of the call frame
    std::int64_t times, plus;
  };
  /// A constraint that a slot is a multiple of a power of two.
  struct Masked {
    std::uint32_t mask;
    std::uint16_t slot;
  };
  /// Constraints that all hold where `masked` and `formulas` do.
  struct Constraints {
    std::vector<Masked> masked;
    std::vector<manifest::Formula> formulas;
    [[nodiscard]] bool empty() const noexcept { return masked.empty() && formulas.empty(); }
    [[nodiscard]] bool hold(const CallFrame& call) const noexcept;
  };

  // First cache line, with the members before it in Executable. Bit i stands for run-time value i or axis i.
  std::uint32_t declared = 0;       // the run-time value exists
  std::uint32_t open_defaults = 0;  // its default is not in `defaults`
  std::uint32_t any_given = 0;      // every given value of `least` or more is within its limits
  std::uint32_t host_lengths = 0;   // the axis must not have its length on the device
  std::uint32_t constrained = 0;    // a constraint reads the run-time value
  std::uint8_t axes = 0;
  bool has_many = false;         // many_values, many_tensors or has_most
  bool has_most = false;         // more axes than few_axes, or more values or tensors than `many`
  bool many_values = false;      // more run-time values than few_values
  bool many_tensors = false;     // kernels take a tensor past few_tensors
  bool has_constraints = false;  // constraints_elsewhere is not empty
  bool holds_inside = false;     // constraints_at_defaults is empty
  bool has_workspace = false;
  bool has_library = false;  // a library's call comes before or after the passes, or in place of them
  std::vector<PassForm> passes;
  // A cache line for up to six tensors.
  StaticVector<TensorForm, max_tensors> tensors;  // tensors whose addresses are checked
  std::vector<Linear> linear;                     // in the order of run-time values
  std::vector<RuntimeForm> runtime;
  Constraints constraints_elsewhere;  // open at sizes of other buckets
  // A cache line.
  std::array<std::int64_t, max_runtime> defaults{};
  StaticVector<Bucketed, max_axes> bucket;  // the axes that are not exact
  std::array<std::int64_t, max_runtime> least{};
  Constraints constraints;              // open inside the bucket
  Constraints constraints_at_defaults;  // open inside it where no run-time value of `constrained` is given

  /// Fills the frame's sizes, run-time values and tensors. Returns false when a run-time value is missing or out of its
  /// limits.
  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    // Fixed sizes, so that the compiler needs no loop. Slots past the axes are overwritten below.
    std::memcpy(call.slots.data(), problem.axes.data(), few_axes * sizeof problem.axes[0]);
    std::int64_t* const values = call.slots.data() + axes;
    std::memcpy(values, defaults.data(), few_values * sizeof defaults[0]);
    std::memcpy(call.tensors.data(), arguments.tensors.data(), few_tensors * sizeof(const void*));
    if (has_many) [[unlikely]] {
      if (many_values)
        std::memcpy(values + few_values, defaults.data() + few_values, (many - few_values) * sizeof defaults[0]);
      if (many_tensors)
        std::memcpy(call.tensors.data() + few_tensors, arguments.tensors.data() + few_tensors,
                    (many - few_tensors) * sizeof(const void*));
      if (has_most) {
        std::memcpy(call.slots.data() + few_axes, problem.axes.data() + few_axes,
                    (max_axes - few_axes) * sizeof problem.axes[0]);
        std::memcpy(values, defaults.data(), sizeof defaults);  // over what was copied as an axis
        call.tensors = arguments.tensors;
      }
    }
    const std::uint32_t given = arguments.runtime_set & declared;
    std::uint32_t left = given | open_defaults;
    if (left == 0) return true;
    for (const Linear& each : linear) {
      if ((given & each.unless) != 0) continue;
      values[each.to] = call.slots[each.slot] * each.times + each.plus;
      left &= ~(1U << each.to);
    }
    // In order: a default may read the values before it.
    for (; left != 0; left &= left - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(left));
      if ((given & any_given) >> i & 1U) [[likely]] {
        values[i] = arguments.runtime[i];
        if (values[i] < least[i]) [[unlikely]]
          return false;
      } else if (!fill_checked(i, call, arguments)) {
        return false;
      }
    }
    return true;
  }
  /// Returns which run-time value made fill() return false, with the reason. `call` is as that left it.
  [[nodiscard]] std::pair<std::size_t, Fault> refused(CallFrame& call, const Arguments& arguments) const noexcept;
  /// Whether no required tensor is null, all addresses are aligned, and lengths on the device are allowed.
  [[nodiscard]] bool takes(const Arguments& arguments) const noexcept {
    std::uint32_t bits = arguments.lengths_set & host_lengths, nulls = 0;
    for (const TensorForm& each : tensors) {
      const auto address = reinterpret_cast<std::uint64_t>(arguments.tensors[each.tensor]);
      bits |= static_cast<std::uint32_t>(address) & each.mask;
      nulls += static_cast<std::uint32_t>(address < each.lowest);
    }
    return (bits | nulls) == 0;
  }
  /// Whether all constraints hold.
  [[nodiscard]] bool holds(const CallFrame& call, const Arguments& arguments) const noexcept {
    if (!has_constraints) [[likely]]
      return true;
    if (holds_inside && (arguments.runtime_set & constrained) == 0 && is_inside(call)) return true;
    return open_hold(call, arguments);
  }

 private:
  /// Fills and checks run-time value i. Returns false when it is missing or out of its limits.
  [[nodiscard]] bool fill_checked(std::size_t i, CallFrame& call, const Arguments& arguments) const noexcept;
  [[nodiscard]] bool open_hold(const CallFrame& call, const Arguments& arguments) const noexcept;
  [[nodiscard]] bool is_inside(const CallFrame& call) const noexcept {
    for (const Bucketed& each : bucket)
      if (static_cast<std::uint64_t>(call.slots[each.axis]) - each.lowest > each.range) return false;
    return true;
  }
};

/// The parts of an Executable that its form is made from. Expressions are specialised.
struct LaunchFormParts {
  std::span<const manifest::Range>
      op;  // range of each slot of the call frame, over all problems with these exact sizes
  std::span<const manifest::Range> bucket;  // the same, over the problems of the bucket
  std::size_t axes = 0;
  std::span<const manifest::Runtime> runtime;  // where the range of a slot is one value, no launch may give another
  std::span<const manifest::Expression> constraints;
  std::span<const LoadedPass> passes;  // must outlive the form, which points into them
  bool has_workspace = true;           // false: workspace addresses are 0
  bool reads_all = false;              // something besides the passes reads every slot of the frame
};
/// The values that an integer type holds, within 64 signed bits. All 64-bit values for the other types.
manifest::Range range_of(manifest::RuntimeType type) noexcept;
/// The bit pattern of a real run-time value, as the slots of a frame hold it.
std::int64_t bits_of(manifest::RuntimeType type, double value) noexcept;
/// The bits of the finite reals between the bounds: the bits of reals of 0 or more rise with them. `upper` may be null.
manifest::Range bits_between(manifest::RuntimeType type, const manifest::RealBound& lower,
                             const manifest::RealBound* upper) noexcept;
/// `settled`: the range of the value's slot, which is one value where the plan settles it. `checked`: ranges of the
/// slots, in which run-time values before this one are within their limits.
RuntimeForm form_of(const manifest::Runtime& runtime, std::span<const manifest::Range> ranges,
                    const manifest::Range& settled, std::span<const manifest::Range> checked);
LaunchForm make_launch_form(const LaunchFormParts& parts);

}  // namespace kiln::jit
