#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <string>

#include "cuda/device.hpp"
#include "kiln/error.hpp"

namespace {

constexpr int skipped = 77;  // what ctest is told to count as skipped

/// Why nothing can run here, or an empty string.
std::string why_not() {
  try {
    return kiln::cuda::devices().empty() ? "the driver sees no device" : "";
  } catch (const kiln::Error& error) {
    return error.what();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const std::string reason = why_not(); !reason.empty()) {
    std::printf("Every GPU test is skipped: %s\n", reason.c_str());
    const std::array<const char*, 2> count = {argv[0], "--count"};
    doctest::Context(static_cast<int>(count.size()), count.data()).run();  // prints how many there are
    return skipped;
  }
  return doctest::Context(argc, argv).run();
}
