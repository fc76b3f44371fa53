// The rule about outputs that exist: a file is replaced by its own kind alone, and by one that loses none of its
// records.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "store/file.hpp"

namespace kiln::store {

enum class RecordFormat : std::uint8_t { sealed, text };

/// Throws Error(bad_input): `target` exists and is not replaced, because it `is` something else; and what to do.
[[noreturn]] void refuse_to_replace(const std::filesystem::path& target, std::string_view is);

/// Returns the keys of the records that replacing `target` would overwrite. Empty when it is missing or an empty file.
/// Throws Error(bad_input) when it is no regular file, or no file of records in this format that can be read. An
/// unsealed .kiln file is an overlay, or was changed after it was written, so it is refused too.
std::set<std::string> replaced_keys(const std::filesystem::path& target, RecordFormat format);

/// Throws Error(bad_input) when one of replaced_keys(target, format) is not among `keys`.
void require_nothing_lost(const std::filesystem::path& target, RecordFormat format, const std::set<std::string>& keys);

/// Keeps other processes from replacing or changing a file between the look at it and the rename that replaces it.
/// Locks the file's folder, as each replacing command does, and a file of records as its writers do.
class HeldTarget {
 public:
  /// Throws Error(io) when another process keeps its lock for half a minute.
  HeldTarget(const std::filesystem::path& target, RecordFormat format);
  ~HeldTarget();
  HeldTarget(const HeldTarget&) = delete;
  HeldTarget& operator=(const HeldTarget&) = delete;
  /// How to publish the new file: one that was not there may have come since, from a program that takes no lock.
  [[nodiscard]] Existing existing() const noexcept { return existing_; }

 private:
  struct Locks;
  std::unique_ptr<Locks> locks_;
  Existing existing_ = Existing::keep;
};

}  // namespace kiln::store
