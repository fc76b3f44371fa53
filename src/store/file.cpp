#include "store/file.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <set>

#include "spec/text.hpp"
#include "store/custody.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

/// A process's own connection and the lock that its threads share it by.
struct Session {
  Session(Connection opened, Identity found) : owner(getpid()), connection(std::move(opened)), identity(found) {}
  pid_t owner;
  std::mutex mutex;
  Connection connection;
  Identity identity;  // what stood under the path when it was opened

  using Use = std::pair<std::string, std::string>;  // source and key
  std::set<Use> noted;                              // rows that served this process
  std::vector<Usage> unwritten;                     // what is not in the file yet
  void note(std::string source, std::string key) {
    if (noted.emplace(source, key).second) unwritten.push_back({std::move(source), std::move(key), 1, 0});
  }
};

std::int64_t unix_seconds() { return std::time(nullptr); }

/// Thrown to roll a transaction back.
struct DryRun {};

struct Newest {
  std::int64_t record = 0, cubin = 0;
};

Newest newest_rows(Connection& connection) {
  Query query =
      connection.query("SELECT (SELECT coalesce(max(id), 0) FROM record), (SELECT coalesce(max(id), 0) FROM cubin)");
  return query.step() ? Newest{query.integer(0), query.integer(1)} : Newest{};
}

/// Puts rows as of now. Any of them breaks the seal.
class Rows {
 public:
  explicit Rows(Connection& connection) : connection_(connection) {}
  void put(const Record& record) {
    break_seal();
    put_record(connection_, record);
    store::add_to_usage(connection_, {"record", record.key, 0, now_});
  }
  void put(const PackedCubin& cubin, const spec::Digest& digest, bool replace) {
    break_seal();
    if (put_cubin(connection_, cubin, digest, replace))
      store::add_to_usage(connection_, {"cubin", spec::to_hex(cubin.key), 0, now_});
  }

 private:
  void break_seal() {
    if (!std::exchange(broken_, true)) remove_manifest(connection_);
  }
  Connection& connection_;
  const std::int64_t now_ = unix_seconds();
  bool broken_ = false;
};

/// One write transaction, over tables.hpp.
class TableWriter final : public Writer {
 public:
  TableWriter(Connection& connection, Flaws& flaws) : connection_(connection), flaws_(flaws), rows_(connection) {}
  std::optional<Record> find_record(std::string_view key) override {
    return store::find_record(connection_, key, true, flaws_);
  }
  std::optional<PackedCubin> find_cubin(const spec::Digest& key) override {
    return find_packed(connection_, key, flaws_);
  }
  void put(const Record& record) override;
  void put(const PackedCubin& cubin) override;
  void seal() override { write_manifest(connection_); }

 private:
  Connection& connection_;
  Flaws& flaws_;
  Rows rows_;
};

class SqliteFile final : public File {
 public:
  SqliteFile(fs::path path, Access access, std::int64_t limit_bytes)
      : path_(std::move(path)), access_(access), limit_bytes_(limit_bytes), session_(open_first().release()) {}
  ~SqliteFile() override;

  std::optional<Record> find_record(std::string_view key, bool with_candidates, Counters* met) override {
    return read<std::optional<Record>>(
        [&](Session& session, Flaws& flaws) {
          auto record = store::find_record(session.connection, key, with_candidates, flaws);
          if (record && access_ == Access::read_write) session.note("record", record->key);
          return record;
        },
        met);
  }
  std::optional<CubinRow> find_cubin(const spec::Digest& key, Counters* met) override {
    return read<std::optional<CubinRow>>(
        [&](Session& session, Flaws& flaws) {
          auto cubin = store::find_cubin(session.connection, key, flaws, accepted_cubins());
          if (cubin && access_ == Access::read_write) session.note("cubin", spec::to_hex(key));
          return cubin;
        },
        met);
  }
  std::vector<Record> records(std::string_view op, bool with_candidates) override {
    return read<std::vector<Record>>(
        [&](Session& s, Flaws& flaws) { return list_records(s.connection, op, with_candidates, flaws); });
  }
  std::vector<Record> records_after(std::string_view key, std::int64_t limit) override {
    return read_or_throw<std::vector<Record>>(
        [&](Session& s, Flaws& flaws) { return list_records_after(s.connection, key, limit, flaws); });
  }
  std::vector<PackedCubin> cubins_after(std::span<const std::byte> key, std::int64_t limit) override {
    return read_or_throw<std::vector<PackedCubin>>([&](Session& s, Flaws& flaws) {
      return list_cubins_after(s.connection, key, limit, flaws, accepted_cubins());
    });
  }
  std::vector<std::string> compilers() override {
    return read<std::vector<std::string>>([](Session& s, Flaws&) { return list_compilers(s.connection); });
  }
  std::vector<HistogramRow> histogram() override {
    return read<std::vector<HistogramRow>>(
        [](Session& s, Flaws& flaws) { return list_histogram(s.connection, flaws); });
  }
  FileStats stats() override {
    return read<FileStats>([](Session& s, Flaws&) { return read_stats(s.connection); });
  }
  std::vector<OpBytes> bytes_by_op() override {
    return read<std::vector<OpBytes>>([](Session& s, Flaws&) { return read_bytes_by_op(s.connection); });
  }
  std::vector<Usage> usage() override {
    return read<std::vector<Usage>>([](Session& s, Flaws& flaws) { return list_usage(s.connection, flaws); });
  }

