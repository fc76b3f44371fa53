// One implementation with one config, loaded. Every expression is folded over what its bucket fixes.
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
#include "jit/library.hpp"
#include "jit/module.hpp"
#include "jit/specialisation.hpp"
#include "jit/team_arguments.hpp"
#include "jit/thread_calls.hpp"
#include "kiln/arguments.hpp"
#include "manifest/variant.hpp"

namespace kiln::jit {

/// Returns the specialisation of one config. `frame` is manifest::Variant::frame; sizes that vary in the bucket do not
/// enter.
Specialisation specialise(const manifest::Op& op, const manifest::Implementation& implementation,
                          std::span<const std::int64_t> frame, std::string arch);
Specialisation specialise(const manifest::Site& site, const manifest::Variant& variant, const Problem& at,
                          std::string arch);
/// Returns the specialisation of the op's reference. `frame`: manifest::frame_of.
Specialisation specialise_reference(const manifest::Op& op, std::span<const std::int64_t> frame, std::string arch);
/// Returns the specialisation of the op's [prepare], which must be there. `frame` is the reference's with seed and case
/// behind it.
Specialisation specialise_prepare(const manifest::Op& op, std::span<const std::int64_t> frame, std::string arch);

/// Returns the text of the first constraint that this frame breaks, among those over values that a bucket fixes: exact
/// axes, selections, device facts and parameters.
std::optional<std::string> broken_fixed_constraint(const manifest::Op& op,
                                                   const manifest::Implementation& implementation,
                                                   std::span<const std::int64_t> frame);

/// When a library loads the kernels of a config, see LibraryCall::load.
enum class LibraryLoad : std::uint8_t { now, at_first_launch };

enum class Admission : std::uint8_t { admitted, constraint, tensor };

class alignas(64) Executable {
 public:
  /// Loads the cubin into the current context. `frame`: manifest::Variant::frame at the largest sizes to be launched in
  /// its workspaces, which an engine's answer calls `at`. The executable launches problems with the same exact sizes,
  /// in this bucket or another. Throws Error(driver_failed), or Error(bad_manifest) for geometry that cannot be
  /// computed and for arguments that the kernels do not take. `team`, which is read here alone, must be given for a
  /// team op; else Error(bad_input). Error(bad_input) also says how many bytes of team memory are needed when there are
  /// too few.
  Executable(const manifest::Op& op, const manifest::Implementation& implementation,
             std::span<const std::int64_t> frame, const Cubin& cubin, const team::TeamBinding* team = nullptr);
  /// Takes a loaded cubin instead, which many executables may share. An implementation without kernels takes a null
  /// module.
  Executable(const manifest::Op& op, const manifest::Implementation& implementation,
             std::span<const std::int64_t> frame, std::shared_ptr<Module> module,
             const team::TeamBinding* team = nullptr, LibraryLoad load = LibraryLoad::now);
  /// The reference of an op, which has no constraints, no workspace and no team: a launch gives it the rank.
  Executable(const manifest::Op& op, std::span<const std::int64_t> frame, const Cubin& cubin);
  /// The reference's passes or those of [prepare], `frame` as for their specialisation. Many executables may share the
  /// module.
  Executable(const manifest::Op& op, std::span<const manifest::Pass> passes, std::span<const std::int64_t> frame,
             std::shared_ptr<Module> module);

  /// Returns the calling thread's call as ThreadCalls::own does.
  [[nodiscard]] ThreadCall* thread_call(unsigned thread = thread_number()) const noexcept {
    return thread_calls_.own(form_.passes, thread);
  }

  /// Fills the frame of one call with sizes, run-time values and tensors. Returns false when a run-time value is
  /// missing, under its minimum, out of its type's range or overflows; explain_frame() then names it.
  [[nodiscard]] bool fill(CallFrame& call, const Problem& problem, const Arguments& arguments) const noexcept {
    assert(covers(problem));
    return form_.fill(call, problem, arguments);
  }
  [[nodiscard]] std::string explain_frame(const Problem& problem, const Arguments& arguments) const;

  /// Whether this config is legal for the real sizes and addresses. Does not allocate.
  [[nodiscard]] Admission admits(const CallFrame& call, const Arguments& arguments) const noexcept {
    if (call.refused != 0) [[unlikely]]
      return Admission::tensor;
    return form_.holds(call, arguments) ? Admission::admitted : Admission::constraint;
  }
  /// Returns why admits() refuses: the constraint's text, or the tensor and the alignment that it needs.
  [[nodiscard]] std::string explain(const CallFrame& call, const Arguments& arguments) const;

