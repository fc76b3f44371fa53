// How a fault names blocks and threads.
#pragma once

#include <string>

#include "emulator/machine.hpp"

namespace emulator {

std::string name_of(const Block& block);
/// A line for neighbours that wait for the same thing together, or have ended.
std::string who_waits(const Cluster& cluster);

}  // namespace emulator
