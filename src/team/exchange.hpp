// Collectives over those of Rendezvous: texts of any length, and steps that fail on all ranks when they fail on one.
#pragma once

#include <chrono>
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

/// Collective: calls `step` on each rank, and returns what each rank's returned, by rank. Throws on all ranks the
/// kiln::Error that a `step` threw on any, with the first such rank and `what`; another exception becomes Error(io).
/// Throws as Rendezvous does.
std::vector<std::string> gather_on_all_ranks(Rendezvous& rendezvous, const char* what,
                                             const std::function<std::string()>& step);
/// As gather_on_all_ranks(), for a step that returns nothing.
void on_all_ranks(Rendezvous& rendezvous, const char* what, const std::function<void()>& step);

/// While it lives, collectives wait for longer than the team's time-out: a rank that compiles or tunes lets the others
/// wait. One that ends is noticed at once all the same.
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
