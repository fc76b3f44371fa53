// A Team of the ranks of an MPI communicator, by the program's own MPI: this header alone calls it, and the library
// does not. Where mpi.h was not included before and is not found, the header declares nothing.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "kiln/error.hpp"
#include "kiln/team.hpp"

#if !defined(MPI_VERSION) && __has_include(<mpi.h>)
#include <mpi.h>
#endif

#ifdef MPI_VERSION

namespace kiln {

/// Collective over the communicator: returns a team with its ranks and world, under a name of its own, which rank 0
/// broadcasts. Without TeamOptions::address all ranks must be on one host, for they share memory: MPI_Comm_split_type
/// with MPI_COMM_TYPE_SHARED makes such a communicator. With one they may be on any hosts. The communicator stays the
/// caller's, and is not used once the function has returned.
///
/// Throws Error(io) where MPI returns an error, which its default error handler does not, and as Team's constructors.
/// Ranks of another host are ranks that have not come within TeamOptions::timeout, where there is no address.
inline std::shared_ptr<Team> team_from_mpi(MPI_Comm communicator, const TeamOptions& options = {}) {
  const auto require = [](int result, const char* what) {
    if (result != MPI_SUCCESS)
      throw Error(ErrorKind::io, std::string("a team was asked for of an MPI communicator, and ") + what +
                                     " gave error " + std::to_string(result));
  };
  int rank = 0, world = 0;
  require(MPI_Comm_rank(communicator, &rank), "MPI_Comm_rank");
  require(MPI_Comm_size(communicator, &world), "MPI_Comm_size");
  std::array<char, 64> name{};  // zero-terminated
  if (rank == 0) unique_team_name().copy(name.data(), name.size() - 1);
  require(MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, communicator), "MPI_Bcast");
  return std::make_shared<Team>(rank, world, name.data(), options);
}

}  // namespace kiln

#endif
