// Ranks of a team as processes of one bench, a GPU each.
#pragma once

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kiln/kiln.hpp"
#include "team/exchange.hpp"
#include "team/state.hpp"

namespace bench {

/// Forks a process for each rank, given its rank and the team's name. Returns the largest exit status of them.
inline int run_ranks(int world, const std::function<int(int, const std::string&)>& body) {
  const std::string name = kiln::unique_team_name();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < world; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        _exit(body(rank, name));
      } catch (const std::exception& error) {
        std::fputs(fmt::format("rank {}: {}\n", rank, error.what()).c_str(), stderr);
      }
      _exit(1);
    }
    ranks.push_back(process);
  }
  int worst = 0;
  for (const pid_t each : ranks) {
    int status = 0;
    waitpid(each, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

/// Collective. The maximum over the ranks of each value.
inline std::vector<double> largest(kiln::Team& team, std::vector<double> values) {
  const auto all = kiln::team::gather_texts(kiln::team::state_of(team).rendezvous, nlohmann::json(values).dump());
  for (const std::string& text : all) {
    const auto other = nlohmann::json::parse(text).get<std::vector<double>>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::max(values[i], other[i]);
  }
  return values;
}

}  // namespace bench
