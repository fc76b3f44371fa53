#include <doctest/doctest.h>

#include "emulator/cuda.hpp"
// What kernels include comes after what they take for built in.
#include "common/philox.cuh"

namespace {

TEST_CASE("Philox-4x32-10 gives what Random123 publishes as its known answers") {
  const auto gives = [](uint4 counter, unsigned key_low, unsigned key_high, uint4 wanted) {
    const uint4 got = kiln::philox_4x32_10(counter, key_low, key_high);
    return got.x == wanted.x && got.y == wanted.y && got.z == wanted.z && got.w == wanted.w;
  };
  constexpr unsigned ones = 0xffffffff;
  CHECK(gives({0, 0, 0, 0}, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  CHECK(gives({ones, ones, ones, ones}, ones, ones, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK(gives({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0,
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
