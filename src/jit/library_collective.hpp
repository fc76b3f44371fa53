// The launch of an implementation by NCCL: one collective of the team's communicator.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/nccl_api.hpp"
#include "jit/library.hpp"
#include "manifest/formula.hpp"
#include "team/nccl_communicator.hpp"

namespace kiln::jit {

class LibraryCollective final : public LibraryCall {
 public:
  /// Throws Error(no_nccl) for a team without a communicator, and Error(bad_manifest) for a sum of a type that NCCL
  /// does not add, which the manifest's 'requires' must exclude, or for a workspace that is too small at the sizes of
  /// `frame`. Refers to the communicator.
  LibraryCollective(const manifest::Op& op, const manifest::Implementation& implementation,
                    std::span<const std::int64_t> frame, std::span<const LoadedWorkspace> workspaces,
                    const team::TeamBinding& team);

  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept override;
  [[nodiscard]] bool is_first() const noexcept override { return first_; }

 private:
  /// A tensor that the launch gives, else a workspace.
  struct Place {
    int tensor = -1;
    bool zeroed = false;
    std::int64_t offset = 0;
    [[nodiscard]] CUdeviceptr in(const LaunchInput& input) const noexcept;
  };
  static Place place_of(const manifest::Collective::Place& of, std::span<const LoadedWorkspace> workspaces);

  const team::NcclCommunicator& communicator_;
  CUcontext context_;
  manifest::CollectiveKind kind_;
  bool first_;
  Place input_, output_;
  manifest::Formula count_;        // elements
  std::int64_t units_an_element_;  // of type_
  ncclDataType_t type_;
};

}  // namespace kiln::jit
