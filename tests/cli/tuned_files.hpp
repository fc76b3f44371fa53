// Workloads and files of one tuned bucket, for the commands that say what a file lacks.
#pragma once

#include <string>

#include "command.hpp"
#include "tuned_rows.hpp"

namespace kiln::testing {

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string workload_of(const Command& command, const std::string& rows) {
  return command.path("w.toml", "[[workload]]\nop = \"rms_norm\"\naxes = { rows = " + rows +
                                    ", cols = 4096 }\ntypes = { dtype = \"bf16\" }\n");
}

/// A file of one tuned bucket, rows 257 to 512.
inline std::string tuned_file(const Command& command, const std::string& name, bool with_code) {
  TunedRows rows = tuned({"rows=512", "cols=4096", "dtype=bf16"});
  if (!with_code) rows.cubins.clear();
  put(*store::File::open(command.path(name), store::Access::read_write), rows);
  return command.path(name);
}

}  // namespace kiln::testing
