// One .kiln file: an SQLite database with digests on each row.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/file_types.hpp"
#include "store/keys.hpp"
#include "store/prune.hpp"
#include "store/record.hpp"

namespace kiln::store {

/// Thread-safe; a forked child opens its own connection. A file of an earlier version is migrated, in memory where it
/// is read-only. A look-up never throws: a row or file that cannot be read is a miss, which counters() counts. A write
/// waits 5 s at most for other writers. It throws Error(bad_input) for a value that may not be stored, such as an
/// infinite cost or text that is not UTF-8. It throws Error(io), Error(no_permission) or Error(bad_file) when writing
/// fails. The file then holds nothing of that call, or all of it when the machine failed after the commit.
class File {
 public:
  /// With read_write, creates a missing file (mode 0600) and folder (0700), and refuses a link or a file that others
  /// may write. Throws Error(bad_file) for a file that is damaged, foreign or of another schema, Error(no_permission)
  /// or Error(io); the file's bytes are then unchanged. A write that takes the file past `limit_bytes` (0: no limit)
  /// prunes it to nine tenths, least valuable rows first. With at_first_write, throws now if the folder cannot be
  /// written. Other failures, such as a full disk, are thrown by the first write. A file that another process creates
  /// meanwhile is read. One that another process keeps locked, or for which no descriptor is left, is opened by a later
  /// look-up or write, see why_not_open().
  static std::unique_ptr<File> open(const std::filesystem::path& path, Access access, std::int64_t limit_bytes = 0,
                                    Creation creation = Creation::at_once);
  /// Returns a database in memory, for a process whose overlay cannot be written.
  static std::unique_ptr<File> in_memory();
  virtual ~File() = default;

  /// Both add this look-up's failures to `met`, if given, and to counters().
  [[nodiscard]] virtual std::optional<Record> find_record(std::string_view key, bool with_candidates = false,
                                                          Counters* met = nullptr) = 0;
  [[nodiscard]] virtual std::optional<CubinRow> find_cubin(const manifest::Digest& key, Counters* met = nullptr) = 0;
  /// Whether there is a row of the key. Reads no machine code, so the row is not checked. False where the file cannot
  /// be read.
  [[nodiscard]] virtual bool has_cubin(const manifest::Digest& key) = 0;
  /// Returns the records of `op` (empty: all), the last tuned first. Rows whose digest fails are skipped and counted.
  [[nodiscard]] virtual std::vector<Record> records(std::string_view op = {}, bool with_candidates = false) = 0;
  /// Returns records(op), which it keeps and reads again only once the file has changed.
  [[nodiscard]] virtual SharedRecords kept_records(std::string_view op) = 0;
  /// Both return up to `limit` rows with greater keys, in the order of their keys; fewer than `limit` means the end.
  /// Records come with their candidates. Cubins are unpacked as a check. Throw Error(io) or Error(bad_file), unlike the
  /// look-ups, so that a failure is not mistaken for the end.
  [[nodiscard]] virtual std::vector<Record> records_after(std::string_view key, std::int64_t limit) = 0;
  [[nodiscard]] virtual std::vector<PackedCubin> cubins_after(std::span<const std::byte> key, std::int64_t limit) = 0;
  /// Returns a read-only view of the file at this moment. Null for a file in memory, or not created yet. Commits of
  /// other connections wait while the snapshot lives, so keep it briefly. It must not outlive this file, to whose
  /// counters() it adds its own. Throws as open() does.
  [[nodiscard]] virtual std::unique_ptr<File> snapshot() = 0;
  /// Returns all cubins in the order of their keys. Throws as cubins_after does.
  [[nodiscard]] std::vector<CubinRow> cubins();
  /// Returns how the file is damaged beyond single rows, so that a copy of it would lack some: pages that do not hang
  /// together, or an index that does not lead to every row. Empty if it is not. Reads every page. Throws as
  /// cubins_after does.
  [[nodiscard]] virtual std::string damage() = 0;
  /// Throws Error(bad_file) "'PATH' cannot be DOING: why" if damage() finds any.
  void refuse_if_damaged(std::string_view doing);
  /// Returns the distinct compilers of the cubins. A machine without NVRTC forms cubin keys with each of them.
  [[nodiscard]] virtual std::vector<std::string> compilers() = 0;
  /// Returns the distinct device classes of the records.
  [[nodiscard]] virtual std::vector<std::string> device_classes() = 0;

