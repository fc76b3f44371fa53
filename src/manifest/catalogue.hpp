// The ops that can be found, each of the library's own read when it is first asked for.
#pragma once

#include <mutex>
#include <optional>

#include "manifest/op.hpp"

namespace kiln::manifest {

/// Ops in one array, in load_ops's order. A folder on disk is read at once, so that what is wrong there is said at once; a built-in
/// manifest, which the library's tests have read, when its op is first asked for: a program uses few of them, and each costs its start
/// half a millisecond. Thread-safe; an op that was read stays where it is and as it is.
class Catalogue {
 public:
  /// Throws as load_ops does.
  explicit Catalogue(std::span<const std::filesystem::path> paths);

  [[nodiscard]] std::size_t size() const noexcept { return ops_.size(); }
  /// Without reading it.
  [[nodiscard]] const std::string& name(std::size_t index) const noexcept { return names_[index]; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept;
  /// Read now, if it was not.
  [[nodiscard]] const Op& operator[](std::size_t index) const;
  /// Every one, read.
  [[nodiscard]] std::span<const Op> all() const;
  /// As far as they were read, at their indices: for what knows of an op by having been given it.
  [[nodiscard]] std::span<const Op> read_so_far() const noexcept { return ops_; }

 private:
  std::vector<std::string> names_;
  mutable std::vector<Op> ops_;               // never resized
  std::size_t first_built_in_ = 0;            // those before it are read
  mutable std::vector<std::once_flag> read_;  // of those from it on
};

}  // namespace kiln::manifest
