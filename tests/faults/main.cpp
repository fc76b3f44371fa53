#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "faults/skip.hpp"

int main(int argc, char** argv) { return kiln::faults::exit_status(doctest::Context(argc, argv).run()); }
