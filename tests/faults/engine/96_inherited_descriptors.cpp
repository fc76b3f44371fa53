// The caller has descriptors that are not close-on-exec: a worker keeps none of them open.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "faults/engine/workers.hpp"
#include "process/child.hpp"

using namespace kiln;
using namespace kiln::faults;

TEST_CASE("fault 96: a worker inherits no descriptor of its owner beside its socket and the standard ones") {
  const OwnWorker worker;
  std::array<int, 2> pipe_ends{};
  REQUIRE(pipe2(pipe_ends.data(), 0) == 0);  // NOLINT(android-cloexec-pipe2): as callers make them
  const int high = fcntl(pipe_ends[1], F_DUPFD, 200);
  REQUIRE(high >= 200);
  const process::Child child(worker.path);
  close(pipe_ends[1]);
  close(high);
  pollfd reader{pipe_ends[0], POLLIN, 0};
  CHECK(poll(&reader, 1, 0) == 1);  // its end, while the worker lives
  CHECK((reader.revents & POLLHUP) != 0);
  close(pipe_ends[0]);
  const auto process = processes_of(worker.path);
  REQUIRE(process.size() == 1);
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(process.front()) + "/fd"))
    CHECK(std::stoi(entry.path().filename().string()) <= STDERR_FILENO);
  tally(96, 2, "descriptors that a worker might inherit");
}
