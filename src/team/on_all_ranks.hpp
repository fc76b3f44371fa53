// A step that fails on all ranks when it fails on one: nobody goes on without the others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "team/rendezvous.hpp"

namespace kiln::team {

/// Collective: calls `step` on each rank, and returns what each rank's returned, by rank. Throws on all ranks the
/// kiln::Error that a `step` threw on any, with the first such rank and `what`; another exception becomes Error(io).
/// Throws as Rendezvous does.
std::vector<std::string> gather_on_all_ranks(Rendezvous& rendezvous, const char* what,
                                             const std::function<std::string()>& step);
/// As gather_on_all_ranks(), for a step that returns nothing.
void on_all_ranks(Rendezvous& rendezvous, const char* what, const std::function<void()>& step);

}  // namespace kiln::team
