// SqliteFile, the only File: a connection for each process, a transaction for each call.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <type_traits>

#include "store/custody.hpp"
#include "store/file.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {

/// A process's connection, and the mutex with which its threads share it.
struct Session {
  Session(Connection opened, Identity found) : owner(getpid()), connection(std::move(opened)), identity(found) {}
  pid_t owner;
  std::mutex mutex;
  Connection connection;  // not open until the file is created
  Identity identity;      // the file at the path when it was opened

  std::string locked;                                // who keeps the file from being opened; else empty
  std::chrono::steady_clock::time_point not_before;  // when to ask again

  struct Listing {
    SharedRecords records;
    std::int64_t version = 0;  // of the connection, Connection::version()
  };
  std::map<std::string, Listing, std::less<>> listings;  // by op, what kept_records() returned

  using Use = std::pair<std::string, std::string>;  // source and key
  std::set<Use> noted;                              // rows that served this process
  std::vector<Usage> unwritten;                     // counts that flush_usage() will write
  DigestSet relied_on;  // keys of cubins that this process found, knows to be there or wrote: pruned after all others
  void note(std::string source, std::string key) {
    if (noted.emplace(source, key).second) unwritten.push_back({std::move(source), std::move(key), 1, 0});
  }
};

/// Bounds a connection's waits for other connections, and sets the usual bound at its end.
class Patience {
 public:
  Patience(Connection& connection, std::chrono::milliseconds limit) : connection_(connection) {
    connection_.wait_at_most(limit);
  }
  ~Patience() { connection_.wait_at_most(usual_lock_wait); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  Connection& connection_;
};

class SqliteFile final : public File {
 public:
  SqliteFile(std::filesystem::path path, Access access, std::int64_t limit_bytes, Creation creation)
      : path_(std::move(path)),
        access_(access),
        creation_(creation),
        limit_bytes_(limit_bytes),
        opened_as_(stamp_of(path_)),
        session_(open_first().release()) {}
  ~SqliteFile() override;