  void put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) override;
  void write_all(const std::function<void(Writer&)>& work) override;
  bool remove_record(std::string_view key) override {
    return write<bool>("changed", [&](Session& s) {
      remove_manifest(s.connection);
      return store::remove_record(s.connection, key);
    });
  }
  bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) override {
    return write<bool>("leased",
                       [&](Session& s) { return store::acquire_lease(s.connection, key, holder, term_seconds); });
  }
  void release_lease(std::string_view key, std::string_view holder) override {
    write<void>("released", [&](Session& s) { store::release_lease(s.connection, key, holder); });
  }
  void add_to_histogram(const std::vector<HistogramRow>& rows) override {
    write<void>("changed", [&](Session& s) {
      for (const HistogramRow& row : rows) store::add_to_histogram(s.connection, row);
    });
  }
  void add_to_usage(const std::vector<Usage>& rows) override {
    write<void>("changed", [&](Session& s) {
      for (const Usage& row : rows) store::add_to_usage(s.connection, row);
    });
  }
  void note_usage(std::vector<Usage> rows) override;
  void flush_usage() override;
  PruneReport prune(const PruneRule& rule) override;
  void compact() override;

  Counters counters() const override { return {quarantined_.load(), read_failures_.load(), write_failures_.load()}; }
  const std::vector<PublicKey>& signers() const noexcept override { return signers_; }
  const fs::path& path() const noexcept override { return path_; }

 private:
  [[nodiscard]] bool on_disk() const noexcept { return !path_.empty(); }
  /// A file that is trusted for its signature may lie where others write to it while it is open: what was in it when the
  /// signature was checked is what counts.
  [[nodiscard]] const DigestSet* accepted_cubins() const noexcept {
    return signers_.empty() ? nullptr : &signed_cubins_;
  }
  std::unique_ptr<Session> open_first();
  std::unique_ptr<Session> open_session(Seal* seal = nullptr) const;
  Session& session();
  void reopen_if_replaced(Session& session) const;
  template <class Result, class Work>
  Result read(Work&& work, Counters* met = nullptr);
  template <class Result, class Work>
  Result read_or_throw(Work&& work);
  template <class Result, class Work>
  Result read_and_set_aside(Work&& work, Counters& met);
  template <class Result, class Work>
  Result write(std::string_view doing, Work&& work);
  template <class Work>
  void publish(Work&& work);
  void refuse_unless_writable(std::string_view doing) const;
  void set_aside(Session& session, const Flaws& flaws);

  const fs::path path_;
  const Access access_;
  const std::int64_t limit_bytes_;  // 0: none
  std::vector<PublicKey> signers_;
  DigestSet signed_cubins_;  // empty without signers
  std::atomic<Session*> session_;
  std::atomic<std::int64_t> quarantined_ = 0, read_failures_ = 0, write_failures_ = 0;
};

// A child of fork leaves the parent's connection alone, even to close it.
SqliteFile::~SqliteFile() {
  Session* session = session_.load();
  if (session->owner != getpid()) return;
  try {
    constexpr int patience_ms = 100;  // counting is not worth a longer wait at the end of a process
    session->connection.wait_at_most(patience_ms);
    flush_usage();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): only counts are lost
  }
  delete session;
}

std::unique_ptr<Session> SqliteFile::open_first() {
  Seal seal;
  auto session = open_session(access_ == Access::read_only ? &seal : nullptr);
  for (const SealSignature& each : seal.signatures) signers_.push_back(each.key);
  signed_cubins_ = std::move(seal.cubins);
  return session;
}

std::unique_ptr<Session> SqliteFile::open_session(Seal* seal) const {
  if (!on_disk()) return std::make_unique<Session>(open_in_memory(), Identity{});
  if (access_ == Access::read_write) {
    create_if_missing(path_);
    if (const auto objection = file_objection(path_); !objection.empty())
      throw Error(ErrorKind::no_permission, fmt::format("'{}' is not written to: {}", path_.string(), objection));
  }
  const Identity identity = identity_of(path_);
  return std::make_unique<Session>(open_existing(path_, access_, seal), identity);
}

