// How the ranks of a team find each other: each listens at an address of its own and connects to those of lower rank.
#pragma once

#include <optional>
#include <vector>

#include "team/environment.hpp"
#include "team/link.hpp"

namespace kiln::team {

struct Peer {
  Link link;
  int process = 0;     // 0 where this process cannot see it
  Descriptor watched;  // a pidfd, readable once the process has ended; none where the kernel or a container refuses
};

struct Meeting {
  Descriptor address;  // of one host: holds this rank's, so that no other process can claim the rank
  std::vector<std::optional<Peer>> peers;  // by rank; none for this rank
};

/// Returns once every rank is connected to every other. An address is a name in the abstract namespace of Unix sockets,
/// made of the user's number, a digest of the team's name, and the rank. Whoever is another user is refused, and what
/// sends anything but a rank's greeting is ignored. Throws Error(io) when another process has claimed this rank, when
/// another user holds a rank's address, or at `end`, naming the ranks that did not come. Throws Error(bad_input) when
/// ranks were given different worlds.
Meeting meet(const Membership& membership, Clock::time_point end);

/// "rank 2", "ranks 2, 3"
std::string ranks_text(const std::vector<int>& ranks);

}  // namespace kiln::team
