// What bench_team_probe measures, an item each. Both processes call an item's function with their rank.
#pragma once

#include <span>

#include "team_probe/link.hpp"

namespace kiln::bench {

struct Side {
  int rank = 0;
  int ordinal = 0;  // of this process's device, among those that it sees
  int peers_ordinal = 0;
  const Link& link;
};

void facts(const Side& side);
void host_link(const Side& side);
void push(const Side& side);
void push_both_ways(const Side& side);
void copy(const Side& side);
void flags(const Side& side);
void dead_exporter_idle(const Side& side);
void dead_exporter_writing(const Side& side);
void restricted_visibility(const Side& side);

}  // namespace kiln::bench
