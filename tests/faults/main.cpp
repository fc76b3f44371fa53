#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "faults/skip.hpp"

namespace {

int skipped = 0;

}  // namespace

void kiln::faults::skip(std::string_view why) {
  ++skipped;
  std::printf("skipped: %.*s\n", static_cast<int>(why.size()), why.data());
}

int main(int argc, char** argv) {
  const int status = doctest::Context(argc, argv).run();
  constexpr int counts_as_skipped = 77;
  return status == 0 && skipped > 0 ? counts_as_skipped : status;
}
