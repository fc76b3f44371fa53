// One cold start, in a process that was made for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kiln/options.hpp"

namespace kiln::bench {

/// Under which a child tells them, from when its tensors are there until its first launch.
constexpr std::string_view page_faults = "page_faults";

/// What the child does once it has a context and the tensors.
enum class Work : std::uint8_t {
  nothing,         // the context alone
  cubin_by_hand,   // a plain kernel from a file of machine code
  nvrtc_by_hand,   // the same through NVRTC
  kiln,            // Op::launch, which must be a hit
  kiln_compiling,  // Op::launch where no file holds anything
};

struct ColdStart {
  Work work = Work::nothing;
  std::int64_t began_ns = 0;  // now_ns() of the parent just before it asked for this process
  std::vector<std::filesystem::path> bases;
  std::filesystem::path overlay;  // empty: in memory
  std::filesystem::path cubin;    // of cubin_by_hand
};

/// Prints its stages (stages.hpp). Throws what went wrong, a wrong result included.
void run_cold_start(const ColdStart& start);

}  // namespace kiln::bench
