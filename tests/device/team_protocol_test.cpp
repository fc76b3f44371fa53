#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/team/protocol.cuh"
#include "manifest/limits.hpp"

namespace host {              // both declare kiln::team
#include "team/protocol.hpp"  // whose own includes stand above
}

namespace {

namespace device = kiln::team;
namespace on_host = host::kiln::team;

#define SAME_PLACE(type, of, member) \
  static_assert(offsetof(device::type, member) == offsetof(on_host::of, member), #type "::" #member)

SAME_PLACE(Control, Control, epoch);
SAME_PLACE(Control, Control, finished);
SAME_PLACE(Control, Control, running);
SAME_PLACE(Control, Control, claimed);
SAME_PLACE(Control, Control, failed);
SAME_PLACE(Control, Control, told);
SAME_PLACE(Control, Control, flags);
SAME_PLACE(Report, Report, state);
SAME_PLACE(Report, Report, abort);
SAME_PLACE(Report, Report, rank);
SAME_PLACE(Report, Report, flag);
SAME_PLACE(Report, Report, expected_epoch);
SAME_PLACE(Report, Report, seen_epoch);
SAME_PLACE(Report, Report, expected_tag);
SAME_PLACE(Report, Report, seen_tag);
SAME_PLACE(Report, Report, peer_state);
SAME_PLACE(Report, Report, peer_rank);
SAME_PLACE(Team, TeamArgument, control);
SAME_PLACE(Team, TeamArgument, report);
SAME_PLACE(Team, TeamArgument, half_bytes);
SAME_PLACE(Team, TeamArgument, timeout_ns);
SAME_PLACE(Team, TeamArgument, rank);
SAME_PLACE(Team, TeamArgument, world);
SAME_PLACE(Team, TeamArgument, tag);
SAME_PLACE(Peers, PeersArgument, of);
static_assert(sizeof(device::Control) == sizeof(on_host::Control) && sizeof(device::Report) == sizeof(on_host::Report));
static_assert(sizeof(device::Team) == sizeof(on_host::TeamArgument) &&
              sizeof(device::Peers) == sizeof(on_host::PeersArgument));

TEST_CASE("the host and the device count a team's ranks, flags and states alike") {
  CHECK(device::most_ranks == on_host::most_ranks);
  CHECK(device::most_flags == on_host::most_flags);
  CHECK(device::claim_words == on_host::claim_words);
  CHECK(static_cast<int>(device::Report::timed_out) == static_cast<int>(on_host::Report::timed_out));
  CHECK(static_cast<int>(device::Report::other_plan) == static_cast<int>(on_host::Report::other_plan));
  CHECK(static_cast<int>(device::Report::aborted) == static_cast<int>(on_host::Report::aborted));
  CHECK(static_cast<int>(device::Report::two_launches) == static_cast<int>(on_host::Report::two_launches));
  CHECK(static_cast<int>(device::Report::peer_failed) == static_cast<int>(on_host::Report::peer_failed));
}

}  // namespace
