#include "kiln/arguments.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

namespace {

using kiln::Arguments;
using kiln::RuntimeId;
using Kind = RuntimeId::Kind;

TEST_CASE("a run-time value takes a number of any arithmetic type, and keeps it within 64 bits") {
  constexpr auto highest = std::numeric_limits<std::int64_t>::max();
  const auto stored = [](auto number) { return Arguments{}.set(RuntimeId{0, Kind::integer}, number).runtime[0]; };
  CHECK(stored(5) == 5);
  CHECK(stored(-5) == -5);
  CHECK(stored(5U) == 5);
  CHECK(stored(-5LL) == -5);
  CHECK(stored(std::int8_t{-5}) == -5);
  CHECK(stored(true) == 1);
  CHECK(stored(std::numeric_limits<std::uint64_t>::max()) == highest);
  CHECK(stored(2.9F) == 2);
  CHECK(stored(1e300) == highest);
  const auto as_real = [](auto number) { return Arguments{}.set(RuntimeId{0, Kind::real64}, number).runtime[0]; };
  CHECK(as_real(5) == as_real(5.0));
  CHECK(as_real(5U) == as_real(5.0));
}

}  // namespace