  /// Both run one transaction. A record and its candidates replace those of the same key; a stored cubin is kept.
  void put(const Record& record, const CubinRow* cubin);
  void put_cubin(const CubinRow& cubin);
  /// Stores all rows in one transaction; `existing` says whether a stored cubin is replaced.
  virtual void put_all(std::span<const Record> records, std::span<const CubinRow> cubins,
                       Existing existing = Existing::keep) = 0;
  /// As put_all(), of rows found earlier: one of `additions` is stored where the file has no record of its key, or a
  /// worse one (merge_order.hpp). Throws BusyFile (opening.hpp) when the file, or this process's connection to it, is
  /// in use longer than `patience`.
  virtual void add_all(std::span<const Record> records, std::span<const Record> additions,
                       std::span<const CubinRow> cubins, std::chrono::milliseconds patience) = 0;
  /// Runs `work` in one transaction, which is rolled back when `work` throws.
  virtual void write_all(const std::function<void(Writer&)>& work) = 0;
  virtual bool remove_record(std::string_view key) = 0;

  /// Returns true when `holder` now has the right to tune `key`. A lease past its term or of a dead process is taken
  /// over.
  virtual bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) = 0;
  virtual void release_lease(std::string_view key, std::string_view holder) = 0;
  /// Describes the process that has the lease: "process 1234 (kiln), which is stopped". Empty when there is no lease.
  [[nodiscard]] virtual std::string lease_holder(std::string_view key) = 0;
  /// While another process holds the file's lock, `stop` is polled. A wait ends when `stop` returns true, after 200 ms
  /// at the earliest.
  virtual void stop_waiting_when(std::function<bool()> stop) = 0;

  virtual void add_to_histogram(const std::vector<HistogramRow>& rows) = 0;
  [[nodiscard]] virtual std::vector<HistogramRow> histogram() = 0;

  /// Returns how often rows served in earlier processes, and what add_to_usage added. This process counts its look-ups
  /// in memory and writes them in flush_usage, and when the file is closed.
  [[nodiscard]] virtual std::vector<Usage> usage() = 0;
  virtual void add_to_usage(const std::vector<Usage>& rows) = 0;
  /// Adds rows in memory, which flush_usage writes with the time then as `last_use`.
  virtual void note_usage(std::vector<Usage> rows) = 0;
  virtual void flush_usage() = 0;

  /// Runs one transaction. The file's size changes only with compact().
  virtual PruneReport prune(const PruneRule& rule) = 0;
  /// Shrinks the file by its free pages, and builds its indexes anew. Needs free disk space of the file's size.
  virtual void compact() = 0;

  [[nodiscard]] virtual FileStats stats() = 0;
  [[nodiscard]] virtual std::vector<OpBytes> bytes_by_op() = 0;
  [[nodiscard]] virtual Counters counters() const = 0;
  /// Returns the keys whose signatures over a read-only file were valid when it was opened. A cubin that was written to
  /// such a file later is a miss.
  [[nodiscard]] virtual const std::vector<PublicKey>& signers() const noexcept = 0;
  [[nodiscard]] virtual const std::filesystem::path& path() const noexcept = 0;
  /// Returns that a file which is open for reading was overwritten in place meanwhile, and what to do; else an empty
  /// string. It is asked only once look-ups have failed, since a program that takes locks may write to the file.
  [[nodiscard]] virtual std::string why_overwritten() const = 0;
  /// Returns why an existing file is not open yet, or an empty string. Until it is, look-ups are misses and writes
  /// throw Error(io). One of them asks again each second, and waits 200 ms for the lock.
  [[nodiscard]] virtual std::string why_not_open() = 0;
};

}  // namespace kiln::store
