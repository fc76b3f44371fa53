// kiln::Team of ranks that meet at an address.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <thread>

#include "fake_cuda/fixture.hpp"
#include "fake_nccl/control.hpp"
#include "kiln/error.hpp"
#include "kiln/team.hpp"
#include "team/network.hpp"
#include "team/shared_words.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::query;
using std::chrono::milliseconds;

namespace {

TeamOptions at(const std::string& address, milliseconds timeout = ample) {
  TeamOptions options{0, 4096, timeout};
  options.address = address;
  return options;
}

std::string kind_and_text(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.kind()), error.what());
  }
  return "no error";
}

}  // namespace

TEST_CASE("a team at an address has no symmetric memory, resets, closes, and leaves nothing") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& membership) {
    std::string said;
    {
      const Device device;
      Team team(membership.rank, 3, membership.name, at(address));
      team::Member& member = *team::state_of(team).member;
      said = fmt::format("{} of {}, {} bytes, {}, {} mappings; ", team.rank(), team.world(), team.bytes(),
                         manifest::to_string(member.link()), query("mappings"));
      team.reset();
      said += member.binding(7).half_bytes == 0 && !member.has_fault() ? "sound; " : "unsound; ";
      std::this_thread::sleep_for(milliseconds(membership.rank * 50));
      team.close();
    }
    return said + fmt::format("{} {} left", query("mappings"), query("contexts"));
  });
  for (std::size_t rank = 0; rank < 3; ++rank)
    CHECK(ranks.outcome(rank) == fmt::format("{} of 3, 0 bytes, network, 0 mappings; sound; 0 0 left", rank));
}

TEST_CASE("torchrun's ranks on two hosts are a team by KILN_TEAM_ADDRESS, and are told to set it without") {
  for (const bool is_set : {true, false}) {
    const std::string address = free_address();
    Ranks ranks;
    ranks.begin_all(4, [&](const team::Membership& membership) {
      setenv("RANK", std::to_string(membership.rank).c_str(), 1);
      setenv("WORLD_SIZE", "4", 1);
      setenv("LOCAL_RANK", std::to_string(membership.rank % 2).c_str(), 1);
      setenv("LOCAL_WORLD_SIZE", "2", 1);
      setenv("TORCHELASTIC_RUN_ID", membership.name.c_str(), 1);
      if (is_set) setenv("KILN_TEAM_ADDRESS", address.c_str(), 1);
      std::string said;
      const std::string failed = kind_and_text([&] {
        cuda::Driver::get();
        fake_cuda_tests::control("devices 2");
        TeamOptions options;
        options.timeout = ample;
        Team team(options);
        said = fmt::format("{} of {} on {}, {} bytes", team.rank(), team.world(), team.device(), team.bytes());
        team.close();
      });
      return said + " " + failed;
    });
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const std::string said = ranks.outcome(rank);
      if (is_set)
        CHECK(said == fmt::format("{} of 4 on {}, 0 bytes no error", rank, rank % 2));
      else
        CHECK_MESSAGE(holds(said,
                            "bad_input: the ranks of a team share one host, but WORLD_SIZE is 4 and "
                            "LOCAL_WORLD_SIZE is 2; set KILN_TEAM_ADDRESS on all ranks to HOST:PORT"),
                      said);
    }
  }
}

TEST_CASE("the end of a rank at an address is a fault of the others at once, and a team that is closed has none") {
  const std::string address = free_address(), closed = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    const Device device;
    Team ended(membership.rank, 2, membership.name + "closed", at(closed));
    ended.close();
    Team team(membership.rank, 2, membership.name, at(address, milliseconds(60'000)));
    if (!team::state_of(team).member->open_nccl()) return team::state_of(team).member->why_no_nccl();
    Ranks::say('r');
    while (membership.rank == 1) std::this_thread::sleep_for(milliseconds(10));
    team::Member& member = *team::state_of(team).member;
    while (!member.has_fault()) std::this_thread::sleep_for(milliseconds(1));
    return team::text_of(*member.fault(), 0, member.timeout()) + "; " + kind_and_text([&] { team.reset(); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) ranks.await(rank, 'r');
  ranks.kill(1);
  const std::string said = ranks.outcome(0);
  CHECK_MESSAGE(holds(said, "rank 0 ended NCCL's collectives, since a rank has ended"), said);
  CHECK_MESSAGE(holds(said, "team_failed: "), said);
  CHECK_MESSAGE(holds(said, "rank 1 has ended or left the team"), said);
}

TEST_CASE("an error of NCCL's own is a fault of a team at an address, which no reset takes back") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin_all(2, [&](const team::Membership& membership) {
    const Device device;
    Team team(membership.rank, 2, membership.name, at(address));
    team::Member& member = *team::state_of(team).member;
    if (!member.open_nccl()) return member.why_no_nccl();
    if (membership.rank == 0) {
      void* library = dlopen(std::getenv("KILN_NCCL_LIBRARY"), RTLD_NOW);
      auto* const fail = reinterpret_cast<decltype(&fake_nccl_fail)>(dlsym(library, "fake_nccl_fail"));
      member.nccl()->enqueue([&](const cuda::Nccl&, ncclComm_t handle) {
        fail(handle, ncclSystemError);
        return ncclSuccess;
      });
      while (!member.has_fault()) std::this_thread::sleep_for(milliseconds(1));
    }
    return kind_and_text([&] { team.reset(); });
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const std::string said = ranks.outcome(rank);
    CHECK_MESSAGE(said.starts_with("team_failed: "), said);
    CHECK_MESSAGE(holds(said, "rank 0 failed at clearing its flags: NCCL's communicator was aborted"), said);
  }
}

TEST_CASE("an address that is none, and a rank without the address that others have, are told of") {
  const std::string address = free_address();
  Ranks ranks;
  ranks.begin([&] { return kind_and_text([&] { Team team(0, 2, ranks.name, at("node")); }); });
  ranks.begin([&] { return kind_and_text([&] { Team team(0, 2, ranks.name, at(address, milliseconds(800))); }); });
  ranks.begin([&] { return kind_and_text([&] { Team team(1, 2, ranks.name, at("", milliseconds(800))); }); });
  std::string said = ranks.outcome(0);
  CHECK_MESSAGE(said.starts_with("bad_input: a team's address is 'node', which has no port"), said);
  said = ranks.outcome(1);
  CHECK_MESSAGE(holds(said, "rank 1 did not come in time; see that each was started, can reach " + address), said);
  said = ranks.outcome(2);
  CHECK_MESSAGE(holds(said, "rank 0 did not come in time"), said);
}
