// One implementation with one config, loaded and folded: what is left depends on the real sizes alone.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/launch_form.hpp"
#include "jit/library_matmul.hpp"
#include "jit/module.hpp"
#include "jit/specialisation.hpp"
#include "jit/thread_calls.hpp"
#include "kiln/arguments.hpp"
#include "manifest/problem.hpp"

namespace kiln::jit {

/// The specialisation of one config. `frame` is manifest::make_frame's; sizes that vary in the bucket do not enter.
Specialisation specialise(const manifest::Op& op, const manifest::Implementation& implementation,
                          std::span<const std::int64_t> frame, std::string arch);
/// The same for the op's reference, whose frame has no parameters.
Specialisation specialise_reference(const manifest::Op& op, std::span<const std::int64_t> frame, std::string arch);

/// The first constraint over what a bucket fixes (exact axes, selections, device, parameters) that this frame breaks, as its text.
std::optional<std::string> broken_fixed_constraint(const manifest::Op& op,
                                                   const manifest::Implementation& implementation,
                                                   std::span<const std::int64_t> frame);

enum class Admission : std::uint8_t { admitted, constraint, tensor };

class alignas(64) Executable {
 public:
  /// Loads the cubin into the current context and folds every expression over `frame` (manifest::make_frame at the bucket's upper edge) and
  /// over its exact axes: problems of other exact sizes may not be launched, those of other buckets may.
  /// Throws Error(driver_failed), or Error(bad_manifest) for geometry that does not compute and for arguments that the kernels do not take.
  Executable(const manifest::Op& op, const manifest::Implementation& implementation,
             std::span<const std::int64_t> frame, const Cubin& cubin);
  /// The same with its cubin loaded already: one module may serve many executables. A library's needs none, neither here nor above.
  Executable(const manifest::Op& op, const manifest::Implementation& implementation,
             std::span<const std::int64_t> frame, std::shared_ptr<Module> module);
  /// The reference of an op: no constraints, no workspace.
  Executable(const manifest::Op& op, std::span<const std::int64_t> frame, const Cubin& cubin);

  /// The calling thread's call, for launches without one of their own: as ThreadCalls::own.
  [[nodiscard]] ThreadCall* thread_call(unsigned thread = thread_number()) const noexcept {
    return thread_calls_.own(form_.passes, thread);
  }

  /// Fills the frame of one call: sizes, run-time values as given or by their defaults. False when a run-time value is under its
  /// minimum, does not fit its type, was not given and has no default, or overflows; explain_frame then says which.
  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    assert(covers(problem));
    return form_.fill(call, problem, arguments);
  }
  [[nodiscard]] std::string explain_frame(const Problem& problem, const Arguments& arguments) const;

  /// Whether this config is legal for the real sizes and addresses. No allocation, no exception.
  [[nodiscard]] Admission admits(const CallFrame& call, const Arguments& arguments) const noexcept {
    if (!form_.takes(arguments)) [[unlikely]]
      return Admission::tensor;
    return form_.holds(call, arguments) ? Admission::admitted : Admission::constraint;
  }
  /// Why `admits` refuses: the constraint's text, or the tensor and the alignment that it needs.
  [[nodiscard]] std::string explain(const CallFrame& call, const Arguments& arguments) const;

  /// Whether the driver takes a launch of every pass: grids, clusters, arguments, TMA descriptors. For who can ask another executable
  /// instead; a launch finds out by itself. Precondition: as launch has it.
  [[nodiscard]] bool fits(CallFrame& call, const Arguments& arguments) const noexcept;

  /// Launches every pass. Precondition: filled for these arguments, and admitted. `workspace` has workspace_bytes(); `reports` has a
  /// 64-bit word an axis, where kernels leave a length on the device that is past its bound, or is 0: nowhere. Gives the driver's answer,
  /// the first that is not CUDA_SUCCESS, and CUDA_ERROR_NOT_SUPPORTED where a library does not take these sizes, which it is not asked
  /// before; throws Error(bad_input) for geometry that these sizes make impossible.
  [[nodiscard]] CUresult launch(CallFrame& call, const Arguments& arguments, CUstream stream, CUdeviceptr workspace,
                                CUdeviceptr reports = 0) const;
  /// The same in the frame of a thread_call(), whose calls are linked already.
  [[nodiscard]] CUresult launch(ThreadCall& kept, const Arguments& arguments, CUstream stream, CUdeviceptr workspace,
                                CUdeviceptr reports) const {
    const LaunchInput input{kept.frame, arguments, stream, workspace, reports};
    if (form_.passes.empty()) [[unlikely]]
      return launch_library(LaunchInput(input));  // a copy: the input itself stays in registers
    PassCall* call = kept.passes();
    for (const PassForm& pass : form_.passes) {
      const CUresult result = launch_pass(pass, input, *call++);
      if (result != CUDA_SUCCESS) [[unlikely]]
        return result;
    }
    return CUDA_SUCCESS;
  }

