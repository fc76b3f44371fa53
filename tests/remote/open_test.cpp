// The back end that an address names.
#include "remote/open.hpp"

#include <doctest/doctest.h>

#include <string>

#include "kiln/error.hpp"

namespace kiln::remote {
namespace {

TEST_CASE("an address of a Redis server opens its client, or says that this build has none") {
  for (const char* address : {"redis://host", "rediss://host", "unix:///run/socket"}) {
    CAPTURE(address);
#ifdef KILN_REDIS
    CHECK(open(address)->name() == "the Redis server");
#else
    CHECK_THROWS_WITH_AS((void)open(address),
                         "the shared store is a Redis server, and this build of Kiln has no client of Redis; build "
                         "Kiln where libhiredis-dev is installed, or share a folder",
                         Error);
#endif
  }
}

}  // namespace
}  // namespace kiln::remote