  std::optional<Record> find_record(std::string_view key, bool with_candidates, Counters* met) override {
    return read<std::optional<Record>>(
        [&](Session& session, Flaws& flaws) {
          auto record = store::find_record(session.connection, key, with_candidates, flaws);
          // A caller that reads candidates inspects a record; the record does not serve a launch.
          if (record && !with_candidates && access_ == Access::read_write) session.note("record", record->key);
          return record;
        },
        met);
  }
  std::optional<CubinRow> find_cubin(const manifest::Digest& key, Counters* met) override {
    return read<std::optional<CubinRow>>(
        [&](Session& session, Flaws& flaws) {
          auto cubin = store::find_cubin(session.connection, key, flaws, accepted_cubins());
          if (cubin) note_cubin(session, key);
          return cubin;
        },
        met);
  }
  bool has_cubin(const manifest::Digest& key) override {
    return read<bool>([&](Session& session, Flaws&) {
      const bool has = store::has_cubin(session.connection, key);
      if (has) note_cubin(session, key);
      return has;
    });
  }
  std::vector<Record> records(std::string_view op, bool with_candidates) override {
    return read<std::vector<Record>>(
        [&](Session& s, Flaws& flaws) { return list_records(s.connection, op, with_candidates, flaws); });
  }
  SharedRecords kept_records(std::string_view op) override;
  std::vector<Record> records_after(std::string_view key, std::int64_t limit) override {
    return read_or_throw<std::vector<Record>>(
        [&](Session& s, Flaws& flaws) { return list_records_after(s.connection, key, limit, flaws); });
  }
  std::vector<PackedCubin> cubins_after(std::span<const std::byte> key, std::int64_t limit) override {
    return read_or_throw<std::vector<PackedCubin>>([&](Session& s, Flaws& flaws) {
      return list_cubins_after(s.connection, key, limit, flaws, accepted_cubins());
    });
  }
  std::string damage() override {
    return read_or_throw<std::string>([](Session& s, Flaws&) { return damage_of(s.connection); });
  }
  std::unique_ptr<File> snapshot() override;
  std::vector<std::string> compilers() override {
    return read<std::vector<std::string>>([](Session& s, Flaws&) { return list_compilers(s.connection); });
  }
  std::vector<std::string> device_classes() override {
    return read<std::vector<std::string>>([](Session& s, Flaws&) { return list_device_classes(s.connection); });
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
  void add_all(std::span<const Record> records, std::span<const Record> additions, std::span<const CubinRow> cubins,
               std::chrono::milliseconds patience) override;
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
  std::string lease_holder(std::string_view key) override {
    return read<std::string>([&](Session& s, Flaws&) { return store::lease_holder(s.connection, key); });
  }
  void stop_waiting_when(std::function<bool()> stop) override;
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
  const std::filesystem::path& path() const noexcept override { return path_; }
  std::string why_overwritten() const override;
  std::string why_not_open() override {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    return session.locked;
  }

 private:
  [[nodiscard]] bool on_disk() const noexcept { return !path_.empty(); }
  /// Others may write to a signed file while it is open, so only the cubins whose signature was checked are served.
  [[nodiscard]] const DigestSet* accepted_cubins() const noexcept {
    return signers_.empty() ? nullptr : &signed_cubins_;
  }
  void note_cubin(Session& session, const manifest::Digest& key) const {
    if (access_ != Access::read_write) return;
    session.note("cubin", manifest::to_hex(key));
    session.relied_on.insert(key);
  }
  std::unique_ptr<Session> open_first();
  std::unique_ptr<Session> open_session(Creation creation, Seal* seal = nullptr,
                                        std::chrono::milliseconds wait = usual_lock_wait) const;
  std::unique_ptr<Session> open_or_ask_again(Seal* seal = nullptr) const;
  Session& session();
  void reopen(Session& session, Creation creation) const;
  void reopen_if_replaced(Session& session) const;
  void reopen_for_writing(Session& session) const;
  template <class Result, class Work>
  Result read(Work&& work, Counters* met = nullptr);
  template <class Result, class Work>
  Result read_or_throw(Work&& work);
  template <class Result, class Work>
  Result read_and_set_aside(Work&& work, Counters& met);
  template <class Result, class Work>
  Result write(std::string_view doing, Work&& work, std::chrono::milliseconds patience = usual_lock_wait);
  template <class Work>
  void write_and_prune(Work&& work, std::chrono::milliseconds patience = usual_lock_wait);
  void refuse_unless_writable(std::string_view doing) const;
  void refuse_what_others_write() const;
  void set_aside(Session& session, const Flaws& flaws);

  const std::filesystem::path path_;
  const Access access_;
  const Creation creation_;
  const std::int64_t limit_bytes_;  // 0: none
  const Stamp opened_as_;
  std::vector<PublicKey> signers_;
  DigestSet signed_cubins_;             // empty without signers
  std::function<bool()> stop_waiting_;  // guarded by the session's mutex
  std::atomic<Session*> session_;
  std::optional<Transaction> held_;   // a snapshot's read transaction
  SqliteFile* counts_for_ = nullptr;  // a snapshot's original, which takes its counts
  std::atomic<std::int64_t> quarantined_ = 0, read_failures_ = 0, write_failures_ = 0;
};

/// Runs `work` in a read transaction and moves the rows that failed their checks to the quarantine table.
template <class Result, class Work>
Result SqliteFile::read_and_set_aside(Work&& work, Counters& met) {
  Session& session = this->session();
  const std::lock_guard guard(session.mutex);
  reopen_if_replaced(session);
  if (!session.connection.is_open()) return {};
  Flaws flaws;
  Result result = [&]() -> Result {
    if (held_) return work(session, flaws);
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

template <class Result, class Work>
Result SqliteFile::write(std::string_view doing, Work&& work, std::chrono::milliseconds patience) {
  refuse_unless_writable(doing);
  try {
    Session& session = this->session();
    const std::unique_lock guard = lock_within(session.mutex, patience);
    if (!guard) throw BusyFile(fmt::format("'{}' is being read or written by another thread", path_.string()));
    reopen_for_writing(session);
    std::optional<Patience> bounded;  // else the connection's own limit is kept, which is short at its end
    if (patience < usual_lock_wait) bounded.emplace(session.connection, patience);
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
    const Error error = to_error(path_, doing, failure);
    if (failure.is_temporary()) throw BusyFile(error.what());
    throw error;
  } catch (const Error&) {
    ++write_failures_;
    throw;
  }
}

}  // namespace kiln::store
