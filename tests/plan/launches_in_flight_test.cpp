#include "plan/launches_in_flight.hpp"

#include <doctest/doctest.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

using kiln::plan::LaunchesInFlight;

namespace {

long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

TEST_CASE("barriers are registered for when launches are first waited for, not when an engine begins") {
  const long offered = membarrier(MEMBARRIER_CMD_QUERY);
  if (offered < 0 || (offered & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return;
  LaunchesInFlight launches;
  CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == -1);
  CHECK(launches.wait());
  CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0);
}
