// Collectives for texts of any length, over those of Rendezvous.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "team/rendezvous.hpp"

namespace kiln::team {

/// Collective. Returns what each rank gave, by rank. Throws as Rendezvous::all_gather does.
std::vector<std::string> gather_texts(Rendezvous& rendezvous, std::string_view own);
/// Collective. Returns what `root` gave; `own` of the other ranks is not read. Throws as Rendezvous::all_gather does.
std::string broadcast_text(Rendezvous& rendezvous, int root, std::string_view own);

/// Collective: calls `step` on each rank, and returns what each rank's returned. Throws on all ranks what a `step` threw on any, with the rank
/// and `what` it was doing: nobody goes on without the others. Throws as Rendezvous::all_gather does.
std::vector<std::string> on_all_ranks(Rendezvous& rendezvous, std::string_view what,
                                      const std::function<std::string()>& step);

}  // namespace kiln::team
