#include <fmt/core.h>

#include "store/merge_order.hpp"
#include "store/sqlite_file.hpp"

namespace kiln::store {

namespace {

void ask_again_later(Session& session, const BusyFile& error) {
  constexpr std::chrono::seconds between{1};  // so that no more than a fifth of a thread's time is spent waiting
  session.locked = error.what();
  session.not_before = std::chrono::steady_clock::now() + between;
}

}  // namespace

namespace fs = std::filesystem;

// A forked child must not even close the parent's connection.
SqliteFile::~SqliteFile() {
  held_.reset();  // before its connection
  if (counts_for_ != nullptr) {
    counts_for_->quarantined_ += quarantined_.load();
    counts_for_->read_failures_ += read_failures_.load();
  }
  Session* session = session_.load();
  if (session->owner != getpid()) return;
  try {
    constexpr std::chrono::milliseconds timeout{
        100};  // counts of use are not worth a longer wait at the end of a process
    if (session->connection.is_open()) session->connection.wait_at_most(timeout);
    if (on_disk()) flush_usage();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): only counts of use are lost
  }
  delete session;
}

std::unique_ptr<Session> SqliteFile::open_first() {
  Seal seal;
  auto session = open_or_ask_again(access_ == Access::read_only ? &seal : nullptr);
  for (const SealSignature& each : seal.signatures) signers_.push_back(each.key);
  signed_cubins_ = std::move(seal.cubins);
  return session;
}

/// An overlay is wanted for as long as the process lives, so a lock at its opening, or a want of descriptors, does not
/// end that.
std::unique_ptr<Session> SqliteFile::open_or_ask_again(Seal* seal) const {
  try {
    return open_session(creation_, seal);
  } catch (const BusyFile& error) {
    if (access_ == Access::read_only || creation_ != Creation::at_first_write) throw;
    auto session = std::make_unique<Session>(Connection(), Identity{});
    ask_again_later(*session, error);
    return session;
  }
}

std::unique_ptr<Session> SqliteFile::open_session(Creation creation, Seal* seal, std::chrono::milliseconds wait) const {
  const bool later = access_ == Access::read_write && creation == Creation::at_first_write;
  if (!on_disk()) return std::make_unique<Session>(later ? Connection() : open_in_memory(), Identity{});
  if (later && is_missing(path_)) {
    check_can_be_made(path_);
    return std::make_unique<Session>(Connection(), Identity{});
  }
  if (access_ == Access::read_write) {
    refuse_what_others_write();
    create_if_missing(path_);
    refuse_what_others_write();  // another process may have created the folder meanwhile
  }
  const Identity identity = identity_of(path_);
  return std::make_unique<Session>(open_existing(path_, access_, seal, present_format(), wait), identity);
}

void SqliteFile::refuse_what_others_write() const {
  const auto objection = creation_ == Creation::at_first_write ? overlay_objection(path_) : file_objection(path_);
  if (!objection.empty())
    throw Error(ErrorKind::no_permission, fmt::format("'{}' is not written to: {}", path_.string(), objection));
}

Session& SqliteFile::session() {
  Session* current = session_.load();
  if (current->owner == getpid()) return *current;
  auto fresh = open_or_ask_again();
  if (fresh->connection.is_open()) fresh->connection.stop_waiting_when(stop_waiting_);
  if (session_.compare_exchange_strong(current, fresh.get())) return *fresh.release();
  return *current;  // another thread of this child was first
}

// An overlay may be deleted or replaced while it is open; rows written to the old file would be lost.
void SqliteFile::reopen_if_replaced(Session& session) const {
  if (!on_disk() || access_ == Access::read_only || identity_of(path_) == session.identity) return;
  if (!session.locked.empty() && std::chrono::steady_clock::now() < session.not_before) throw BusyFile(session.locked);
  reopen(session, creation_);
}

void SqliteFile::reopen_for_writing(Session& session) const {
  reopen_if_replaced(session);
  if (!session.connection.is_open()) reopen(session, Creation::at_once);
}

void SqliteFile::reopen(Session& session, Creation creation) const try {
  const auto fresh = open_session(creation, nullptr, session.locked.empty() ? usual_lock_wait : short_lock_wait);
  session.locked.clear();
  session.connection = std::move(fresh->connection);
  session.listings.clear();
  if (session.connection.is_open()) session.connection.stop_waiting_when(stop_waiting_);
  session.identity = fresh->identity;
} catch (const BusyFile& error) {
  ask_again_later(session, error);
  throw;
}

void SqliteFile::stop_waiting_when(std::function<bool()> stop) {
  Session& session = this->session();
  const std::lock_guard guard(session.mutex);
  stop_waiting_ = std::move(stop);
  if (session.connection.is_open()) session.connection.stop_waiting_when(stop_waiting_);
}

std::unique_ptr<File> SqliteFile::snapshot() {
  if (!on_disk()) return nullptr;
  {
    Session& session = this->session();
    const std::lock_guard guard(session.mutex);
    reopen_if_replaced(session);
    if (!session.connection.is_open()) return nullptr;
  }
  auto frozen = std::make_unique<SqliteFile>(path_, Access::read_only, 0, Creation::at_once);
  try {
    Connection& connection = frozen->session().connection;
    frozen->held_.emplace(connection, Transaction::Kind::read);
    frozen->counts_for_ = this;
    (void)read_stats(connection);  // SQLite takes the snapshot at the first read
  } catch (const SqliteFailure& failure) {
    throw to_error(path_, "read", failure);
  }
  return frozen;
}

SharedRecords SqliteFile::kept_records(std::string_view op) {
  auto kept = read<SharedRecords>([&](Session& session, Flaws& flaws) {
    const std::int64_t version = session.connection.version();
    if (const auto known = session.listings.find(op);
        known != session.listings.end() && known->second.version == version)
      return known->second.records;
    auto records = std::make_shared<const std::vector<Record>>(list_records(session.connection, op, false, flaws));
    if (flaws.empty()) session.listings.insert_or_assign(std::string(op), Session::Listing{records, version});
    return SharedRecords(std::move(records));
  });
  return kept ? std::move(kept) : std::make_shared<const std::vector<Record>>();
}

std::string SqliteFile::why_overwritten() const {
  const Counters met = counters();
  if (access_ != Access::read_only || met.quarantined + met.read_failures == 0) return {};
  const Stamp now = stamp_of(path_);
  if (now.identity != opened_as_.identity || now == opened_as_) return {};
  return fmt::format(
      "'{}' was overwritten in place while it was open, so look-ups in it are misses; make a new engine, and replace "
      "such a file by rename, as mv from the same folder does",
      path_.string());
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

std::unique_ptr<File> File::open(const fs::path& path, Access access, std::int64_t limit_bytes, Creation creation) {
  return std::make_unique<SqliteFile>(access == Access::read_only ? readable_path(path) : literal_path(path), access,
                                      limit_bytes, creation);
}

void File::refuse_if_damaged(std::string_view doing) {
  if (const auto found = damage(); !found.empty())
    throw Error(ErrorKind::bad_file, fmt::format("'{}' cannot be {}: {}", path().string(), doing, found));
}

std::vector<CubinRow> File::cubins() {
  std::vector<CubinRow> all;
  Cursor<PackedCubin> rows(*this);
  while (rows.front() != nullptr)
    if (auto cubin = unpack(rows.take())) all.push_back(std::move(*cubin));
  return all;
}

std::unique_ptr<File> File::in_memory() {
  return std::make_unique<SqliteFile>(fs::path{}, Access::read_write, 0, Creation::at_first_write);
}

}  // namespace kiln::store
