// Team: the ranks that compute one op together, a process each, on the GPUs of one host, or of several by NCCL alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kiln/export.h"

namespace kiln {

class Team;

namespace team {
struct TeamState;
// For Kiln's own modules.
TeamState& state_of(Team& team) noexcept;
std::shared_ptr<Team> team_of(std::unique_ptr<TeamState> state);
}  // namespace team

/// How a rank takes part in its team.
struct TeamOptions {
  /// Ordinal of the rank's GPU. Nothing: the communicator's, or the launcher's local rank where this process sees so
  /// many GPUs, else the only GPU that it sees. A process that sees several and has neither must give it.
  std::optional<int> device;
  /// Of symmetric memory on each rank: device memory that every rank reaches. The same for all ranks, 1 or more. 16 MiB
  /// are allocated beside it. A worker allocates as much again while it tunes. With an address: none is allocated.
  std::int64_t bytes = std::int64_t{256} << 20;
  /// How long a rank waits for every other rank, in each collective. Ranks that load for different times need more.
  std::chrono::milliseconds timeout{60'000};
  /// How long a launch waits for the other ranks' data, before it ends with NaN and Error(team_failed). Nothing: as
  /// `timeout`.
  std::optional<std::chrono::milliseconds> launch_timeout = std::nullopt;
  /// "HOST:PORT", "[IPv6]:PORT": where rank 0 listens for all ranks, which may be on other hosts. The same for all
  /// ranks; rank 0 is on that host. The ranks share no memory, and only what NCCL serves is launched. Empty: all ranks
  /// are on one host, and share memory.
  std::string address = {};
};

/// Returns a name that no other team has: 128 random bits in hexadecimal. One rank makes it and gives it to every
/// other rank.
KILN_API std::string unique_team_name();

/// One process's part in a team, made by every rank. Retains the primary context of its device.
///
/// The constructors, reset() and close() are collective: they return once every rank has called them, and wait for
/// TeamOptions::timeout at most. A failure on one rank is thrown on all ranks that had met, and names that rank.
/// Error(team_failed) names a rank that has ended, left or not come. After it the team cannot be used any more. One
/// thread at a time may call reset() and close(). The other members may be called from any thread.
class KILN_API Team {
 public:
  /// Meets the ranks of this user and host that were given the same name and world, which is 1 to 64;
  /// with an address, those of any host that were given the same. Kernels serve 8 ranks at most, and NCCL more. Throws
  /// Error(bad_input) for a rank out of range, a name of no or more than 1024 bytes, a device that must be given, an
  /// invalid address, and worlds or bytes that differ. Throws Error(team_failed) for ranks that do not come,
  /// Error(io) for a rank or address that another process holds, Error(no_driver), Error(no_device),
  /// Error(driver_failed) and Error(out_of_memory).
  ///
  /// With an address, whoever knows the name and reaches the port may join, and nothing is encrypted: the network must
  /// be trusted, as NCCL asks.
  Team(int rank, int world, const std::string& name, const TeamOptions& options = {});
  /// Takes rank, world and name from the variables that torchrun, Open MPI's mpirun or Slurm's srun has set, and the
  /// address from KILN_TEAM_ADDRESS where TeamOptions has none. Throws Error(bad_input), naming the variables, where
  /// they are missing or wrong, or of several hosts without an address, and as the other constructor does.
  explicit Team(const TeamOptions& options);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  /// Unmaps the memory and waits for no rank. The memory of this rank stays until every rank has unmapped it.
  /// Precondition: no kernel of this process uses the team's memory any more.
  ~Team();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int world() const noexcept;  // ranks in all
  [[nodiscard]] const std::string& name() const noexcept;
  [[nodiscard]] int device() const noexcept;  // ordinal of this rank's GPU, which Options::device must be
  [[nodiscard]] std::int64_t bytes()
      const noexcept;  // of symmetric memory on each rank, as asked for; 0 with an address
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept;

  /// Collective. Makes the team usable again after a launch that threw Error(team_failed), if no rank has ended:
  /// forgets the fault, and clears what launches reported to each other. Precondition: this rank has synchronised the
  /// streams that launched ops of the team. Throws Error(io), Error(driver_failed), and Error(team_failed) if NCCL's
  /// communicator was aborted: then make a new Team.
  void reset();
  /// Returns once the memory is free on all ranks. Also frees NCCL's communicator, if ops of the team used one. Has the
  /// destructor's precondition. Throws Error(team_failed), having unmapped.
  void close();

 private:
  friend team::TeamState& team::state_of(Team& team) noexcept;
  friend std::shared_ptr<Team> team::team_of(std::unique_ptr<team::TeamState> state);
  KILN_HIDDEN explicit Team(std::unique_ptr<team::TeamState> state);
  std::unique_ptr<team::TeamState> state_;
};

}  // namespace kiln
