#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>

#include "store/columns.hpp"
#include "store/holder.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

struct Lease {
  std::string record_key, holder, boot_id, pid_namespace;
  std::int64_t pid = 0, process_start = 0, boot_seconds = 0, term_seconds = 0;
};

manifest::Digest digest_of(const Lease& lease) {
  manifest::Hasher hasher;
  hasher.field(std::string_view("lease"))
      .field(std::string_view(lease.record_key))
      .field(std::string_view(lease.holder));
  hasher.field(std::string_view(lease.boot_id)).field(std::string_view(lease.pid_namespace));
  hasher.field(lease.pid).field(lease.process_start).field(lease.boot_seconds).field(lease.term_seconds);
  return hasher.finish();
}

std::string pid_namespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

std::int64_t boot_seconds() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec;
}

Lease lease_of_this_process(std::string_view key, std::string_view holder, std::int64_t term_seconds) {
  const std::int64_t pid = getpid();
  return {std::string(key),
          std::string(holder),
          first_line("/proc/sys/kernel/random/boot_id"),
          pid_namespace(),
          pid,
          start_of_process(pid).value_or(0),
          boot_seconds(),
          term_seconds};
}

bool is_alive(const Lease& lease) {
  if (const auto start = start_of_process(lease.pid)) return *start == lease.process_start;
  const bool have_proc = start_of_process(getpid()).has_value();
  return !have_proc && (kill(static_cast<pid_t>(lease.pid), 0) == 0 || errno != ESRCH);
}

/// An overlay stays on one machine, so the process of a lease from another boot has ended. A process of another
/// container cannot be looked up by its pid: only the term ends its lease.
bool holds(const Lease& lease, const Lease& now) {
  if (lease.boot_id != now.boot_id) return false;
  std::int64_t age = 0;
  if (__builtin_sub_overflow(now.boot_seconds, lease.boot_seconds, &age)) return false;
  if (age < 0 || age >= lease.term_seconds) return false;
  return lease.pid_namespace != now.pid_namespace || is_alive(lease);
}

/// Returns nothing when the digest fails.
std::optional<Lease> read_lease(const Query& query, std::string_view key) {
  const Lease lease{
      std::string(key), std::string(query.text(0)), std::string(query.text(1)), std::string(query.text(2)),
      query.integer(3), query.integer(4),           query.integer(5),           query.integer(6)};
  if (!same_bytes(query.blob(7), digest_of(lease))) return std::nullopt;
  return lease;
}

constexpr std::string_view select_leases =
    "SELECT holder, boot_id, pid_namespace, pid, process_start, boot_seconds, term_seconds, digest, record_key FROM "
    "lease ";

std::optional<Lease> find_lease(Connection& connection, std::string_view key) {
  Query query = connection.query(std::string(select_leases) + "WHERE record_key = ?");
  if (!query.bind(key).step()) return std::nullopt;
  return read_lease(query, key);
}

void put_lease(Connection& connection, const Lease& lease) {
  const auto digest = digest_of(lease);
  connection
      .query(
          "INSERT OR REPLACE INTO lease (record_key, holder, boot_id, pid_namespace, pid, process_start, boot_seconds, "
          "term_seconds, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(std::string_view(lease.record_key))
      .bind(std::string_view(lease.holder))
      .bind(std::string_view(lease.boot_id))
      .bind(std::string_view(lease.pid_namespace))
      .bind(lease.pid)
      .bind(lease.process_start)
      .bind(lease.boot_seconds)
      .bind(lease.term_seconds)
      .bind(std::span<const std::byte>(digest))
      .run();
}

}  // namespace

bool acquire_lease(Connection& connection, std::string_view key, std::string_view holder, std::int64_t term_seconds) {
  const Lease wanted = lease_of_this_process(key, holder, term_seconds);
  const auto found = find_lease(connection, key);
  if (found && found->holder != holder && holds(*found, wanted)) return false;
  put_lease(connection, wanted);
  return true;
}

std::string lease_holder(Connection& connection, std::string_view key) {
  const auto found = find_lease(connection, key);
  if (!found) return {};
  if (found->pid_namespace != pid_namespace())
    return fmt::format("a process of another container, where its number is {},", found->pid);
  return found->pid == getpid() ? "another engine of this process" : process_in_words(found->pid);
}

void release_lease(Connection& connection, std::string_view key, std::string_view holder) {
  connection.query("DELETE FROM lease WHERE record_key = ? AND holder = ?").bind(key).bind(holder).run();
}

void check_leases(Connection& connection, Flaws& flaws) {
  Query query = connection.query(std::string(select_leases) + "ORDER BY record_key");
  while (query.step())
    if (!read_lease(query, query.text(8)))
      flaws.push_back({"lease", std::string(query.text(8)), std::string(digest_mismatch), {}});
}

}  // namespace kiln::store
