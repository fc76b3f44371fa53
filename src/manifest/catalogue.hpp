// The ops that can be found. A built-in op's manifest is read when the op is first asked for.
#pragma once

#include <mutex>
#include <optional>

#include "manifest/op.hpp"

namespace kiln::manifest {

/// An op's folder on disk that does not hold. Later ops of its name are hidden as by any other op.
struct RefusedOp {
  std::string name;
  std::string why;  // "FILE:LINE: found X, expected Y"
};

/// Ops in one array, in load_ops's order. Folders on disk are read by the constructor, so that their errors are known
/// at once. Built-in manifests are read on first use: each takes half a millisecond, and a program uses few.
/// Thread-safe. An op that was read neither moves nor changes.
class Catalogue {
 public:
  /// Leaves out ops that do not hold; refused() tells which. Throws Error(io) for a folder of ops that cannot be
  /// listed.
  explicit Catalogue(std::span<const std::filesystem::path> paths);
  /// Holds these ops alone.
  static Catalogue of(std::vector<Op> ops);

  [[nodiscard]] std::size_t size() const noexcept { return ops_.size(); }
  /// Does not read the op.
  [[nodiscard]] const std::string& name(std::size_t index) const noexcept { return names_[index]; }
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] std::optional<std::size_t> find(std::string_view name) const noexcept;
  /// As find. Throws Error(bad_manifest) for a refused op, and Error(bad_input) for an unknown one, listing those that
  /// there are.
  [[nodiscard]] std::size_t index_of(std::string_view name) const;
  [[nodiscard]] std::span<const RefusedOp> refused() const noexcept { return refused_; }
  /// Reads the op on first use.
  [[nodiscard]] const Op& operator[](std::size_t index) const;
  /// Returns null for an unknown or refused op. Reads it on first use.
  [[nodiscard]] const Op* op(std::string_view name) const;
  /// Reads every op.
  [[nodiscard]] std::span<const Op> all() const;
  /// Reads nothing: an op that was not read yet is empty. For callers whose op was read before.
  [[nodiscard]] std::span<const Op> read_so_far() const noexcept { return ops_; }

 private:
  struct Given {};
  Catalogue(Given given, std::vector<Op> ops);

  std::vector<std::string> names_;
  std::vector<RefusedOp> refused_;
  mutable std::vector<Op> ops_;               // never resized
  std::size_t first_built_in_ = 0;            // the ops before it come from folders
  mutable std::vector<std::once_flag> read_;  // one for each built-in op
};

/// Throws Error(bad_manifest): "the op 'scale' is refused: FILE:LINE: ..."
[[noreturn]] void refuse(const RefusedOp& op);

}  // namespace kiln::manifest