Session& SqliteFile::session() {
  Session* current = session_.load();
  if (current->owner == getpid()) return *current;
  auto fresh = open_session();
  if (session_.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;  // another thread of this child was first
}

// Someone may delete or replace an overlay while it is open; writing on into the nameless file would lose the rows.
void SqliteFile::reopen_if_replaced(Session& session) const {
  if (!on_disk() || access_ == Access::read_only || identity_of(path_) == session.identity) return;
  const auto fresh = open_session();
  session.connection = std::move(fresh->connection);
  session.identity = fresh->identity;
}

/// What cannot be read is a miss: one row of bad content is set aside, a failure of the file or the machine is only
/// counted.
template <class Result, class Work>
Result SqliteFile::read_and_set_aside(Work&& work, Counters& met) {
  Session& session = this->session();
  const std::lock_guard guard(session.mutex);
  reopen_if_replaced(session);
  Flaws flaws;
  Result result = [&] {
    Transaction transaction(session.connection, Transaction::Kind::read);
    Result found = work(session, flaws);
    transaction.commit();
    return found;
  }();
  met.quarantined += static_cast<std::int64_t>(flaws.size());
  if (!flaws.empty()) set_aside(session, flaws);
  return result;
}

template <class Result, class Work>
Result SqliteFile::read_or_throw(Work&& work) {
  try {
    Counters met;
    return read_and_set_aside<Result>(work, met);
  } catch (const SqliteFailure& failure) {
    ++read_failures_;
    throw to_error(path_, "read", failure);
  }
}

template <class Result, class Work>
Result SqliteFile::read(Work&& work, Counters* met) {
  Counters unasked;
  Counters& count = met != nullptr ? *met : unasked;
  const auto fail = [&](bool damaged) {
    ++(damaged ? quarantined_ : read_failures_);
    ++(damaged ? count.quarantined : count.read_failures);
  };
  try {
    return read_and_set_aside<Result>(work, count);
  } catch (const SqliteFailure& failure) {
    fail(failure.damaged() || failure.too_big());
  } catch (const Error&) {
    fail(false);
  }
  return {};
}

void SqliteFile::set_aside(Session& session, const Flaws& flaws) {
  quarantined_ += static_cast<std::int64_t>(flaws.size());
  if (access_ == Access::read_only) return;
  try {
    Transaction transaction(session.connection, Transaction::Kind::write);
    store::set_aside(session.connection, flaws);
    transaction.commit();
  } catch (const SqliteFailure&) {
    ++write_failures_;
  }
}

void SqliteFile::refuse_unless_writable(std::string_view doing) const {
  if (access_ == Access::read_only)
    throw Error(ErrorKind::no_permission,
                fmt::format("'{}' cannot be {}: it is open for reading only", path_.string(), doing));
}

template <class Result, class Work>
Result SqliteFile::write(std::string_view doing, Work&& work) {
  refuse_unless_writable(doing);
  try {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    reopen_if_replaced(session);
    Transaction transaction(session.connection, Transaction::Kind::write);
    if constexpr (std::is_void_v<Result>) {
      work(session);
      transaction.commit();
    } else {
      Result result = work(session);
      transaction.commit();
      return result;
    }
  } catch (const SqliteFailure& failure) {
    ++write_failures_;
    throw to_error(path_, doing, failure);
  } catch (const Error&) {
    ++write_failures_;
    throw;
  }
}

struct Packed {
  PackedCubin cubin;
  spec::Digest digest{};
};

std::vector<Packed> pack_all(std::span<const CubinRow> cubins) {
  std::vector<Packed> packed;
  for (const CubinRow& each : cubins) {
    PackedCubin cubin = pack(each);
    if (const auto flaw = flaw_of(cubin); !flaw.empty())
      throw Error(ErrorKind::bad_input, fmt::format("the cubin '{}' is not stored: {}", spec::to_hex(each.key), flaw));
    const auto digest = digest_of(cubin);
    packed.push_back({std::move(cubin), digest});
  }
  return packed;
}

/// The record as it will be stored: a candidate's reason may quote bytes of any source, so it alone is made UTF-8.
Record check(Record record) {
  auto flaw = flaw_of(record);
  for (Candidate& candidate : record.candidates) {
    if (!is_utf8(candidate.reason))
      std::ranges::replace_if(
          candidate.reason, [](char c) { return static_cast<unsigned char>(c) > 0x7f; }, '?');
    if (flaw.empty()) flaw = flaw_of(candidate);
  }
  if (!flaw.empty())
    throw Error(ErrorKind::bad_input, fmt::format("the record {} is not stored: {}", spec::quote(record.key), flaw));
  return record;
}

// Everything that can be wrong or slow (checks, compression) comes before the lock.
void SqliteFile::put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) {
  std::vector<Record> checked;
  for (const Record& record : records) checked.push_back(check(record));
  const auto packed = pack_all(cubins);
  publish([&](Session& session) {
    Rows rows(session.connection);
    for (const Record& record : checked) rows.put(record);
    for (const Packed& each : packed) rows.put(each.cubin, each.digest, existing == Existing::replace);
  });
}

