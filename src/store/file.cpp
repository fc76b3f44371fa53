#include "store/file.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

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
};

class SqliteFile final : public File {
 public:
  SqliteFile(fs::path path, Access access)
      : path_(std::move(path)), access_(access), session_(open_session().release()) {}
  ~SqliteFile() override;

  std::optional<Record> find_record(std::string_view key, bool with_candidates) override {
    return read<std::optional<Record>>(
        [&](Connection& c, Flaws& flaws) { return store::find_record(c, key, with_candidates, flaws); });
  }
  std::optional<CubinRow> find_cubin(const spec::Digest& key) override {
    return read<std::optional<CubinRow>>([&](Connection& c, Flaws& flaws) { return store::find_cubin(c, key, flaws); });
  }
  std::vector<Record> records(std::string_view op, bool with_candidates) override {
    return read<std::vector<Record>>(
        [&](Connection& c, Flaws& flaws) { return list_records(c, op, with_candidates, flaws); });
  }
  std::vector<CubinRow> cubins() override {
    return read<std::vector<CubinRow>>([&](Connection& c, Flaws& flaws) { return list_cubins(c, flaws); });
  }
  std::vector<std::string> compilers() override {
    return read<std::vector<std::string>>([](Connection& c, Flaws&) { return list_compilers(c); });
  }
  std::vector<HistogramRow> histogram() override {
    return read<std::vector<HistogramRow>>([&](Connection& c, Flaws& flaws) { return list_histogram(c, flaws); });
  }
  FileStats stats() override {
    return read<FileStats>([](Connection& c, Flaws&) { return read_stats(c); });
  }

  void put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) override;
  bool remove_record(std::string_view key) override {
    return write("changed", [&](Connection& c) {
      remove_manifest(c);
      return store::remove_record(c, key);
    });
  }
  bool acquire_lease(std::string_view key, std::string_view holder, std::int64_t term_seconds) override {
    return write("leased", [&](Connection& c) { return store::acquire_lease(c, key, holder, term_seconds); });
  }
  void release_lease(std::string_view key, std::string_view holder) override {
    write("released", [&](Connection& c) { return store::release_lease(c, key, holder), true; });
  }
  void add_to_histogram(const std::vector<HistogramRow>& rows) override {
    write("changed", [&](Connection& c) {
      for (const HistogramRow& row : rows) store::add_to_histogram(c, row);
      return true;
    });
  }

  Counters counters() const override { return {quarantined_.load(), read_failures_.load(), write_failures_.load()}; }
  const fs::path& path() const noexcept override { return path_; }

 private:
  [[nodiscard]] bool on_disk() const noexcept { return !path_.empty(); }
  std::unique_ptr<Session> open_session() const;
  Session& session();
  void reopen_if_replaced(Session& session) const;
  template <class Result, class Work>
  Result read(Work&& work);
  template <class Work>
  bool write(std::string_view doing, Work&& work);
  void set_aside(Session& session, const Flaws& flaws);

  const fs::path path_;
  const Access access_;
  std::atomic<Session*> session_;
  std::atomic<std::int64_t> quarantined_ = 0, read_failures_ = 0, write_failures_ = 0;
};

// A child of fork leaves the parent's connection alone, even to close it.
SqliteFile::~SqliteFile() {
  Session* session = session_.load();
  if (session->owner == getpid()) delete session;
}

std::unique_ptr<Session> SqliteFile::open_session() const {
  if (!on_disk()) return std::make_unique<Session>(open_in_memory(), Identity{});
  if (access_ == Access::read_write) {
    create_if_missing(path_);
    if (const auto objection = file_objection(path_); !objection.empty())
      throw Error(ErrorKind::no_permission, fmt::format("'{}' is not written to: {}", path_.string(), objection));
  }
  const Identity identity = identity_of(path_);
  return std::make_unique<Session>(open_existing(path_, access_), identity);
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
Result SqliteFile::read(Work&& work) {
  try {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    reopen_if_replaced(session);
    Flaws flaws;
    Result result = [&] {
      Transaction transaction(session.connection, Transaction::Kind::read);
      Result found = work(session.connection, flaws);
      transaction.commit();
      return found;
    }();
    if (!flaws.empty()) set_aside(session, flaws);
    return result;
  } catch (const SqliteFailure& failure) {
    ++(failure.damaged() || failure.too_big() ? quarantined_ : read_failures_);
  } catch (const Error&) {
    ++read_failures_;
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

template <class Work>
bool SqliteFile::write(std::string_view doing, Work&& work) {
  if (access_ == Access::read_only)
    throw Error(ErrorKind::no_permission,
                fmt::format("'{}' cannot be {}: it is open for reading only", path_.string(), doing));
  try {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    reopen_if_replaced(session);
    Transaction transaction(session.connection, Transaction::Kind::write);
    const bool result = work(session.connection);
    transaction.commit();
    return result;
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
    throw Error(ErrorKind::bad_input, fmt::format("the record '{}' is not stored: {}", record.key, flaw));
  return record;
}

// Everything that can be wrong or slow (checks, compression) comes before the lock.
void SqliteFile::put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) {
  std::vector<Record> checked;
  for (const Record& record : records) checked.push_back(check(record));
  const auto packed = pack_all(cubins);
  write("written", [&](Connection& c) {
    remove_manifest(c);
    for (const Record& record : checked) put_record(c, record);
    for (const Packed& each : packed) store::put_cubin(c, each.cubin, each.digest, existing == Existing::replace);
    return true;
  });
}

}  // namespace

std::unique_ptr<File> File::open(const fs::path& path, Access access) {
  const fs::path literal = literal_path(path);
  std::error_code failure;
  const fs::path resolved = access == Access::read_only ? fs::canonical(literal, failure) : literal;
  return std::make_unique<SqliteFile>(failure ? literal : resolved, access);
}

void File::put(const Record& record, const CubinRow* cubin) {
  put_all({&record, 1}, {cubin, cubin != nullptr ? std::size_t{1} : std::size_t{0}});
}

void File::put_cubin(const CubinRow& cubin) { put_all({}, {&cubin, 1}); }

std::unique_ptr<File> File::in_memory() { return std::make_unique<SqliteFile>(fs::path{}, Access::read_write); }

}  // namespace kiln::store