  /// Whether its first pass may begin before what precedes it in the stream has ended.
  [[nodiscard]] bool overlaps_predecessor() const noexcept;
  [[nodiscard]] std::size_t passes() const noexcept { return passes_.size(); }
  /// What each pass would give the driver, in a call that is linked to the input's frame. As launch otherwise.
  void link(std::size_t pass, CallFrame& frame, PassCall& call) const noexcept;
  void arrange(std::size_t pass, const LaunchInput& input, PassCall& call) const;

  /// Whether a library computes it: it may refuse sizes when it is launched.
  [[nodiscard]] bool is_library() const noexcept { return library_ != nullptr; }
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  /// The parts of the workspace that are zero before the first launch, and after each.
  struct Range {
    std::int64_t offset, bytes;
  };
  [[nodiscard]] std::span<const Range> zeroed_ranges() const noexcept { return zeroed_ranges_; }
  /// Of the first pass, with the largest spill of all passes.
  [[nodiscard]] Resources resources() const;
  /// Blocks of the first pass that one multiprocessor holds at once.
  [[nodiscard]] int occupancy() const;
  /// Blocks of the first pass at these sizes, 0 when they do not compute.
  [[nodiscard]] std::int64_t blocks(const CallFrame& call) const noexcept;

 private:
  struct Alignment {
    std::uint64_t mask = 0;  // address bits that must be 0
    bool required = true;    // null is refused
  };

  /// Of the op's reference when there is no implementation.
  void load_passes(const manifest::Op& op, const manifest::Implementation* implementation,
                   std::span<const std::int64_t> frame);
  static void load_attributes(const manifest::Op& op, LoadedPass& loaded, const manifest::Pass& pass,
                              std::span<const std::int64_t> frame);
  [[nodiscard]] LoadedArgument load_argument(const manifest::Op& op, const manifest::Argument& argument,
                                             std::span<const std::int64_t> frame) const;
  void load_constraints(const manifest::Op& op, const manifest::Implementation& implementation,
                        std::span<const std::int64_t> frame);
  void load_workspaces(const manifest::Implementation& implementation, std::span<const std::int64_t> frame);
  [[nodiscard]] CUresult launch_pass(const PassForm& pass, const LaunchInput& input, PassCall& linked) const {
    if (!pass.arrange(input, linked)) [[unlikely]]
      refuse(pass, input.frame);
    return launch_kernel_(&linked.config, linked.function, const_cast<void**>(linked.parameters.data()), nullptr);
  }
  /// Says which argument or size of the grid is out of its limits.
  [[noreturn, gnu::cold]] void refuse(const PassForm& form, const CallFrame& call) const;
  /// Whether the problem has the exact sizes that this was made for.
  [[nodiscard]] bool covers(const Problem& problem) const noexcept;
  void make_form(const manifest::Op& op, std::span<const std::int64_t> frame);
  [[nodiscard]] CUresult launch_library(const LaunchInput& input) const;

  void load_runtime(const manifest::Op& op, std::span<const std::int64_t> frame);

  // What launches read, from the beginning of a cache line.
  decltype(cuda::Driver::cuLaunchKernelEx) launch_kernel_;
  std::int64_t workspace_bytes_ = 0;
  LaunchForm form_;
  ThreadCalls thread_calls_;

  std::unique_ptr<LibraryMatmul> library_;  // in place of passes
  std::shared_ptr<Module> module_;
  std::string op_;  // for messages
  std::size_t axes_ = 0;
  int first_static_ = 0;
  std::vector<manifest::Runtime> runtime_;  // defaults and minima folded: types and choices may stand in them
  std::vector<LoadedPass> passes_;
  std::vector<manifest::Expression> constraints_;  // those that a size inside the bucket can break
  std::vector<Alignment> alignment_;               // one a tensor
  std::vector<std::string> tensor_names_;
  std::vector<std::int64_t> workspace_offsets_;
  std::vector<Range> zeroed_ranges_;
  std::vector<manifest::Range> ranges_;  // what those of a problem leave open of the call frame
};

}  // namespace kiln::jit
