// Collectives for texts of any length, over those of Rendezvous.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "team/rendezvous.hpp"

namespace kiln::team {

/// Collective. Returns what each rank gave, by rank. Throws as Rendezvous::all_gather does.
std::vector<std::string> gather_texts(Rendezvous& rendezvous, std::string_view own);
/// Collective. Returns what `root` gave; `own` of the other ranks is not read. Throws as Rendezvous::all_gather does.
std::string broadcast_text(Rendezvous& rendezvous, int root, std::string_view own);

/// While it lives, collectives wait for longer than the team's time-out: a rank that compiles or tunes lets the others wait. One that ends is
/// noticed at once all the same.
class Patience {
 public:
  explicit Patience(Rendezvous& rendezvous, std::chrono::milliseconds longest = std::chrono::minutes(30))
      : rendezvous_(rendezvous), before_(rendezvous.timeout()) {
    rendezvous.set_timeout(longest);
  }
  ~Patience() { rendezvous_.set_timeout(before_); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  Rendezvous& rendezvous_;
  std::chrono::milliseconds before_;
};

}  // namespace kiln::team
