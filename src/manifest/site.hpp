// Where an op is asked, and what is asked of it there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kiln/options.hpp"
#include "manifest/problem.hpp"

namespace kiln::manifest {

using kiln::Regime;
std::string_view to_string(Regime regime) noexcept;  // "cold", "hot"

struct Bucket;

/// An op on a device, in a regime. Both outlive it.
struct Site {
  Site() = default;  // no op and no device: to be assigned to
  Site(const Op& of, const DeviceFacts& on, Regime in = Regime::cold_l2) noexcept : op(&of), device(&on), regime(in) {}
  /// The bucket of a legal problem.
  [[nodiscard]] Bucket bucket_of(const Problem& problem) const noexcept;

  const Op* op = nullptr;
  const DeviceFacts* device = nullptr;
  Regime regime = Regime::cold_l2;
};

/// The problems that share a record.
struct Bucket : Site {
  Bucket() = default;
  Bucket(const Site& site, const Problem& upper_edges) noexcept : Site(site), edge(upper_edges) {}
  /// "rms_norm@1 | rows=pow2:512 cols=exact:4096 | dtype=bf16 | sm_90/mp132/... | cold"
  [[nodiscard]] std::string key() const;
  /// As messages name it: "rms_norm rows=512 cols=4096 dtype=bf16".
  [[nodiscard]] std::string text() const;

  Problem edge;  // the upper edge of each axis
};

/// A frame for the op alone: axes, types and choices of the problem, device facts. Run-time integers take their
/// defaults where they have one and 0 elsewhere; reals are 0.
std::vector<std::int64_t> frame_of(const Site& site, const Problem& problem);

}  // namespace kiln::manifest
