// How the ranks of an NCCL communicator learn whether they can be a team, and under which name they meet.
#pragma once

#include <string>

#include "cuda/nccl_api.hpp"
#include "kiln/team.hpp"
#include "team/environment.hpp"

namespace kiln::team {

/// A host as its processes see it.
struct Host {
  std::string name;
  std::string boot;  // the kernel's number of its start, the same in all containers; empty where it cannot be read
};
Host this_host();
/// Whether two processes are on one host: by the boot where both know it, else by the name.
bool is_same(const Host& one, const Host& other);

struct Introduced {
  Membership membership;
  int device = 0;  // the communicator's
};
/// Collective over `communicator`: each rank tells all others of `own` and of TeamOptions::device. Throws as
/// kiln::team_from_nccl().
Introduced introduce(const cuda::Nccl& nccl, ncclComm_t communicator, const Host& own, const TeamOptions& options);

}  // namespace kiln::team
