// A barrier of all ranks' devices, before a run that is timed.
#pragma once

#include <memory>

#include "jit/module.hpp"
#include "jit/team_arguments.hpp"
#include "team/member.hpp"
#include "tune/cubins.hpp"

namespace kiln::tune {

class TeamBarrier {
 public:
  /// Throws as Cubins::get_and_keep() does, and Error(driver_failed).
  TeamBarrier(const team::Member& team, const std::string& arch, Cubins& cubins);
  /// Collective on the device: the stream goes on once all ranks' streams have come here, or after the team's time-out.
  void enqueue(CUstream stream) const;

 private:
  std::unique_ptr<jit::Module> module_;
  jit::TeamArguments arguments_;
};

}  // namespace kiln::tune
