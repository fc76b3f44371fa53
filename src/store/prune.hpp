// What may go from a file, and in which order.
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
  /// A record for which this is true goes, and so does a cubin; nothing: none goes for its own sake. Every record is asked
  /// about, once, by key, before any cubin is.
  std::function<bool(const Record&)> record;
  std::function<bool(const PackedCubin&)> cubin;  // without its image
  /// Rows that have served nothing for longer than this, as far as the file knows, go.
  std::optional<std::int64_t> unused_seconds;
  /// Then rows go, least valuable first, until the file's used pages take no more than this: the candidates of each record, which
  /// save no time; then cubins by the compile time that they save a byte; and only when no cubin is left, records by the kernel
  /// time that they save a byte. What served often and lately saves more.
  std::optional<std::int64_t> max_bytes;
  /// The time that ages are counted from, Unix seconds. A last use after it counts as now.
  std::int64_t now = 0;
  /// Rows of the size limit alone: cubins and records with a larger id were just written and stay.
  std::int64_t newest_record = std::numeric_limits<std::int64_t>::max();
  std::int64_t newest_cubin = std::numeric_limits<std::int64_t>::max();
  /// Says what would go, and changes nothing.
  bool dry_run = false;
};

struct PruneReport {
  std::int64_t records = 0, candidates = 0, cubins = 0;
  std::int64_t bytes = 0;  // in pages that are free now and were not before
};

}  // namespace kiln::store