void SqliteFile::write_all(const std::function<void(Writer&)>& work) {
  publish([&](Session& session) {
    Flaws flaws;
    TableWriter writer(session.connection, flaws);
    work(writer);
    store::set_aside(session.connection, flaws);
  });
}

/// A write of records and cubins keeps the file under its limit.
template <class Work>
void SqliteFile::publish(Work&& work) {
  write<void>("written", [&](Session& session) {
    Connection& c = session.connection;
    const Newest newest = newest_rows(c);
    work(session);
    if (limit_bytes_ == 0 || used_bytes(c) <= limit_bytes_) return;
    PruneRule rule;
    rule.max_bytes = limit_bytes_ / 10 * 9;
    rule.now = unix_seconds();
    rule.newest_record = newest.record;
    rule.newest_cubin = newest.cubin;
    store::prune(c, rule);
  });
}

void TableWriter::put(const Record& record) { rows_.put(check(record)); }

void TableWriter::put(const PackedCubin& cubin) {
  if (const auto flaw = flaw_of(cubin); !flaw.empty())
    throw Error(ErrorKind::bad_input, fmt::format("the cubin '{}' is not stored: {}", spec::to_hex(cubin.key), flaw));
  rows_.put(cubin, digest_of(cubin), true);
}

void SqliteFile::note_usage(std::vector<Usage> rows) {
  Session& session = this->session();
  const std::lock_guard guard(session.mutex);
  std::ranges::move(rows, std::back_inserter(session.unwritten));
}

void SqliteFile::flush_usage() {
  if (access_ == Access::read_only) return;
  std::vector<Usage> uses;
  {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    uses.swap(session.unwritten);
  }
  if (uses.empty()) return;
  const std::int64_t now = unix_seconds();
  for (Usage& use : uses) use.last_use = now;
  add_to_usage(uses);
}

PruneReport SqliteFile::prune(const PruneRule& rule) {
  flush_usage();
  refuse_unless_writable("pruned");
  if (!rule.dry_run) return write<PruneReport>("pruned", [&](Session& s) { return store::prune(s.connection, rule); });
  PruneReport report;
  try {
    write<void>("pruned", [&](Session& s) {
      report = store::prune(s.connection, rule);
      throw DryRun();
    });
  } catch (const DryRun&) {  // NOLINT(bugprone-empty-catch): the transaction was rolled back
  }
  return report;
}

void SqliteFile::compact() {
  refuse_unless_writable("compacted");
  try {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    reopen_if_replaced(session);
    session.connection.compact();
  } catch (const SqliteFailure& failure) {
    ++write_failures_;
    throw to_error(path_, "compacted", failure);
  }
}

}  // namespace

std::unique_ptr<File> File::open(const fs::path& path, Access access, std::int64_t limit_bytes) {
  const fs::path literal = literal_path(path);
  std::error_code failure;
  const fs::path resolved = access == Access::read_only ? fs::canonical(literal, failure) : literal;
  return std::make_unique<SqliteFile>(failure ? literal : resolved, access, limit_bytes);
}

void File::put(const Record& record, const CubinRow* cubin) {
  put_all({&record, 1}, {cubin, cubin != nullptr ? std::size_t{1} : std::size_t{0}});
}

std::vector<CubinRow> File::cubins() {
  constexpr std::int64_t batch = 64;
  std::vector<CubinRow> all;
  std::vector<std::byte> last;
  for (;;) {
    const auto packed = cubins_after(last, batch);
    for (const PackedCubin& each : packed)
      if (auto cubin = unpack(each)) all.push_back(std::move(*cubin));
    if (static_cast<std::int64_t>(packed.size()) < batch) return all;
    last.assign(packed.back().key.begin(), packed.back().key.end());
  }
}

void File::put_cubin(const CubinRow& cubin) { put_all({}, {&cubin, 1}); }

std::unique_ptr<File> File::in_memory() { return std::make_unique<SqliteFile>(fs::path{}, Access::read_write, 0); }

}  // namespace kiln::store
