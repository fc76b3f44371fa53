#include "team/environment.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "kiln/error.hpp"
#include "manifest/environment.hpp"
#include "manifest/limits.hpp"

namespace kiln::team {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;                 // ranks of this host; null where the launcher does not say
  const char* hosts;                       // null where it does not say
  std::array<const char*, 4> identifiers;  // the values of those that are set distinguish the team from others
};

constexpr std::array<Launcher, 3> launchers = {{
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     nullptr,
     {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"}},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     nullptr,
     {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_NTASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_NNODES",
     {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEPID"}},
}};

constexpr const char* remedy = "start the ranks with torchrun, mpirun or srun, or give rank, world and name";

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::bad_input, what); }

std::optional<int> number(const Variables& variables, const char* name) {
  const std::optional<std::string> text = name != nullptr ? variables(name) : std::nullopt;
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size())
    refuse(fmt::format("{} is '{}', which is no number; {}", name, *text, remedy));
  return value;
}

int required_number(const Variables& variables, const Launcher& launcher, const char* name) {
  const std::optional<int> value = number(variables, name);
  if (!value)
    refuse(fmt::format("{} is set, as {} does, but {} is not; {}", launcher.rank, launcher.name, name, remedy));
  return *value;
}

std::string name_of_team(const Variables& variables, const Launcher& launcher) {
  std::string name = launcher.name;
  for (const char* identifier : launcher.identifiers) {
    if (identifier == nullptr) continue;
    if (const auto value = variables(identifier)) name += "/" + *value;
  }
  if (name == launcher.name)
    refuse(fmt::format("{} is set, as {} does, but nothing that distinguishes this team from others, such as {}; {}",
                       launcher.rank, launcher.name, launcher.identifiers.front(), remedy));
  return name;
}

void require_one_host(const Variables& variables, const Launcher& launcher, int world) {
  const std::optional<int> here = number(variables, launcher.local_world), hosts = number(variables, launcher.hosts);
  if ((!here || *here == world) && (!hosts || *hosts == 1)) return;
  const std::string found = here ? fmt::format("{} is {}", launcher.local_world, *here)
                                 : fmt::format("{} is {}", launcher.hosts, hosts.value_or(0));
  refuse(
      fmt::format("the ranks of a team share one host, but {} is {} and {}; set {} on all ranks to HOST:PORT, of rank "
                  "0's host and a port that is free there, or give rank, world and name of the ranks on each host",
                  launcher.world, world, found, address_variable));
}

/// RANK and WORLD_SIZE are also set by hand, as from another launcher's variables, and then must agree with them.
void require_agreement(const Variables& variables, const Launcher& chosen, const Membership& membership) {
  if (&chosen != &launchers.front() || variables("TORCHELASTIC_RUN_ID")) return;
  for (const Launcher& other : launchers) {
    const std::optional<int> rank = number(variables, other.rank), world = number(variables, other.world);
    if (!rank || !world || (*rank == membership.rank && *world == membership.world)) continue;
    refuse(fmt::format(
        "{} and {} say rank {} of {}, {} and {} say rank {} of {}; unset those that are wrong, or give "
        "rank, world and name",
        chosen.rank, chosen.world, membership.rank, membership.world, other.rank, other.world, *rank, *world));
  }
}

}  // namespace

void check_membership(const Membership& membership) {
  const auto& [rank, world, name] = membership;
  if (world < 1 || world > manifest::most_team_ranks)
    refuse(fmt::format("a team of {} ranks was asked for; it has 1 to {}", world, manifest::most_team_ranks));
  if (rank < 0 || rank >= world)
    refuse(fmt::format("rank {} of {} was asked for; ranks count from 0 to {}", rank, world, world - 1));
  if (name.empty() || name.size() > 1024)
    refuse(fmt::format("a team's name has 1 to 1024 bytes; {} were given", name.size()));
}

std::optional<std::string> process_variable(const char* name) {
  std::string value = manifest::environment(name);
  if (value.empty()) return std::nullopt;
  return value;
}

bool is_launched(const Variables& variables) {
  for (const Launcher& launcher : launchers)
    if (variables(launcher.rank)) return true;
  return false;
}

LaunchedRank launched_rank(const std::string& address, const Variables& variables) {
  for (const Launcher& launcher : launchers) {
    if (!variables(launcher.rank)) continue;
    LaunchedRank found;
    found.launcher = launcher.name;
    found.address = address.empty() ? variables(address_variable).value_or("") : address;
    found.membership.rank = required_number(variables, launcher, launcher.rank);
    found.membership.world = required_number(variables, launcher, launcher.world);
    require_agreement(variables, launcher, found.membership);
    found.membership.name = name_of_team(variables, launcher);
    // Says what to do where the world is too large.
    if (found.address.empty()) require_one_host(variables, launcher, found.membership.world);
    check_membership(found.membership);
    found.local_rank = number(variables, launcher.local_rank).value_or(found.membership.rank);
    return found;
  }
  refuse(
      fmt::format("a team was asked for, but none of RANK, OMPI_COMM_WORLD_RANK and SLURM_PROCID is set; {}", remedy));
}

}  // namespace kiln::team
