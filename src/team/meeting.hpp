// How the ranks of a team on one host find each other: each listens at an address of its own and connects to those of lower rank.
#pragma once

#include "team/seeker.hpp"

namespace kiln::team {

/// Returns once every rank is connected to every other. An address is a name in the abstract namespace of Unix sockets,
/// made of the user's number, a digest of the team's name, and the rank. Whoever is another user is refused, and what
/// sends anything but a rank's greeting is ignored. Throws Error(io) when another process has claimed this rank, when
/// another user holds a rank's address, or at `end`, naming the ranks that did not come. Throws Error(bad_input) when
/// ranks were given different worlds.
Meeting meet(const Membership& membership, Clock::time_point end);

}  // namespace kiln::team
