#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

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
  doctest::Context context(argc, argv);
  if (const std::string reason = why_not(); !reason.empty()) {
    context.setOption("count", true);
    std::printf("GPU tests skipped, every one: %s\n", reason.c_str());
    context.run();  // prints how many there are
    return skipped;
  }
  return context.run();
}
