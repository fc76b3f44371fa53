// Implementations with `library`: what a vendor's library proposes and takes, and its launch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/launch_form.hpp"
#include "manifest/variant.hpp"
#include "team/binding.hpp"

namespace kiln::jit {

/// Returns "cublaslt 13.1.0" or "nccl 2.28.9", or an empty string when the library is missing. Opens the library. A
/// record holds for a version.
std::string library_identity(const std::string& library);

/// Returns the configs that the library proposes for the sizes of `frame` (manifest::Variant::frame), best first. Empty
/// without the library. NCCL alone has one config, which it takes at all sizes; beside kernels, those have configs.
/// Precondition: a context is current.
std::vector<manifest::Config> library_candidates(const manifest::Op& op, const manifest::Implementation& implementation,
                                                 std::span<const std::int64_t> frame, std::size_t at_most);

/// Returns why the library cannot run the config at these sizes. Returns nothing when it can, without a current
/// context, and for a variant without a library.
std::optional<std::string> why_library_refuses(const manifest::Site& site, const manifest::Variant& variant,
                                               const Problem& at);

/// A workspace of an implementation, as an executable lays it out.
struct LoadedWorkspace {
  std::string name;
  std::int64_t offset = 0, bytes = 0;  // in its block, or in a half of the team's memory
  bool zeroed = false;
  std::size_t symmetric = 0;  // symmetric workspaces before it
};

/// What an executable of a library's implementation launches.
class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  /// Returns CUDA_ERROR_NOT_SUPPORTED at sizes that the config does not take, and CUDA_ERROR_INVALID_CONTEXT when the
  /// current context is not the one that the call was made for. Launches nothing in either case.
  [[nodiscard]] virtual CUresult launch(const LaunchInput& input) const noexcept = 0;
  /// Has the library load what a launch needs, once, so that no launch and no capture waits for it. A launch before it
  /// calls it.
  virtual void load() const noexcept {}
  /// At the sizes that the call was made for.
  [[nodiscard]] virtual std::int64_t workspace_bytes() const noexcept { return 0; }
  /// Whether it comes before the implementation's passes.
  [[nodiscard]] virtual bool is_first() const noexcept { return false; }
};

/// For the current context. `team` must be given for a team op; `workspaces` are the implementation's. Throws as the
/// constructors of LibraryMatmul and LibraryCollective do.
std::unique_ptr<LibraryCall> make_library_call(const manifest::Op& op, const manifest::Implementation& implementation,
                                               std::span<const std::int64_t> frame,
                                               std::span<const LoadedWorkspace> workspaces,
                                               const team::TeamBinding* team);

}  // namespace kiln::jit
