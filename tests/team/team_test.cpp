// kiln::Team as its users make it.
#include "kiln/team.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "team/ranks.hpp"
#include "team/shared_words.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::query;

namespace {

TeamOptions small(std::optional<int> device = std::nullopt) { return {device, 4096, ample}; }

std::string told_by(const Team& team) {
  return fmt::format("{} of {} in {}, {} bytes, {} ms", team.rank(), team.world(), team.name(), team.bytes(),
                     team.timeout().count());
}

std::string no_choice(std::optional<int> local_rank, int visible) {
  try {
    team::chosen_device({}, local_rank, visible);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a team tells what it was made of, shares its memory, and leaves nothing once it is closed") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& membership) {
    std::string said;
    {
      const Device device;
      Team team(membership.rank, 2, membership.name, small());
      said = told_by(team) + ": " + exchanged_words(team, 70 + team.rank());
      team.close();
    }
    return said + fmt::format("{} {} left", query("mappings"), query("contexts"));
  });
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 2 in {}, 4096 bytes, 15000 ms: 70 71 0 0 left", rank, ranks.name));
}

TEST_CASE("a launcher's variables make a team without more") {
  Ranks ranks;
  ranks.begin_all(2, [](const team::Membership& membership) {
    setenv("OMPI_COMM_WORLD_RANK", std::to_string(membership.rank).c_str(), 1);
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(membership.rank).c_str(), 1);
    setenv("PMIX_NAMESPACE", membership.name.c_str(), 1);
    for (const char* other : {"RANK", "SLURM_PROCID"}) unsetenv(other);
    return told_by(Team(small()));
  });
  for (std::size_t rank = 0; rank < 2; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 2 in Open MPI/{}, 4096 bytes, 15000 ms", rank, ranks.name));
}

TEST_CASE("a device that one rank does not have fails all of them, with its rank") {
  Ranks ranks;
  ranks.begin_all(3, [](const team::Membership& membership) {
    try {
      const Team team(membership.rank, 3, membership.name, small(membership.rank == 1 ? 5 : 0));
    } catch (const Error& error) {
      return fmt::format("{}: {}", to_string(error.kind()), error.what());
    }
    return std::string("no error");
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(holds(said, "no_device: team"), said);
    CHECK_MESSAGE(holds(said, "rank 1 failed at opening its device"), said);
  }
}

TEST_CASE("a device is the one asked for, the local rank's, or the only one, and is never guessed") {
  CHECK(team::chosen_device(3, 1, 8) == 3);
  CHECK(team::chosen_device({}, 1, 8) == 1);
  CHECK(team::chosen_device({}, 1, 1) == 0);
  CHECK(team::chosen_device({}, {}, 1) == 0);
  CHECK(holds(no_choice({}, 8), "this process sees 8 GPUs; give TeamOptions::device"));
  CHECK(holds(no_choice(2, 2), "this process sees 2 GPUs and has the local rank 2; give TeamOptions::device"));
}

TEST_CASE("unique names are unlike, and names that a team takes") {
  const std::string first = unique_team_name(), second = unique_team_name();
  CHECK(first != second);
  CHECK(first.size() == 37);
  CHECK_NOTHROW(team::check_membership({0, 1, first}));
}
