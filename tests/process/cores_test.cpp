#include "process/cores.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

namespace fs = std::filesystem;

TEST_CASE("a process that may run on one processor uses one") {
  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int each = 0; CPU_COUNT(&one) == 0; ++each) {
    if (CPU_ISSET(each, &before)) CPU_SET(each, &one);
  }
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const int cores = kiln::process::usable_cores();
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(cores == 1);
}

TEST_CASE("the least processor time of a control group and of those around it counts") {
  const fs::path root = fs::temp_directory_path() / ("kiln_cores_" + std::to_string(::getpid()));
  const auto allow = [&](const fs::path& group, const std::string& text) {
    fs::create_directories(root / group);
    std::ofstream(root / group / "cpu.max") << text;
  };
  const auto cores = [&](const std::string& membership) { return kiln::process::cores_of_groups(membership, root); };
  CHECK(cores("0::/pod/box\n") == 0);  // no group says anything
  allow("pod/box", "max 100000\n");
  CHECK(cores("0::/pod/box\n") == 0);
  allow("pod", "250000 100000\n");
  CHECK(cores("0::/pod/box\n") == 3);
  CHECK(cores("1:cpu:/elsewhere\n0::/pod/box\n") == 3);
  allow("pod/box", "20000 100000\n");
  CHECK(cores("0::/pod/box\n") == 1);
  CHECK(cores("0::/other\n") == 0);
  CHECK(cores("1:cpu:/pod/box\n") == 0);  // of version 1
  CHECK(cores("") == 0);
  allow("", "400000 100000\n");  // as a container sees its own
  CHECK(cores("0::/\n") == 4);
  allow("pod/box", "nonsense");
  CHECK(cores("0::/pod/box\n") == 3);
  fs::remove_all(root);
}

}  // namespace
