// A barrier of all ranks' devices, before a run that is timed.
#pragma once

#include <memory>
#include <optional>

#include "answer/cubins.hpp"
#include "cuda/device.hpp"
#include "jit/module.hpp"
#include "jit/team_arguments.hpp"
#include "team/member.hpp"

namespace kiln::tune {

/// By a kernel of Kiln's; over a network by NCCL, where a rank that does not come is waited for without end.
class TeamBarrier {
 public:
  /// Precondition: over a network the team has a communicator. Throws as Cubins::get_and_keep() does, and
  /// Error(driver_failed).
  TeamBarrier(const team::Member& team, const std::string& arch, answer::Cubins& cubins);
  /// Collective on the device: the stream goes on once all ranks' streams have come here, or after the team's time-out.
  void enqueue(CUstream stream) const;

 private:
  const team::NcclCommunicator* nccl_ = nullptr;  // over a network; else null
  std::optional<cuda::Buffer> exchanged_;         // by NCCL
  std::unique_ptr<jit::Module> module_;           // else
  jit::TeamArguments arguments_;
};

}  // namespace kiln::tune
