// Collectives for texts of any length, over those of Rendezvous.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "team/rendezvous.hpp"

namespace kiln::team {

/// Collective. Returns what each rank gave, by rank. Throws as Rendezvous::all_gather does.
std::vector<std::string> gather_texts(Rendezvous& rendezvous, std::string_view own);
/// Collective. Returns what `root` gave; `own` of the other ranks is not read. Throws as Rendezvous::all_gather does.
std::string broadcast_text(Rendezvous& rendezvous, int root, std::string_view own);

}  // namespace kiln::team
