// The ops that can be found. A built-in op's manifest is read when the op is first asked for.
#pragma once

#include <mutex>
#include <optional>

#include "manifest/op.hpp"

namespace kiln::manifest {

/// Ops in one array, in load_ops's order. Folders on disk are read by the constructor, so that their errors are reported at once.
/// Built-in manifests are read on first use: each takes half a millisecond, and a program uses few. Thread-safe. An op that was read
/// neither moves nor changes.
class Catalogue {
 public:
  /// Throws as load_ops does.
  explicit Catalogue(std::span<const std::filesystem::path> paths);

  [[nodiscard]] std::size_t size() const noexcept { return ops_.size(); }
  /// Does not read the op.
  [[nodiscard]] const std::string& name(std::size_t index) const noexcept { return names_[index]; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept;
  /// Reads the op on first use.
  [[nodiscard]] const Op& operator[](std::size_t index) const;
  /// Reads every op.
  [[nodiscard]] std::span<const Op> all() const;
  /// Reads nothing: an op that was not read yet is empty. For callers whose op was read before.
  [[nodiscard]] std::span<const Op> read_so_far() const noexcept { return ops_; }

 private:
  std::vector<std::string> names_;
  mutable std::vector<Op> ops_;               // never resized
  std::size_t first_built_in_ = 0;            // the ops before it come from folders
  mutable std::vector<std::once_flag> read_;  // one for each built-in op
};

}  // namespace kiln::manifest
