// The kind of link that a team's keys hold.
#include "team/peer_links.hpp"

#include <doctest/doctest.h>

#include "fake_cuda/fixture.hpp"
#include "kiln/error.hpp"
#include "team/ranks.hpp"
#include "team/state.hpp"

using namespace kiln;
using namespace kiln::test;
using fake_cuda_tests::control;

namespace {

/// What each of three ranks finds, on a machine as `machine` says it to each.
std::vector<std::string> links_on(const std::function<void(int)>& machine, const std::function<int(int)>& device_of) {
  Ranks ranks;
  ranks.begin_all(3, [&](const team::Membership& of) {
    cuda::Driver::get();
    machine(of.rank);
    const Team team(of.rank, 3, of.name, TeamOptions{device_of(of.rank), 4096, ample});
    return std::string(to_string(team::state_of(const_cast<Team&>(team)).member->link()));
  });
  return {ranks.outcome(0), ranks.outcome(1), ranks.outcome(2)};
}

std::vector<std::string> all(const char* link) { return {link, link, link}; }
int own_device(int rank) { return rank; }

}  // namespace

TEST_CASE("ranks agree on the slowest link between their devices") {
  CHECK(links_on([](int) { control("devices 3"); }, own_device) == all("nvlink"));
  CHECK(links_on([](int rank) { control(rank == 1 ? "devices 3; pcie 1" : "devices 3"); }, own_device) == all("pcie"));
  CHECK(links_on([](int) {}, [](int) { return 0; }) == all("local"));
}

TEST_CASE("ranks that see their own devices alone cannot tell the link") {
  const auto hide_others = [](int rank) { control("hidden " + std::to_string(rank)); };
  CHECK(links_on(hide_others, [](int) { return 0; }) == all("unseen"));
}
