// Which rank of which team this process is, by the variables of the launcher that began it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace kiln::team {

inline constexpr const char* address_variable = "KILN_TEAM_ADDRESS";  // "HOST:PORT" of rank 0

struct Membership {
  int rank = 0;
  int world = 1;
  std::string name;  // the same for every rank; no other team of this user on this host has it at the same time
};
/// Throws Error(bad_input) unless 0 <= rank < world <= manifest::most_team_ranks and the name has 1 to 1024 bytes.
void check_membership(const Membership& membership);

struct LaunchedRank {
  Membership membership;
  int local_rank = 0;    // among the ranks of this host: the ordinal of a device, where a process sees all of them
  std::string launcher;  // "torchrun", "Open MPI" or "Slurm"
  std::string address;   // where the ranks meet; empty: on one host
};

/// The value of an environment variable, or nothing where it is unset or empty.
using Variables = std::function<std::optional<std::string>(const char* name)>;
std::optional<std::string> process_variable(const char* name);

/// Whether a launcher has told this process its rank. A batch script of Slurm has a rank too, though no others beside
/// it.
bool is_launched(const Variables& variables = process_variable);

/// Reads the first of torchrun's, Open MPI's and Slurm's variables that are set. The address is KILN_TEAM_ADDRESS where
/// `address` is empty. Throws Error(bad_input), naming the
/// variables, when none are, when one is missing or no number, when the ranks are on several hosts and have no address
/// to meet at, and when RANK and WORLD_SIZE were not set by torchrun and Open MPI or Slurm says otherwise.
LaunchedRank launched_rank(const std::string& address = {}, const Variables& variables = process_variable);

}  // namespace kiln::team
