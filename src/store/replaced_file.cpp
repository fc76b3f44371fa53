#include "store/replaced_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "kiln/error.hpp"
#include "store/custody.hpp"
#include "store/opening.hpp"
#include "store/sqlite.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<File> open_sealed(const fs::path& target) {
  Seal seal;
  open_existing(target, Access::read_only, &seal);
  if (seal.manifest.empty())
    refuse_to_replace(target, "is an overlay, or was changed after a command had written and sealed it");
  return File::open(target, Access::read_only);
}

std::unique_ptr<File> open_replaced(const fs::path& target, RecordFormat format) {
  const bool is_text = format == RecordFormat::text;
  try {
    return is_text ? read_text(target) : open_sealed(target);
  } catch (const DamagedFile& error) {
    refuse_to_replace(target, fmt::format("cannot be read ({})", error.what()));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_file && !is_text) throw;
    refuse_to_replace(
        target,
        fmt::format("is no {} ({})", is_text ? "text of records" : "file of records of this format", error.what()));
  }
}

}  // namespace

void refuse_to_replace(const fs::path& target, std::string_view is) {
  throw Error(ErrorKind::bad_input,
              fmt::format("'{}' exists and {}; name another file, or replace this one by --replace (in a program, "
                          "TuneChoice::replace)",
                          target.string(), is));
}

std::set<std::string> replaced_keys(const fs::path& path, RecordFormat format) {
  const fs::path target = literal_path(path);
  check_target(target, Existing::replace);
  std::error_code is_missing;
  if (fs::file_size(target, is_missing) == 0 || is_missing) return {};
  std::set<std::string> keys;
  for (Record& record : open_replaced(target, format)->records()) keys.insert(std::move(record.key));
  return keys;
}

void require_nothing_lost(const fs::path& target, RecordFormat format, const std::set<std::string>& keys) {
  const std::set<std::string> before = replaced_keys(target, format);
  const auto is_lost = [&](const std::string& key) { return !keys.contains(key); };
  const auto first = std::find_if(before.begin(), before.end(), is_lost);
  if (first == before.end()) return;
  refuse_to_replace(target, fmt::format("{} of its {} records would be lost, the first of them {}",
                                        std::count_if(first, before.end(), is_lost), before.size(), *first));
}

struct HeldTarget::Locks {
  int folder = -1;
  std::optional<Connection> connection;
  std::optional<Transaction> writing;
  ~Locks() {
    writing.reset();
    connection.reset();
    if (folder >= 0) ::close(folder);
  }
};

namespace {

constexpr std::chrono::seconds longest_wait{30};
constexpr std::chrono::milliseconds between_tries{10};

[[noreturn]] void refuse_held(const fs::path& target) {
  throw Error(
      ErrorKind::io,
      fmt::format("'{}' is not replaced: another process, or another thread of this one, has been writing it, or "
                  "another file of its folder, for {} s; wait until that is done or end it, and run this again",
                  target.string(), longest_wait.count()));
}

/// Returns a descriptor of the locked folder, or -1 where the folder cannot be locked, as on some remote file systems.
int lock_folder_of(const fs::path& target) {
  const int folder = ::open(target.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (folder >= 0 && ::flock(folder, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    if (std::chrono::steady_clock::now() >= end) {
      ::close(folder);
      refuse_held(target);
    }
    std::this_thread::sleep_for(between_tries);
  }
  return folder;
}

}  // namespace

HeldTarget::HeldTarget(const fs::path& target, RecordFormat format) : locks_(std::make_unique<Locks>()) {
  locks_->folder = lock_folder_of(target);
  struct stat status {};
  if (::lstat(target.c_str(), &status) != 0) return;
  existing_ = Existing::replace;
  if (format == RecordFormat::text || !S_ISREG(status.st_mode) || status.st_size == 0) return;
  try {
    locks_->connection = open_existing(target, Access::read_write);
    locks_->connection->wait_at_most(longest_wait);
    locks_->writing.emplace(*locks_->connection, Transaction::Kind::write);
  } catch (const SqliteFailure& failure) {
    if (failure.is_locked()) refuse_held(target);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): told by who reads the file, and nobody writes to such a one
  }
}

HeldTarget::~HeldTarget() = default;

}  // namespace kiln::store
