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
#include "jit/frame_layout.hpp"
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
  bool absent = false;                  // the kernel gets a descriptor, a view or an address of zeros
  std::vector<LoadedArgument> members;  // of a pack
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

/// The dynamic part of a frame, for calls of one executable. Kernel arguments point into it.
struct CallFrame {
  CallFrame() noexcept {}  // NOLINT: what is not initialised here is written before it is read

  /// By FrameLayout: sizes, addresses of tensors and run-time values (integers as numbers, reals as bits).
  std::array<std::int64_t, FrameLayout::most_slots> slots{};
  std::uint32_t given = ~0U;  // bit i: run-time value i may be another than LaunchForm::defaults has
  std::uint32_t refused = 0;  // not 0: a tensor is missing or not aligned, or a length is on the device
  std::array<AxisLength, max_axes> lengths;
  /// Constants, values of expressions, workspace addresses, views and packs that do not lie in `slots`. Each pass has
  /// elements of its own where all fit.
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
  std::int64_t also = 0;                 // taken too where `has_also`: the bits of -0.0 beside a bound of 0
  bool has_also = false;

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
    if (slot < lowest || slot > highest) return has_also && slot == also ? Fault::none : Fault::out_of_limits;
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

/// What an address must be.
struct TensorCheck {
  std::uint64_t mask = 0;  // address bits that must be 0
  bool required = true;    // null is refused
};

/// A tensor that is checked, or that a kernel takes.
struct TensorForm {
  std::uint32_t mask = 0;   // address bits that must be 0
  std::uint8_t lowest = 0;  // least address: 1 refuses null
  std::uint8_t tensor = 0;
  std::uint8_t slot = 0;  // of the frame, for the address
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
  /// A word that each launch computes: an address in a workspace block, the value of a formula, or a slot of the frame
  /// (`tensor`), for views and packs that do not lie there.
  struct Computed {
    manifest::ArgumentKind kind;
    std::uint8_t to = 0;      // index into CallFrame::values
    std::int64_t offset = 0;  // bytes into the workspace block; the slot
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
  /// A parameter that is the same object at all launches.
  struct Fixed {
    std::uint8_t parameter;
    const void* address;
  };
  static constexpr std::size_t piece = 8;  // constants copied at once

  // Read by every launch.
  std::uint16_t lengths = 0;         // bit i: the kernel takes axis i as an AxisLength, or its report
  bool has_more = false;             // arrange_more() is needed
  bool has_workspace_maps = false;   // workspace_maps is not empty
  StaticVector<GridSize, 3> grid;    // grid sizes that the bucket leaves open
  std::uint8_t constant_pieces = 0;  // pieces to copy at each launch; 0 where link() alone writes the constants
  StaticVector<TensorMapForm, manifest::max_tensor_maps> maps;
  std::unique_ptr<TensorMapCache> made_maps;
  std::vector<Computed> computed;
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
  struct Bucketed {
    std::uint64_t lowest = 0, range = 0;
    std::size_t axis = 0;
  };
  /// A default that is slots[from] * times + plus, and within its limits, where the launch gives none of the run-time
  /// values of `unless`. These are the value itself and those that its expressions read.
  struct Linear {
    std::uint32_t unless;
    std::uint8_t value;     // run-time value
    std::uint8_t to, from;  // slots of the call frame
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
  bool has_many = false;         // more axes than FrameLayout::few_axes, or a frame that is FrameLayout::as_declared
  bool has_constraints = false;  // constraints_elsewhere is not empty
  bool holds_inside = false;     // constraints_at_defaults is empty
  bool has_workspace = false;
  bool has_library = false;  // a library's call comes before or after the passes, or in place of them
  std::vector<PassForm> passes;
  // A cache line for up to six tensors.
  StaticVector<TensorForm, max_tensors> tensors;
  std::vector<Linear> linear;  // in the order of run-time values
  std::vector<RuntimeForm> runtime;
  Constraints constraints_elsewhere;               // open at sizes of other buckets
  std::array<std::uint8_t, max_runtime> values{};  // slot of each run-time value
  std::array<std::int64_t, max_runtime> defaults{};
  StaticVector<Bucketed, max_axes> bucket;  // the axes that are not exact
  std::array<std::int64_t, max_runtime> least{};
  Constraints constraints;              // open inside the bucket
  Constraints constraints_at_defaults;  // open inside it where no run-time value of `constrained` is given

