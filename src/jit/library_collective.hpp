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
  /// Throws Error(no_nccl) for a team without a communicator, and Error(bad_manifest) for a sum of a type that NCCL does not add, which the
  /// manifest's 'requires' must exclude. Refers to the communicator.
  LibraryCollective(const manifest::Op& op, const manifest::Implementation& implementation,
                    std::span<const std::int64_t> frame, const team::TeamBinding& team);

  [[nodiscard]] CUresult launch(const LaunchInput& input) const noexcept override;

 private:
  const team::NcclCommunicator& communicator_;
  CUcontext context_;
  manifest::CollectiveKind kind_;
  std::size_t input_, output_;     // tensors
  manifest::Formula count_;        // elements
  std::int64_t units_an_element_;  // of type_
  ncclDataType_t type_;
};

}  // namespace kiln::jit
