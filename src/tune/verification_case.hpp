// Verifies executables at one problem: against the reference, on tensors of its own filled at random.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/executable.hpp"

namespace kiln::tune {

struct Check {
  bool right = false;
  std::string reason;      // of a wrong result: the output, how many elements differ, the first of them
  double worst_error = 0;  // largest |got - wanted| over rms(wanted) of what is not 0, over all outputs
};

/// Deviations from the manifest's default placement of tensors and run-time values.
struct Placement {
  std::vector<std::pair<RuntimeId, std::int64_t>> runtime;  // integer run-time values, such as row strides
  std::int64_t offset_elements = 0;                         // from each allocation to the tensor's address
  bool leave_optional_out = false;                          // optional tensors are null
  /// An output and the input whose buffer it shares, with equal type, shape and strides. Only for an op that allows it,
  /// and no prepared input.
  std::optional<std::pair<TensorId, TensorId>> in_place;
  std::vector<std::pair<RuntimeId, double>> reals;  // real run-time values
  std::size_t prepare_case = 0;                     // index among the cases of the op's [prepare]
  std::int32_t rank = 0;                            // of a team op: this process's, below the size of the team axis
  /// The sizes that candidates are launched with and that determine memory and strides. The case's own sizes are then
  /// lengths in device memory, for each axis that allows them.
  std::optional<Problem> bound;
};

/// Device memory for one executable's workspace.
class TrialWorkspace {
 public:
  explicit TrialWorkspace(const jit::Executable& executable);
  /// Prepares the workspace for a first launch: zeros where the executable needs them, poison elsewhere. Throws
  /// Error(out_of_memory).
  void renew(CUstream stream);
  /// Whether the launches so far have left zeros where the executable found them. Waits for `stream`.
  [[nodiscard]] bool is_left_zero(CUstream stream) const;
  [[nodiscard]] jit::WorkspaceBlocks blocks() const noexcept { return {scratch_.pointer(), zeroed_.pointer()}; }

 private:
  std::int64_t scratch_bytes_, zeroed_bytes_;
  cuda::Buffer scratch_, zeroed_;
};

class VerificationCase {
 public:
  /// Allocates and fills the tensors of `problem`, and runs the reference. `seed` decides the values. Of a team op the
  /// reference gets the parts that all ranks have by this seed, so the ranks' seeds must be equal and no rank hears of
  /// another. Precondition: a context is current.
  /// Throws Error(out_of_memory) with op, problem and bytes, and Error(compile_failed) for a reference that does not
  /// compile.
  VerificationCase(const manifest::Site& site, const Problem& problem, const std::string& arch, answer::Cubins& cubins,
                   std::uint64_t seed, CUstream stream, const Placement& placement = {});
  ~VerificationCase();
  VerificationCase(VerificationCase&&) noexcept;
  VerificationCase(const VerificationCase&) = delete;

  /// Moves to other sizes of the same op, selections and exact axes, with new values. Reallocates only tensors that
  /// grow. Throws as the constructor does.
  void retarget(const Problem& problem, std::uint64_t seed, CUstream stream, const Placement& placement = {});

  /// Poisons the outputs, launches and compares. An executable that does not admit this problem is right, with a
  /// reason. One that may begin before its predecessor ends is also launched that way, and one of an op with optional
  /// outputs without them. One of a team op is launched as often whether it is right or wrong, as the other ranks
  /// launch too. Throws Error(driver_failed) when the launch breaks the context.
  Check verify(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);
  Check verify(const jit::Executable& executable, CUstream stream);
  /// Launches without a check, for measurements. Preconditions: admitted, and the workspace renewed once. Throws
  /// Error(driver_failed).
  void launch(const jit::Executable& executable, const TrialWorkspace& workspace, CUstream stream);
  [[nodiscard]] bool admits(const jit::Executable& executable) const;
  /// Prepares inputs for launch_at() at these sizes, by a case of the op's [prepare], until the next poison() or
  /// verify(). Does nothing for an op without. Throws Error(driver_failed).
  void prepare_at(const Problem& smaller, std::size_t prepare_case, CUstream stream);
  /// Launches at sizes that need no more memory, in the tensors of this case. The results have no meaning.
  void launch_at(const Problem& smaller, const jit::Executable& executable, const TrialWorkspace& workspace,
                 CUstream stream);
  [[nodiscard]] bool admits_at(const Problem& smaller, const jit::Executable& executable) const;

  /// Verifies another launcher: poison(), launch with arguments(), check().
  void poison(CUstream stream);
  Check check(CUstream stream);
  [[nodiscard]] const Arguments& arguments() const noexcept;
  [[nodiscard]] const Problem& problem() const noexcept;
  [[nodiscard]] const Problem& launched() const noexcept;  // Placement::bound, else problem()
  [[nodiscard]] std::size_t prepare_case() const noexcept;
  [[nodiscard]] std::int64_t bytes() const noexcept;  // device memory held

 private:
  /// Whether verify() makes all its launches, though an earlier one was wrong.
  [[nodiscard]] bool launches_all() const;
  /// Whether repeated launches over the same tensors give the same results.
  [[nodiscard]] bool can_repeat() const;
  Check verify_repeated(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);
  Check verify_absent(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);
  Check verify_overlapped(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::tune
