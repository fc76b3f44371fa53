// Device memory that every rank of a team has, and reaches on every other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cuda/shared_allocation.hpp"
#include "team/rendezvous.hpp"

namespace kiln::team {

/// As many bytes on each rank, zero at first. The memory of a rank stays until every rank has unmapped it, so that a
/// kernel may write to a rank that has ended.
class SymmetricMemory {
 public:
  /// Collective. `context` is current, and outlives this. Throws the same error on all ranks, which names the rank
  /// concerned: Error(bad_input) for bytes below 1 or unlike another rank's, Error(out_of_memory), or
  /// Error(driver_failed). Throws as Rendezvous does.
  SymmetricMemory(Rendezvous& rendezvous, const cuda::Context& context, std::int64_t bytes);
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  /// Unmaps, and waits for no rank. Precondition: no kernel of this process uses the memory any more.
  ~SymmetricMemory() = default;

  /// Collective: returns once all ranks have unmapped everything, so that the memory is free. Has the destructor's
  /// precondition; the addresses are void. Throws as Rendezvous does, having unmapped.
  void close(Rendezvous& rendezvous);

  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }
  /// Where this process reaches each rank's memory, by rank.
  [[nodiscard]] std::span<const CUdeviceptr> addresses() const noexcept { return addresses_; }

 private:
  std::int64_t bytes_;
  std::vector<cuda::SharedAllocation> allocations_;  // by rank
  std::vector<CUdeviceptr> addresses_;
};

}  // namespace kiln::team
