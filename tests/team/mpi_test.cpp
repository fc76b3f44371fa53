// A team of an MPI communicator's ranks, by the header that calls the program's own MPI.
#include "kiln/team_mpi.hpp"

#include <doctest/doctest.h>

#include <set>

#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "team/network.hpp"
#include "team/ranks.hpp"
#include "team/shared_words.hpp"

using namespace kiln;
using namespace kiln::test;

TEST_CASE("the ranks of an MPI communicator are a team, under a name that each of their teams has alone") {
  int pipes[3][2];
  for (auto& each : pipes) REQUIRE(pipe(each) == 0);
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& membership) {
    fake_mpi_communicator communicator{membership.rank, membership.world, pipes};
    const Device device;
    const std::shared_ptr<Team> first = team_from_mpi(&communicator, {0, 4096, ample});
    const std::shared_ptr<Team> second = team_from_mpi(&communicator, {0, 8192, ample});
    const std::string words = exchanged_words(*first, 10 + membership.rank) + exchanged_words(*second, 20);
    return fmt::format("{} of {}: {}{} {}", first->rank(), second->world(), words,
                       first->name() != second->name() ? "unlike" : "like", second->bytes());
  });
  for (std::size_t rank = 0; rank < 3; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 3: 10 11 12 20 20 20 unlike 8192", rank));
  for (auto& each : pipes)
    for (const int end : each) close(end);
}

TEST_CASE("the ranks of an MPI communicator are a team at an address, without symmetric memory") {
  int pipes[2][2];
  for (auto& each : pipes) REQUIRE(pipe(each) == 0);
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    fake_mpi_communicator communicator{membership.rank, membership.world, pipes};
    const Device device;
    TeamOptions options{0, 4096, ample};
    options.address = address;
    const std::shared_ptr<Team> team = team_from_mpi(&communicator, options);
    team->close();
    return fmt::format("{} of {}, {} bytes", team->rank(), team->world(), team->bytes());
  });
  for (std::size_t rank = 0; rank < 2; ++rank) CHECK(ranks.outcome(rank) == fmt::format("{} of 2, 0 bytes", rank));
  for (auto& each : pipes)
    for (const int end : each) close(end);
}

TEST_CASE("what MPI refuses is an error with the call's name") {
  CHECK_THROWS_WITH_AS(team_from_mpi(MPI_COMM_NULL),
                       "a team was asked for of an MPI communicator, and MPI_Comm_rank gave error 5", Error);
}
