// One .kiln file: an SQLite database with digests on each row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/keys.hpp"
#include "store/prune.hpp"
#include "store/record.hpp"

namespace kiln::store {

enum class Access : std::uint8_t { read_only, read_write };
/// When a file that is missing is made. At the first write, a program that only reads starts without the disk: until then it is empty.
enum class Creation : std::uint8_t { at_once, at_first_write };

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

/// Of one op, or of Kiln's own kernels when the name is empty.
struct OpBytes {
  std::string op;
  std::int64_t records = 0, record_bytes = 0;  // with their choices and candidates
  std::int64_t cubins = 0, cubin_bytes = 0;    // compressed
};

struct FileStats {
  std::int64_t records = 0, choices = 0, cubins = 0, candidates = 0, leases = 0, histogram_rows = 0, quarantined = 0;
  std::int64_t cubin_bytes = 0;        // compressed
  std::int64_t cubin_image_bytes = 0;  // uncompressed
  std::int64_t file_bytes = 0;
  std::int64_t free_bytes = 0;  // of those, in pages that compacting would give back
};

enum class Existing : std::uint8_t { keep, replace };

/// What one write transaction may do. Valid only while File::write_all runs.
class Writer {
 public:
  virtual ~Writer() = default;
  [[nodiscard]] virtual std::optional<Record> find_record(std::string_view key) = 0;  // with its candidates
  [[nodiscard]] virtual std::optional<PackedCubin> find_cubin(const manifest::Digest& key) = 0;
  /// Both replace what has the same key. Throw Error(bad_input) as File::put does.
  virtual void put(const Record& record) = 0;
  virtual void put(const PackedCubin& cubin) = 0;
  /// Writes the manifest over what is there by now.
  virtual void seal() = 0;
};

/// Thread-safe; a child of fork opens a connection of its own. A file of an earlier version is brought to the present one
/// when it may be written, else in memory. Writers begin IMMEDIATE and wait a bounded time for each
/// other. Reading throws for nothing that the file holds or the machine does: what cannot be read is a miss, and
/// counted. Writing throws Error(bad_input) for what may not be stored, such as a cost that is not a finite number or
/// text that is not UTF-8, and Error(io), Error(no_permission) or Error(bad_file) for what could not be; nothing of
/// that call is then in the file, or, where the machine failed after the commit itself, all of it.
class File {
 public:
  /// The path is taken literally. read_write creates the file (0600) and its folder (0700) when missing, and refuses a
  /// link and a file that others may write. Throws Error(bad_file) for a foreign file, another schema or a damaged one,
  /// Error(no_permission) or Error(io); the file's bytes are then unchanged.
  /// With `limit_bytes`, each write that takes the file past it prunes, least valuable rows first, down to nine tenths.
  /// `creation` is for read_write. At the first write: a folder in which the file could not be made is refused now; what else keeps it from
  /// being made, such as a full disk, is thrown by that write; and one that another process makes meanwhile is read.
  static std::unique_ptr<File> open(const std::filesystem::path& path, Access access, std::int64_t limit_bytes = 0,
                                    Creation creation = Creation::at_once);
  /// A database in memory, made at the first write: what serves when no overlay can be written.
  static std::unique_ptr<File> in_memory();
  virtual ~File() = default;

  /// `met`, when given, takes what this look-up met; counters() has it too.
  [[nodiscard]] virtual std::optional<Record> find_record(std::string_view key, bool with_candidates = false,
                                                          Counters* met = nullptr) = 0;
  [[nodiscard]] virtual std::optional<CubinRow> find_cubin(const manifest::Digest& key, Counters* met = nullptr) = 0;
  /// Newest source first; for inspection and for exports. Rows whose digest fails are skipped and counted.
  [[nodiscard]] virtual std::vector<Record> records(std::string_view op = {}, bool with_candidates = false) = 0;
  /// For transfers: at most `limit` rows whose key comes after the one given, by key, records with their candidates, the
  /// cubins' payloads checked; fewer than `limit` are the last ones. Unlike the look-ups these throw Error(io) or Error(bad_file),
  /// so that a failure is not taken for the end.
  [[nodiscard]] virtual std::vector<Record> records_after(std::string_view key, std::int64_t limit) = 0;
  [[nodiscard]] virtual std::vector<PackedCubin> cubins_after(std::span<const std::byte> key, std::int64_t limit) = 0;
  /// The file as it is at this moment, to read from only; null for one in memory, or that is not made yet. What other connections
  /// commit waits while it lives, so that it should not live for long; nor may it outlive this file, whose counters() it adds to at its end.
  /// Throws as open() does.
  [[nodiscard]] virtual std::unique_ptr<File> snapshot() = 0;
  /// All of them, by key. Throws as cubins_after does.
  [[nodiscard]] std::vector<CubinRow> cubins();
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
  /// One transaction around `work`; nothing of it is in the file when it throws.
  virtual void write_all(const std::function<void(Writer&)>& work) = 0;
  virtual bool remove_record(std::string_view key) = 0;

  /// True when this process now holds the right to tune `key`; a lease older than its term or of a dead process is
  /// taken.
  virtual bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) = 0;
  virtual void release_lease(std::string_view key, std::string_view holder) = 0;
  /// Who has the lease, in words such as "process 1234 (kiln), which is stopped"; empty when nobody has.
  [[nodiscard]] virtual std::string lease_holder(std::string_view key) = 0;
  /// While another process holds the file's lock, `stop` is asked: a wait ends a fifth of a second after it began once it says true.
  virtual void stop_waiting_when(std::function<bool()> stop) = 0;

  virtual void add_to_histogram(const std::vector<HistogramRow>& rows) = 0;
  [[nodiscard]] virtual std::vector<HistogramRow> histogram() = 0;

  /// How often rows served, as look-ups of this and earlier processes counted it, and what add_to_usage added. This
  /// process's look-ups are counted in memory and written by flush_usage, and at the end.
  [[nodiscard]] virtual std::vector<Usage> usage() = 0;
  virtual void add_to_usage(const std::vector<Usage>& rows) = 0;
  /// Like a look-up's count: kept in memory until flush_usage. `last_use` is the time of that.
  virtual void note_usage(std::vector<Usage> rows) = 0;
  virtual void flush_usage() = 0;

  /// One transaction; the file's length stays until it is compacted.
  virtual PruneReport prune(const PruneRule& rule) = 0;
  /// Gives free pages back to the file system. Needs as much free space again as the file takes.
  virtual void compact() = 0;

  [[nodiscard]] virtual FileStats stats() = 0;
  [[nodiscard]] virtual std::vector<OpBytes> bytes_by_op() = 0;
  [[nodiscard]] virtual Counters counters() const = 0;
  /// Of a file that is open for reading only: the keys whose signatures over its content were found good when it was
  /// opened. A cubin that was not in it then is not served since.
  [[nodiscard]] virtual const std::vector<PublicKey>& signers() const noexcept = 0;
  [[nodiscard]] virtual const std::filesystem::path& path() const noexcept = 0;
};

}  // namespace kiln::store
