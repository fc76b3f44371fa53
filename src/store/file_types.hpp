// What is asked of a .kiln file, and what it answers beside rows.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "store/record.hpp"

namespace kiln::store {

enum class Access : std::uint8_t { read_only, read_write };
/// When a missing file is created. With at_first_write the file is empty until then, and a program that only reads
/// never creates one.
enum class Creation : std::uint8_t { at_once, at_first_write };

/// Failures, which look-ups count instead of throwing.
struct Counters {
  std::int64_t quarantined = 0;    // rows whose digest or payload failed its check
  std::int64_t read_failures = 0;  // look-ups that failed in the file system or waited too long for another's lock
  std::int64_t write_failures = 0;
};

struct HistogramRow {
  std::string op;
  std::string problem;  // "rows=100 cols=4096 dtype=bf16", real sizes
  std::int64_t launches = 0;
};

/// Returns the sum of two counts, or the greatest number where it is past that.
constexpr std::int64_t capped_sum(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

struct OpBytes {
  std::string op;                              // empty for Kiln's own kernels
  std::int64_t records = 0, record_bytes = 0;  // with their choices and candidates
  std::int64_t cubins = 0, cubin_bytes = 0;    // compressed
};

struct FileStats {
  std::int64_t records = 0, choices = 0, cubins = 0, candidates = 0, leases = 0, histogram_rows = 0, quarantined = 0;
  std::int64_t cubin_bytes = 0;        // compressed
  std::int64_t cubin_image_bytes = 0;  // uncompressed
  std::int64_t file_bytes = 0;
  std::int64_t free_bytes = 0;  // the part of file_bytes that compact() would free
};

enum class Existing : std::uint8_t { keep, replace };

/// One write transaction. Valid only while File::write_all runs.
class Writer {
 public:
  virtual ~Writer() = default;
  [[nodiscard]] virtual std::optional<Record> find_record(std::string_view key) = 0;  // with candidates
  [[nodiscard]] virtual std::optional<PackedCubin> find_cubin(const manifest::Digest& key) = 0;
  /// Both replace the row of the same key, if any. Throw Error(bad_input) as File::put does.
  virtual void put(const Record& record) = 0;
  virtual void put(const PackedCubin& cubin) = 0;
  /// Writes the manifest over all rows written so far.
  virtual void seal() = 0;
};

}  // namespace kiln::store