  /// Whether every pass has a grid, clusters, arguments and TMA descriptors that the driver takes. For callers that
  /// have another executable to launch instead. Preconditions: those of launch().
  [[nodiscard]] bool fits(CallFrame& call, const Arguments& arguments) const noexcept;

  /// Launches every pass. Precondition: the call is filled for these arguments and admitted. `workspace` has
  /// workspace_bytes() of scratch and zeroed_bytes() of zeros. `reports` has a 64-bit word for each axis, to which
  /// kernels write a length on the device that exceeds its bound; 0: none. Returns the first result that is not
  /// CUDA_SUCCESS. That is CUDA_ERROR_NOT_SUPPORTED where a library refuses these sizes. Where its call comes first,
  /// passes that cannot be launched are refused before it. Throws Error(bad_input) for geometry that these sizes make
  /// impossible.
  [[nodiscard]] CUresult launch(CallFrame& call, const Arguments& arguments, CUstream stream, WorkspaceBlocks workspace,
                                CUdeviceptr reports = 0) const;
  /// Launches by a thread_call(), whose calls are already linked.
  [[nodiscard]] CUresult launch(ThreadCall& kept, const Arguments& arguments, CUstream stream,
                                WorkspaceBlocks workspace, CUdeviceptr reports) const {
    const LaunchInput input{kept.frame, arguments, stream, workspace, reports};
    if (form_.has_library) [[unlikely]]
      return launch_with_library(kept, LaunchInput(input));  // a copy: the input itself stays in registers
    return launch_passes(kept, input);
  }

  /// Whether the first pass may begin before the preceding work of the stream has ended.
  [[nodiscard]] bool overlaps_predecessor() const noexcept;
  [[nodiscard]] std::size_t passes() const noexcept { return passes_.size(); }
  /// The two steps by which launch() fills in a pass's PassCall, without the launch. arrange() throws as launch() does.
  void link(std::size_t pass, CallFrame& frame, PassCall& call) const noexcept;
  void arrange(std::size_t pass, const LaunchInput& input, PassCall& call) const;

  [[nodiscard]] const FrameLayout& layout() const noexcept { return layout_; }
  /// Whether a library computes it, or takes part. A library may refuse sizes when it is launched.
  [[nodiscard]] bool is_library() const noexcept { return library_ != nullptr; }
  /// What LibraryLoad::at_first_launch left out.
  void load_library() const noexcept {
    if (library_ != nullptr) library_->load();
  }
  /// Bytes of workspaces in which a launch may find anything.
  [[nodiscard]] std::int64_t workspace_bytes() const noexcept { return workspace_bytes_; }
  /// Bytes of workspaces that a launch must find zero, and leaves zero.
  [[nodiscard]] std::int64_t zeroed_bytes() const noexcept { return zeroed_bytes_; }
  [[nodiscard]] bool needs_workspace() const noexcept { return form_.has_workspace; }
  /// Bytes of each half of the team's memory. All plans of a team use the same bytes.
  [[nodiscard]] std::int64_t symmetric_workspace_bytes() const noexcept { return symmetric_workspace_bytes_; }
  /// Resources of the first pass, but with the largest spill of all passes.
  [[nodiscard]] Resources resources() const;
  /// Blocks of the first pass that are resident on one multiprocessor.
  [[nodiscard]] int occupancy() const;
  /// Blocks of the first pass at these sizes, or 0 when the grid overflows.
  [[nodiscard]] std::int64_t blocks(const CallFrame& call) const noexcept;

