// One implementation with one config, loaded and folded: what is left depends on the real sizes alone.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/module.hpp"
#include "jit/specialisation.hpp"
#include "kiln/arguments.hpp"
#include "spec/problem.hpp"

namespace kiln::jit {

/// The specialisation of one config. `frame` is spec::make_frame's; sizes that vary in the bucket do not enter.
Specialisation specialise(const spec::Op& op, const spec::Implementation& implementation,
                          std::span<const std::int64_t> frame, std::string arch);
/// The same for the op's reference, whose frame has no parameters.
Specialisation specialise_reference(const spec::Op& op, std::span<const std::int64_t> frame, std::string arch);

/// The first constraint over what a bucket fixes (exact axes, selections, device, parameters) that this frame breaks, as its text.
std::optional<std::string> broken_fixed_constraint(const spec::Op& op, const spec::Implementation& implementation,
                                                   std::span<const std::int64_t> frame);

/// The dynamic part of a frame at one call: axes, then run-time values (integers as numbers, reals as bits).
struct CallFrame {
  std::array<std::int64_t, max_axes + max_runtime> slots;
  [[nodiscard]] std::span<const std::int64_t> view() const noexcept { return slots; }
};

enum class Admission : std::uint8_t { admitted, constraint, tensor };

class Executable {
 public:
  /// Loads the cubin into the current context and folds every expression over `frame` (spec::make_frame at the bucket's upper edge).
  /// Throws Error(driver_failed), or Error(bad_manifest) for geometry that does not compute.
  Executable(const spec::Op& op, const spec::Implementation& implementation, std::span<const std::int64_t> frame,
             const Cubin& cubin);
  /// The same with its cubin loaded already: one module may serve many executables.
  Executable(const spec::Op& op, const spec::Implementation& implementation, std::span<const std::int64_t> frame,
             std::shared_ptr<Module> module);
  /// The reference of an op: no constraints, no workspace.
  Executable(const spec::Op& op, std::span<const std::int64_t> frame, const Cubin& cubin);

  /// Fills the frame of one call: sizes, run-time values as given or by their defaults. False when a run-time value is under its
  /// minimum, does not fit its type, was not given and has no default, or overflows; explain_frame then says which.
  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept;
  [[nodiscard]] std::string explain_frame(const Problem& problem, const Arguments& arguments) const;

  /// Whether this config is legal for the real sizes and addresses. No allocation, no exception.
  [[nodiscard]] Admission admits(const CallFrame& call, const Arguments& arguments) const noexcept;
  /// Why `admits` refuses: the constraint's text, or the tensor and the alignment that it needs.
  [[nodiscard]] std::string explain(const CallFrame& call, const Arguments& arguments) const;

  /// Launches every pass. Precondition: admitted. `workspace` has workspace_bytes(); `reports` has a 64-bit word an axis, where kernels
  /// leave a length on the device that is past its bound, or is 0: nowhere. Gives the driver's answer, the first that is not
  /// CUDA_SUCCESS; throws Error(bad_input) for geometry that these sizes make impossible.
  [[nodiscard]] CUresult launch(const CallFrame& call, const Arguments& arguments, CUstream stream,
                                CUdeviceptr workspace, CUdeviceptr reports = 0) const;

  /// Whether its first pass may begin before what precedes it in the stream has ended.
  [[nodiscard]] bool overlaps_predecessor() const noexcept;
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  [[nodiscard]] bool workspace_zeroed() const noexcept { return workspace_zeroed_; }
  /// Of the first pass, with the largest spill of all passes.
  [[nodiscard]] Resources resources() const;
  /// Blocks of the first pass that one multiprocessor holds at once.
  [[nodiscard]] int occupancy() const;
  /// Blocks of the first pass at these sizes, 0 when they do not compute.
  [[nodiscard]] std::int64_t blocks(const CallFrame& call) const noexcept;

 private:
  struct LoadedArgument {
    spec::ArgumentKind kind = spec::ArgumentKind::tensor;
    int index = 0;            // tensor; slot of the call frame; value of `values`
    std::int64_t offset = 0;  // workspace
    spec::Expression value;
    std::int64_t minimum = 0, maximum = 0;              // of value: what its type holds
    std::vector<spec::Expression> shape, strides, box;  // tensor_map, outermost first
    std::uint32_t swizzle = 0;
    spec::DType dtype = spec::DType::f32;
  };
  struct LoadedPass {
    CUfunction function = nullptr;
    std::array<spec::Expression, 3> grid;
    CUlaunchConfig config{};
    std::array<CUlaunchAttribute, 3> attributes{};
    unsigned attribute_count = 0;
    std::vector<LoadedArgument> arguments;
    std::string kernel;  // for messages
  };
  struct Alignment {
    std::uint64_t mask = 0;  // address bits that must be 0
    bool required = true;    // null is refused
  };

  void load_passes(const spec::Op& op, std::span<const spec::Pass> passes, std::span<const std::int64_t> frame);
  static void load_attributes(const spec::Op& op, LoadedPass& loaded, const spec::Pass& pass,
                              std::span<const std::int64_t> frame);
  [[nodiscard]] LoadedArgument load_argument(const spec::Op& op, const spec::Argument& argument,
                                             std::span<const std::int64_t> frame) const;
  void load_constraints(const spec::Op& op, const spec::Implementation& implementation,
                        std::span<const std::int64_t> frame);
  void load_workspaces(const spec::Implementation& implementation, std::span<const std::int64_t> frame);
  [[nodiscard]] CUresult launch_pass(const LoadedPass& pass, const CallFrame& call, const Arguments& arguments,
                                     CUstream stream, CUdeviceptr workspace, CUdeviceptr reports) const;

  void load_runtime(const spec::Op& op, std::span<const std::int64_t> frame);

  std::shared_ptr<Module> module_;
  std::string op_;  // for messages
  std::size_t axes_ = 0;
  int first_static_ = 0;
  std::vector<spec::Runtime> runtime_;  // defaults and minima folded: types and choices may stand in them
  std::vector<LoadedPass> passes_;
  std::vector<spec::Expression> constraints_;  // those that a size inside the bucket can break
  std::vector<Alignment> alignment_;           // one a tensor
  std::vector<std::string> tensor_names_;
  std::vector<std::int64_t> workspace_offsets_;
  std::int64_t workspace_bytes_ = 0;
  bool workspace_zeroed_ = false;
};

}  // namespace kiln::jit
