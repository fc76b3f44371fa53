#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <csignal>
#include <cstdio>

#include "page/browser.hpp"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (kiln::testing::chromium().empty()) {
    std::puts(
        "Every test of the report's page in a browser is skipped: no chromium is on the path, and KILN_CHROMIUM names none.");
    constexpr int counts_as_skipped = 77;
    return counts_as_skipped;
  }
  return doctest::Context(argc, argv).run();
}
