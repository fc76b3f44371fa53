// A barrier of a team's ranks, before a run that is timed.
//
//   team_barrier(Team team)
//       One block of 32 threads. It ends once it has begun on every rank, or as a failed launch of the team does.
#pragma once

#include "common/team/signals.cuh"

namespace kiln {

__global__ __launch_bounds__(32) void team_barrier(const __grid_constant__ team::Team team) {
  __shared__ team::Epoch::storage shared;
  team::Epoch epoch(team, shared);
  const int thread = static_cast<int>(threadIdx.x);
  if (!epoch.failed() && thread < team.world && thread != team.rank) epoch.send(thread, 0, 0);
  epoch.await_all(team.world, [&](int rank) { return rank == team.rank || epoch.await(rank, 0) >= 0; });
  epoch.end();
}

}  // namespace kiln
