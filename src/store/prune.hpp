// Which rows a prune removes, and in which order.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "store/record.hpp"

namespace kiln::store {

struct PruneRule {
  /// Remove each record and each cubin for which they are true; empty: none. Called once for each record, in the order
  /// of keys, then for each cubin.
  std::function<bool(const Record&)> record;
  std::function<bool(const PackedCubin&)> cubin;  // without its image
  /// Removes rows whose last recorded use is longer ago than this.
  std::optional<std::int64_t> unused_seconds;
  /// Then removes rows, least valuable first, until the used pages take at most this. First the counts of launches, the
  /// smallest first, until they take a tenth of this; then the candidates of each record, then cubins by saved compile
  /// time per byte, those of `is_relied_on` last. When no cubin is left, the other counts, and then records by saved
  /// kernel time per byte. Frequent and recent use counts as more time saved.
  std::optional<std::int64_t> max_bytes;
  /// Throws Error(bad_input) instead of removing anything when max_bytes cannot be reached.
  bool must_reach = false;
  /// The present time in Unix seconds. A later last use counts as now.
  std::int64_t now = 0;
  /// For max_bytes alone: keeps records and cubins with a larger id, which were just written.
  std::int64_t newest_record = std::numeric_limits<std::int64_t>::max();
  std::int64_t newest_cubin = std::numeric_limits<std::int64_t>::max();
  std::function<bool(const manifest::Digest&)> is_relied_on;  // by the key of a cubin; empty: none is
  /// Reports what would be removed, and changes nothing.
  bool dry_run = false;
};

struct PruneReport {
  std::int64_t records = 0, candidates = 0, cubins = 0;
  std::int64_t counts = 0;  // of launches
  std::int64_t bytes = 0;   // in pages that became free
};

}  // namespace kiln::store
