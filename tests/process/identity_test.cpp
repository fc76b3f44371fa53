#include "process/identity.hpp"

#include <doctest/doctest.h>

#include <filesystem>

#include "process/child.hpp"

using namespace kiln::process;
namespace fs = std::filesystem;

TEST_CASE("a worker says in its file what it was built of, and a file without that says nothing") {
  CHECK(identity_of(KILN_WORKER_PROGRAM) == identity());
  CHECK(identity_of("/proc/self/exe") == identity());
  CHECK(identity().starts_with(KILN_VERSION " "));
  CHECK(identity().size() == sizeof KILN_VERSION + 16);
  CHECK(identity_of("/bin/sh").empty());
  CHECK(identity_of(__FILE__).empty());
  CHECK(identity_of("/nonexistent").empty());
  CHECK(identity_of("/").empty());
}

TEST_CASE("a worker is looked for beside the library before it is beside the program") {
  const std::vector<fs::path> places = worker_places("/site/kiln/libkiln.so.0", "/usr/bin/python3");
  REQUIRE(places.size() == 5);
  CHECK(places[0] == "/site/kiln/kiln-worker");
  CHECK(places[1] == "/site/kiln/kiln-0/kiln-worker");
  CHECK(places[2] == "/usr/bin/kiln-worker");
  CHECK(places[3].string().starts_with("/usr/lib"));  // where a package has it
  CHECK(places[3].string().ends_with("/kiln-0/kiln-worker"));
  CHECK(places[4].is_absolute());
}
