// Notes about signatures and machine code that a written file has no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/session.hpp"
#include "manifest/key.hpp"

namespace kiln::cli {

/// The machine code of a file that a command may replace.
class FormerCode {
 public:
  /// Reads which cubins the file holds; none where it does not exist or cannot be read.
  explicit FormerCode(const std::string& path);
  /// For use once the file was replaced: notes how many of these cubins it lacks now. Returns their number.
  [[nodiscard]] std::int64_t say_lost(const Globals& globals) const;

 private:
  std::string path_;
  std::vector<manifest::Digest> keys_;
};

/// Returns the number of signatures of a file; 0 for text, and for a file that is missing or cannot be read.
std::size_t signatures_of(const std::string& path);

/// Notes the loss of what `path` had before it was written, or of what its inputs had. Silent when `lost` is 0.
void say_unsigned(const Globals& globals, const std::string& path, std::size_t lost);

}  // namespace kiln::cli
