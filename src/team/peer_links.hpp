// By what kind of link the devices of a team's ranks reach each other.
#pragma once

#include "cuda/device.hpp"
#include "manifest/op.hpp"
#include "team/rendezvous.hpp"

namespace kiln::team {

/// Collective: returns the slowest kind of link between the devices of any two ranks, the same on all. Throws as
/// gather_on_all_ranks() does.
manifest::TeamLink slowest_link(Rendezvous& rendezvous, const cuda::Context& context);

}  // namespace kiln::team
