// How the ranks of a team find each other: on one host each listens at an address of its own and connects to those of
// lower rank; on several, rank 0 listens at an address that all were given.
#pragma once

#include <string>

#include "team/seeker.hpp"

namespace kiln::team {

/// Returns once every rank is connected to every other. An address is a name in the abstract namespace of Unix sockets,
/// made of the user's number, a digest of the team's name, and the rank. Whoever is another user is refused, and what
/// sends anything but a rank's greeting is ignored. Throws Error(io) when another process has claimed this rank, and
/// when another user holds a rank's address. Throws Error(team_failed) at `end`, naming the ranks that did not come,
/// and Error(bad_input) when ranks were given different worlds.
Meeting meet(const Membership& membership, Clock::time_point end);

/// Returns once every rank is connected to every other by a stream. Rank 0 listens at `address`, "HOST:PORT", at all
/// addresses of its host where HOST is a name. The others tell rank 0 at which ports they listen, of the system's
/// choice, and rank 0 tells all of them. What sends anything but the greeting of a rank of this team's name is ignored.
/// Throws Error(bad_input) as parse_address(), and when ranks were given different worlds. Throws Error(io) when
/// another process has claimed this rank or listens at rank 0's address, and Error(team_failed) at `end`, naming the
/// ranks that did not come.
Meeting meet_at(const std::string& address, const Membership& membership, Clock::time_point end);

}  // namespace kiln::team
