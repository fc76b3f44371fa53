#include "emulator/report.hpp"

namespace emulator {
namespace {

std::string state_of(const Thread& thread) {
  if (thread.fiber.ended()) return "ended";
  return "waits for " + thread.wait->text();
}

}  // namespace

std::string name_of(const Block& block) {
  const std::string name = fmt::format("block ({}, {}, {})", block.index.x, block.index.y, block.index.z);
  return block.cluster.grid < 0 ? name : fmt::format("grid {}, {}", block.cluster.grid, name);
}

std::string who_waits(const Cluster& cluster) {
  std::string lines;
  for (const Block& block : cluster.blocks) {
    const std::size_t count = block.threads.size();
    for (std::size_t first = 0, end = 0; first < count; first = end) {
      const std::string here = state_of(block.threads[first]);
      for (end = first + 1; end < count && state_of(block.threads[end]) == here;) ++end;
      lines += fmt::format("\n  {}, threads {} to {}: {}", name_of(block), first, end - 1, here);
    }
  }
  return lines;
}

}  // namespace emulator
