// One .kiln file: an SQLite database with digests on each row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/record.hpp"

namespace kiln::store {

enum class Access : std::uint8_t { read_only, read_write };

/// What a look-up met besides the answer; counted by reason, never silent.
struct Counters {
  std::int64_t quarantined = 0;    // rows whose digest, or whose payload, did not hold
  std::int64_t read_failures = 0;  // look-ups that the file system, or another process's lock, refused
  std::int64_t write_failures = 0;
};

struct HistogramRow {
  std::string op;
  std::string problem;  // "rows=100 cols=4096 dtype=bf16", real sizes
  std::int64_t launches = 0;
};

struct FileStats {
  std::int64_t records = 0, cubins = 0, candidates = 0, leases = 0, histogram_rows = 0;
  std::int64_t cubin_bytes = 0;        // compressed
  std::int64_t cubin_image_bytes = 0;  // uncompressed
  std::int64_t file_bytes = 0;
};

enum class Existing : std::uint8_t { keep, replace };

/// Thread-safe; a child of fork opens a connection of its own. Writers begin IMMEDIATE and wait a bounded time for each
/// other. Reading throws for nothing that the file holds or the machine does: what cannot be read is a miss, and
/// counted. Writing throws Error(bad_input) for what may not be stored, such as a cost that is not a finite number or
/// text that is not UTF-8, and Error(io), Error(no_permission) or Error(bad_file) for what could not be; nothing of
/// that call is then in the file.
class File {
 public:
  /// The path is taken literally. read_write creates the file (0600) and its folder (0700) when missing, and refuses a
  /// link and a file that others may write. Throws Error(bad_file) for a foreign file, another schema or a damaged one,
  /// Error(no_permission) or Error(io); the file's bytes are then unchanged.
  static std::unique_ptr<File> open(const std::filesystem::path& path, Access access);
  /// A database in memory: what serves when no overlay can be written.
  static std::unique_ptr<File> in_memory();
  virtual ~File() = default;

  [[nodiscard]] virtual std::optional<Record> find_record(std::string_view key, bool with_candidates = false) = 0;
  [[nodiscard]] virtual std::optional<CubinRow> find_cubin(const spec::Digest& key) = 0;
  /// Newest source first; for inspection and for exports. Rows whose digest fails are skipped and counted.
  [[nodiscard]] virtual std::vector<Record> records(std::string_view op = {}, bool with_candidates = false) = 0;
  [[nodiscard]] virtual std::vector<CubinRow> cubins() = 0;
  /// The distinct compilers of its cubins: what a machine without NVRTC tries, one after the other, to form a cubin
  /// key.
  [[nodiscard]] virtual std::vector<std::string> compilers() = 0;

  /// One transaction: the record replaces any of the same key; its candidates likewise; the cubin is kept if already
  /// there.
  void put(const Record& record, const CubinRow* cubin);
  void put_cubin(const CubinRow& cubin);
  /// The same for many, in one transaction; `existing` says what becomes of a cubin that is already there.
  virtual void put_all(std::span<const Record> records, std::span<const CubinRow> cubins,
                       Existing existing = Existing::keep) = 0;
  virtual bool remove_record(std::string_view key) = 0;

  /// True when this process now holds the right to tune `key`; a lease older than its term or of a dead process is
  /// taken.
  virtual bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) = 0;
  virtual void release_lease(std::string_view key, std::string_view holder) = 0;

  virtual void add_to_histogram(const std::vector<HistogramRow>& rows) = 0;
  [[nodiscard]] virtual std::vector<HistogramRow> histogram() = 0;

  [[nodiscard]] virtual FileStats stats() = 0;
  [[nodiscard]] virtual Counters counters() const = 0;
  [[nodiscard]] virtual const std::filesystem::path& path() const noexcept = 0;
};

}  // namespace kiln::store