 private:
  /// Lays the frame out, and folds run-time values.
  void load_frame(const manifest::Op& op, std::span<const manifest::Pass> passes, std::span<const std::int64_t> frame,
                  bool as_declared);
  /// Folds what the frame fixes, for evaluations over a CallFrame.
  [[nodiscard]] manifest::Expression fold(const manifest::Expression& expression,
                                          std::span<const std::int64_t> frame) const;
  /// `implementation` is null for passes of op.toml.
  void load_passes(const manifest::Op& op, const manifest::Implementation* implementation,
                   std::span<const manifest::Pass> passes, std::span<const std::int64_t> frame);
  static void load_attributes(const manifest::Op& op, LoadedPass& loaded, const manifest::Pass& pass,
                              std::span<const std::int64_t> frame);
  [[nodiscard]] LoadedArgument load_argument(const manifest::Op& op, const manifest::Argument& argument,
                                             std::span<const std::int64_t> frame) const;
  void load_view(const manifest::Op& op, const manifest::Argument& argument, std::span<const std::int64_t> frame,
                 LoadedArgument& loaded) const;
  void load_tensor_map(const manifest::Op& op, const manifest::Argument& argument, std::span<const std::int64_t> frame,
                       LoadedArgument& loaded) const;
  void load_constraints(const manifest::Op& op, const manifest::Implementation& implementation,
                        std::span<const std::int64_t> frame);
  void load_workspaces(const manifest::Implementation& implementation, std::span<const std::int64_t> frame);
  void load_team(const manifest::Op& op, const manifest::Implementation& implementation,
                 std::span<const std::int64_t> frame, const team::TeamBinding* team);
  [[nodiscard]] CUresult launch_pass(const PassForm& pass, const LaunchInput& input, PassCall& linked) const {
    if (!pass.arrange(input, linked)) [[unlikely]]
      refuse(pass, input.frame);
    return launch_kernel_(&linked.config, linked.function, const_cast<void**>(linked.parameters.data()), nullptr);
  }
  /// Arranges a pass and launches nothing. Returns CUDA_ERROR_NOT_SUPPORTED for a grid that the driver does not take.
  /// Throws as launch() does.
  [[nodiscard]] CUresult check_pass(const PassForm& pass, const LaunchInput& input, PassCall& linked) const;
  [[nodiscard]] const LoadedPass& loaded(const PassForm& form) const noexcept;
  /// Throws Error(bad_input) that names the argument or grid size that is out of its limits.
  [[noreturn, gnu::cold]] void refuse(const PassForm& form, const CallFrame& call) const;
  /// Whether the problem has the exact sizes that this executable was made for.
  [[nodiscard]] bool covers(const Problem& problem) const noexcept;
  /// `reads_all`: as LaunchFormParts has it.
  void make_form(const manifest::Op& op, std::span<const std::int64_t> frame, bool reads_all);
  [[nodiscard]] CUresult launch_passes(ThreadCall& kept, const LaunchInput& input) const {
    PassCall* call = kept.passes();
    for (const PassForm& pass : form_.passes) {
      const CUresult result = launch_pass(pass, input, *call++);
      if (result != CUDA_SUCCESS) [[unlikely]]
        return result;
    }
    return CUDA_SUCCESS;
  }
  [[nodiscard]] CUresult launch_with_library(ThreadCall& kept, const LaunchInput& input) const;

  // Read by launches, from the beginning of a cache line.
  decltype(cuda::Driver::cuLaunchKernelEx) launch_kernel_;
  std::int64_t workspace_bytes_ = 0;
  LaunchForm form_;
  ThreadCalls thread_calls_;

  std::int64_t zeroed_bytes_ = 0, symmetric_workspace_bytes_ = 0;
  std::unique_ptr<TeamArguments> team_;   // null: no team
  std::unique_ptr<LibraryCall> library_;  // null: kernels alone compute it
  std::shared_ptr<Module> module_;
  std::string op_;  // for messages
  FrameLayout layout_;
  std::vector<int> slots_;  // FrameLayout::of_declared; empty where the layout is as declared
  int first_static_ = 0;
  std::vector<manifest::Runtime> runtime_;  // with folded defaults and minima
  std::vector<LoadedPass> passes_;
  std::vector<manifest::Expression> constraints_;  // over sizes that vary in the bucket
  std::vector<TensorCheck> alignment_;             // by tensor
  std::vector<std::string> tensor_names_;
  std::vector<LoadedWorkspace> workspaces_;  // by workspace of the implementation
  std::vector<manifest::Range> ranges_;      // of each slot of the call frame, over all problems with these exact sizes
};

/// Returns the op's run-time values, their defaults and bounds folded over what the frame fixes.
std::vector<manifest::Runtime> runtime_at(const manifest::Op& op, std::span<const std::int64_t> frame);

/// Returns why a launch with the run-time values' defaults is refused at this problem, or an empty string.
std::string why_defaults_refused(const manifest::Site& site, const Problem& problem);

}  // namespace kiln::jit
