// Link-local addresses: their scope is the number of an interface of one host.
#include "faults/engine/fixture.hpp"
#include "team/endpoint.hpp"

namespace kiln::faults {

TEST_CASE("fault 97: a team's address that is link-local is refused by its reason, with its scope and without") {
  std::int64_t cases = 0;
  for (const char* address : {"[fe80::1%lo]:29600", "[fe80::1]:29600", "[FE80::1%1]:29600", "[febf:ff::2%eth0]:1"}) {
    const Error refused = error_of([&] { team::parse_address(address); });
    CHECK(refused.kind() == ErrorKind::bad_input);
    CHECK_MESSAGE(contains(refused.what(), address), refused.what());
    CHECK_MESSAGE(contains(refused.what(), "link-local"), refused.what());
    ++cases;
  }
  const team::Resolved resolved = team::resolve({"fe80::1", 29600});  // as a name may lead there
  CHECK(resolved.endpoints.empty());
  CHECK(contains(resolved.why_none, "link-local"));
  for (const char* address : {"[fd00::1]:29600", "[fec0::1]:29600", "[::1]:29600", "169.254.1.1:29600"}) {
    CHECK_NOTHROW(team::parse_address(address));
    CHECK(team::numeric(team::parse_address(address)).has_value());
    ++cases;
  }
  tally(97, ++cases, "link-local addresses");
}

}  // namespace kiln::faults