  /// Fills the frame's sizes, run-time values and tensors. Returns false when a run-time value is missing or out of its
  /// limits.
  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    // A fixed size, so that the compiler needs no loop.
    std::memcpy(call.slots.data(), problem.axes.data(), FrameLayout::few_axes * sizeof problem.axes[0]);
    if (has_many) [[unlikely]]
      fill_many(call, problem);
    fill_tensors(call, arguments);
    const std::uint32_t given = arguments.runtime_set & declared;
    if ((call.given & ~given) != 0) [[unlikely]]
      restore(call, call.given & ~given);
    call.given = given;
    std::uint32_t left = given | open_defaults;
    if (left == 0) return true;
    for (const Linear& each : linear) {
      if ((given & each.unless) != 0) continue;
      call.slots[each.to] = call.slots[each.from] * each.times + each.plus;
      left &= ~(1U << each.value);
    }
    // In order: a default may read the values before it.
    for (; left != 0; left &= left - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(left));
      if ((given & any_given) >> i & 1U) [[likely]] {
        const std::int64_t value = arguments.runtime[i];
        call.slots[values[i]] = value;
        if (value < least[i]) [[unlikely]]
          return false;
      } else if (!fill_checked(i, call, arguments)) {
        return false;
      }
    }
    return true;
  }
  /// Returns which run-time value made fill() return false, with the reason. `call` is as that left it.
  [[nodiscard]] std::pair<std::size_t, Fault> refused(CallFrame& call, const Arguments& arguments) const noexcept;
  /// Whether all constraints hold.
  [[nodiscard]] bool holds(const CallFrame& call, const Arguments& arguments) const noexcept {
    if (!has_constraints) [[likely]]
      return true;
    if (holds_inside && (arguments.runtime_set & constrained) == 0 && is_inside(call)) return true;
    return open_hold(call, arguments);
  }

 private:
  /// Fills in addresses, and notes in `refused` when a required tensor is null, an address is not aligned, or a length
  /// is on the device that must not be.
  void fill_tensors(CallFrame& call, const Arguments& arguments) const noexcept {
    std::uint32_t bits = arguments.lengths_set & host_lengths, nulls = 0;
    for (const TensorForm& each : tensors) {
      const auto address = reinterpret_cast<std::uint64_t>(arguments.tensors[each.tensor]);
      call.slots[each.slot] = static_cast<std::int64_t>(address);
      bits |= static_cast<std::uint32_t>(address) & each.mask;
      nulls += static_cast<std::uint32_t>(address < each.lowest);
    }
    call.refused = bits | nulls;
  }
  /// Copies the axes past the first, and the defaults over what was copied as an axis.
  void fill_many(CallFrame& call, const Problem& problem) const noexcept;
  /// Gives the run-time values of `which` their defaults.
  void restore(CallFrame& call, std::uint32_t which) const noexcept;
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
  FrameLayout layout;
  std::span<const manifest::Range>
      op;  // range of each slot of the call frame, over all problems with these exact sizes
  std::span<const manifest::Range> bucket;     // the same, over the problems of the bucket
  std::span<const manifest::Runtime> runtime;  // where the range of a slot is one value, no launch may give another
  std::span<const manifest::Expression> constraints;
  std::span<const LoadedPass> passes;         // must outlive the form, which points into them
  bool has_workspace = true;                  // false: workspace addresses are 0
  bool reads_all = false;                     // something besides the passes reads every slot of the frame
  std::span<const TensorCheck> tensors = {};  // of each tensor; a tensor without one is not checked
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
