// One problem with its own tensors: inputs filled at random, the reference's outputs, a verdict on any executable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda/device.hpp"
#include "jit/executable.hpp"
#include "tune/cubins.hpp"

namespace kiln::tune {

struct Check {
  bool right = false;
  std::string reason;      // of a wrong one: which output, how many elements, the first, got and wanted
  double worst_error = 0;  // largest |got - wanted| over rms(wanted), over all outputs
};

/// How tensors lie in memory, where it is not as the manifest's defaults have it.
struct Placement {
  std::vector<std::pair<RuntimeId, std::int64_t>> runtime;  // integer run-time values, such as row strides
  std::int64_t offset_elements = 0;                         // every address is so many elements past its allocation
  bool leave_optional_out = false;                          // optional tensors are null
  /// An output and the input whose place it takes, of one type, shape and strides: one buffer for both, where the op promises that.
  std::optional<std::pair<TensorId, TensorId>> in_place;
  std::vector<std::pair<RuntimeId, double>> reals;  // real run-time values
  /// What candidates are launched with, memory and strides going by it: the case's own sizes are then lengths in device memory, for each
  /// axis that may have them there.
  std::optional<Problem> bound;
};

/// Device memory for one executable's workspace.
class TrialWorkspace {
 public:
  explicit TrialWorkspace(const jit::Executable& executable);
  /// As a plan gives it to its first launch: zeros where zeros are promised, poison where nothing is. Throws Error(out_of_memory).
  void renew(CUstream stream);
  [[nodiscard]] CUdeviceptr pointer() const noexcept { return buffer_.pointer(); }

 private:
  std::int64_t bytes_;
  std::vector<jit::Executable::Range> zeroed_;
  cuda::Buffer buffer_;
};

class VerificationCase {
 public:
  /// Allocates and fills the tensors of `problem`, runs the reference. The context must be current. `seed` decides the values.
  /// Throws Error(out_of_memory) naming op, problem and bytes; Error(compile_failed) for a reference that does not compile.
  VerificationCase(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& device,
                   const std::string& arch, Cubins& cubins, std::uint64_t seed, CUstream stream,
                   const Placement& placement = {});
  ~VerificationCase();
  VerificationCase(VerificationCase&&) noexcept;
  VerificationCase(const VerificationCase&) = delete;

  /// The same op, selections and exact axes at other sizes, with new values; memory is kept and grows when it must.
  void retarget(const Problem& problem, std::uint64_t seed, CUstream stream, const Placement& placement = {});

  /// Poisons the outputs, launches, compares. An executable that does not admit this problem is wrong about nothing: Check::right with a
  /// reason. One that may begin before its predecessor ends is launched so too. Throws Error(driver_failed) when the launch breaks the context.
  Check verify(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);
  Check verify(const jit::Executable& executable, CUstream stream);
  /// Launches once, without a check: what measuring repeats. Precondition: admitted, and the workspace renewed once.
  void launch(const jit::Executable& executable, const TrialWorkspace& workspace, CUstream stream);
  [[nodiscard]] bool admits(const jit::Executable& executable) const;
  /// The same at sizes that need no more memory, in the memory of these: to be timed, for what it computes there is of nothing.
  void launch_at(const Problem& smaller, const jit::Executable& executable, const TrialWorkspace& workspace,
                 CUstream stream);
  [[nodiscard]] bool admits_at(const Problem& smaller, const jit::Executable& executable) const;

  /// To verify what some other launcher did: poison, launch with arguments(), check.
  void poison(CUstream stream);
  Check check(CUstream stream);
  [[nodiscard]] const Arguments& arguments() const noexcept;
  [[nodiscard]] const Problem& problem() const noexcept;
  [[nodiscard]] const Problem& launched() const noexcept;  // the bound, where lengths are on the device
  [[nodiscard]] std::int64_t bytes() const noexcept;       // device memory held

 private:
  /// Whether launches that follow each other over the same tensors give the same.
  [[nodiscard]] bool can_repeat() const;
  Check verify_repeated(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);
  Check verify_overlapped(const jit::Executable& executable, TrialWorkspace& workspace, CUstream stream);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kiln::tune
