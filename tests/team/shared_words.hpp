// Words in the symmetric memory of a team's ranks, on the fake driver.
#pragma once

#include <cstdint>

#include "cuda/device.hpp"
#include "team/state.hpp"

namespace kiln::test {

/// A rank of a test with a device. It is made in the rank's own process: a driver that was opened before a fork serves neither side.
struct Device {
  cuda::Context context{0};
  cuda::Context::Scope scope{context};
};

inline std::int32_t word_at(CUdeviceptr address) {
  std::int32_t word = 0;
  cuda::check(cuda::Driver::get().cuMemcpyDtoH_v2(&word, address, sizeof word), "reading");
  return word;
}
inline void write_word(CUdeviceptr address, std::int32_t word) {
  cuda::check(cuda::Driver::get().cuMemcpyHtoD_v2(address, &word, sizeof word), "writing");
}
inline CUdeviceptr address_of(Team& team, int rank) {
  return team::state_of(team).memory->addresses()[static_cast<std::size_t>(rank)];
}
inline void barrier(Team& team) { team::state_of(team).rendezvous.barrier(); }

/// Writes `value` to every rank's memory, and returns what the ranks wrote to this one's, by rank: "7 8 ".
inline std::string exchanged_words(Team& team, std::int32_t value) {
  const auto place = [](int rank) { return static_cast<CUdeviceptr>(4 * rank); };
  for (int rank = 0; rank < team.world(); ++rank) write_word(address_of(team, rank) + place(team.rank()), value);
  barrier(team);
  std::string found;
  for (int rank = 0; rank < team.world(); ++rank)
    found += std::to_string(word_at(address_of(team, team.rank()) + place(rank))) + " ";
  barrier(team);
  return found;
}

}  // namespace kiln::test
