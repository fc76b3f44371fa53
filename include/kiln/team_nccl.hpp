// A Team of the ranks of an NCCL communicator. Needs no header of NCCL's.
#pragma once

#include <memory>

#include "kiln/export.h"
#include "kiln/team.hpp"

struct ncclComm;  // what NCCL's ncclComm_t points to

namespace kiln {

/// Collective over the communicator: returns a team with its ranks, world and device, under a name of its own. Without
/// TeamOptions::address all ranks must be on one host, for they share memory; with one they may be on any hosts. Opens
/// the libnccl.so.2 that the process has loaded, or $KILN_NCCL_LIBRARY. It must be the one that made the communicator.
/// The communicator stays the caller's, and is not used once the function has returned.
///
/// Precondition: nobody else uses the communicator meanwhile, and no ncclGroupStart is open on this thread. May wait
/// for the device's work.
///
/// Throws the same Error(bad_input) on all ranks where they are on several hosts without an address, or where a
/// TeamOptions::device is not its communicator's. Throws Error(bad_input) for what is no communicator, Error(no_nccl),
/// and Error(team_failed) where NCCL fails or not every rank has come within TeamOptions::timeout. The communicator is
/// then of no more use. Throws as Team's constructors.
KILN_API std::shared_ptr<Team> team_from_nccl(ncclComm* communicator, const TeamOptions& options = {});

}  // namespace kiln
