// The ranks that compute one op together, with the memory that they share. All ranks are on one host.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "team/symmetric_memory.hpp"

namespace kiln {

class Team {
 public:
  /// Collective: meets the other ranks and allocates `bytes` of symmetric memory on each. `context` is current, and
  /// outlives the team. Throws as team::Rendezvous and team::SymmetricMemory do.
  Team(const team::Membership& membership, const cuda::Context& context, std::int64_t bytes,
       std::chrono::milliseconds timeout);

  [[nodiscard]] int rank() const noexcept { return rendezvous_.membership().rank; }
  [[nodiscard]] int world() const noexcept { return rendezvous_.membership().world; }
  [[nodiscard]] const std::string& name() const noexcept { return rendezvous_.membership().name; }
  [[nodiscard]] std::int64_t bytes() const noexcept { return memory_.bytes(); }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return rendezvous_.timeout(); }

  [[nodiscard]] team::Rendezvous& rendezvous() noexcept { return rendezvous_; }
  [[nodiscard]] const team::SymmetricMemory& memory() const noexcept { return memory_; }
  /// Collective: returns once the memory is free on all ranks. The destructor waits for nobody.
  void close() { memory_.close(rendezvous_); }

 private:
  team::Rendezvous rendezvous_;
  team::SymmetricMemory memory_;
};

inline Team::Team(const team::Membership& membership, const cuda::Context& context, std::int64_t bytes,
                  std::chrono::milliseconds timeout)
    : rendezvous_(membership, timeout), memory_(rendezvous_, context, bytes) {}

}  // namespace kiln
