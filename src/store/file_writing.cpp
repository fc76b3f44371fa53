// The writing functions of SqliteFile: storing, pruning, compacting, counts of use.
#include <fmt/core.h>
#include <utf8.h>

#include <algorithm>
#include <ctime>

#include "manifest/text.hpp"
#include "store/merge_order.hpp"
#include "store/sqlite_file.hpp"

namespace kiln::store {
namespace {

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

/// Stores rows with the present time as their last use. The first one removes the seal.
class Rows {
 public:
  explicit Rows(Connection& connection) : connection_(connection) {}
  void put(const Record& record) {
    break_seal();
    put_record(connection_, record);
    store::add_to_usage(connection_, {"record", record.key, 0, now_});
  }
  void put(const PackedCubin& cubin, const manifest::Digest& digest, bool replace) {
    break_seal();
    if (put_cubin(connection_, cubin, digest, replace))
      store::add_to_usage(connection_, {"cubin", manifest::to_hex(cubin.key), 0, now_});
  }

 private:
  void break_seal() {
    if (!std::exchange(broken_, true)) remove_manifest(connection_);
  }
  Connection& connection_;
  const std::int64_t now_ = unix_seconds();
  bool broken_ = false;
};

class TableWriter final : public Writer {
 public:
  TableWriter(Connection& connection, Flaws& flaws) : connection_(connection), flaws_(flaws), rows_(connection) {}
  std::optional<Record> find_record(std::string_view key) override {
    return store::find_record(connection_, key, true, flaws_);
  }
  std::optional<PackedCubin> find_cubin(const manifest::Digest& key) override {
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

struct Packed {
  PackedCubin cubin;
  manifest::Digest digest{};
};

std::vector<Packed> pack_all(std::span<const CubinRow> cubins) {
  std::vector<Packed> packed;
  for (const CubinRow& each : cubins) {
    PackedCubin cubin = pack(each);
    if (const auto flaw = flaw_of(cubin); !flaw.empty())
      throw Error(ErrorKind::bad_input,
                  fmt::format("the cubin '{}' is not stored: {}", manifest::to_hex(each.key), flaw));
    const auto digest = digest_of(cubin);
    packed.push_back({std::move(cubin), digest});
  }
  return packed;
}

/// Returns the record as it will be stored, or throws Error(bad_input). A candidate's reason may quote any bytes, so
/// invalid UTF-8 in it becomes '?'.
Record check(Record record) {
  auto flaw = flaw_of(record);
  for (TriedCandidate& candidate : record.candidates) {
    candidate.reason = utf8::replace_invalid(candidate.reason, U'?');
    if (flaw.empty()) flaw = flaw_of(candidate);
  }
  if (!flaw.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("the record {} is not stored: {}", manifest::quote(record.key), flaw));
  return record;
}

std::vector<Record> check_all(std::span<const Record> records) {
  std::vector<Record> checked;
  for (const Record& record : records) checked.push_back(check(record));
  return checked;
}

}  // namespace

// Checks and compression, which may throw or take long, run before the lock is taken.
void SqliteFile::put_all(std::span<const Record> records, std::span<const CubinRow> cubins, Existing existing) {
  const auto checked = check_all(records);
  const auto packed = pack_all(cubins);
  write_and_prune([&](Session& session) {
    Rows rows(session.connection);
    for (const Record& record : checked) rows.put(record);
    for (const Packed& each : packed) {
      rows.put(each.cubin, each.digest, existing == Existing::replace);
      session.relied_on.insert(each.cubin.key);
    }
  });
}

void SqliteFile::add_all(std::span<const Record> records, std::span<const Record> additions,
                         std::span<const CubinRow> cubins, std::chrono::milliseconds patience) {
  const auto checked = check_all(records), checked_additions = check_all(additions);
  const auto packed = pack_all(cubins);
  const auto work = [&](Session& session) {
    Flaws flaws;
    Rows rows(session.connection);
    for (const Record& record : checked) rows.put(record);
    for (const Record& record : checked_additions) {
      const auto present = store::find_record(session.connection, record.key, true, flaws);
      if (!present || is_better(record, *present)) rows.put(record);
    }
    for (const Packed& each : packed) {
      rows.put(each.cubin, each.digest, false);
      session.relied_on.insert(each.cubin.key);
    }
    store::set_aside(session.connection, flaws);
  };
  write_and_prune(work, patience);
}

void SqliteFile::write_all(const std::function<void(Writer&)>& work) {
  write_and_prune([&](Session& session) {
    Flaws flaws;
    TableWriter writer(session.connection, flaws);
    work(writer);
    store::set_aside(session.connection, flaws);
  });
}

/// Runs `work` in a transaction, and prunes in it when the file is past its limit.
template <class Work>
void SqliteFile::write_and_prune(Work&& work, std::chrono::milliseconds patience) {
  const auto all = [&](Session& session) {
    Connection& c = session.connection;
    const Newest newest = newest_rows(c);
    work(session);
    if (limit_bytes_ == 0 || used_bytes(c) <= limit_bytes_) return;
    PruneRule rule;
    rule.max_bytes = limit_bytes_ / 10 * 9;
    rule.now = unix_seconds();
    rule.newest_record = newest.record;
    rule.newest_cubin = newest.cubin;
    rule.is_relied_on = [&](const manifest::Digest& key) { return session.relied_on.contains(key); };
    store::prune(c, rule);
  };
  write<void>("written", all, patience);
}

void TableWriter::put(const Record& record) { rows_.put(check(record)); }

void TableWriter::put(const PackedCubin& cubin) {
  if (const auto flaw = flaw_of(cubin); !flaw.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("the cubin '{}' is not stored: {}", manifest::to_hex(cubin.key), flaw));
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
    if (session.connection.is_open()) session.connection.compact();
  } catch (const SqliteFailure& failure) {
    ++write_failures_;
    throw to_error(path_, "compacted", failure);
  }
}

void File::put(const Record& record, const CubinRow* cubin) {
  put_all({&record, 1}, {cubin, cubin != nullptr ? std::size_t{1} : std::size_t{0}});
}

void File::put_cubin(const CubinRow& cubin) { put_all({}, {&cubin, 1}); }

}  // namespace kiln::store
