#include "store/prune.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "kiln/error.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

struct Deletable {
  std::int64_t id = 0;
  std::int64_t last_use = 0;  // 0: never, as far as the file knows
  double value = 0;           // time saved per byte
};

constexpr double seconds_a_day = 86400;

/// Divides the uses by 1 + days since the last one. A row that never served counts as used once, at time 0.
double weight(std::int64_t uses, std::int64_t last_use, std::int64_t now) {
  const auto age = static_cast<double>(std::max<std::int64_t>(now - last_use, 0));
  return static_cast<double>(std::max<std::int64_t>(uses, 1)) / (1 + age / seconds_a_day);
}

// A record saves the default's time minus that of its choice at the bucket's upper edge (Record::at_edge), where both
// were timed. A record's bytes are about its text; a cubin's are its image.
constexpr std::string_view record_rows =
    "SELECT id, coalesce(uses, 0), coalesce(last_use, 0), max(baseline_ns - coalesce((SELECT cost_ns FROM choice "
    "WHERE record = id AND role = 'fastest' ORDER BY position DESC LIMIT 1), baseline_ns), 0), length(record.key) + 256 + "
    "coalesce((SELECT sum(length(config) + length(compiler) + 192) FROM choice WHERE record = id), 0) FROM record "
    "LEFT JOIN usage ON source = 'record' AND usage.key = record.key ORDER BY id";
// Compile times hardly depend on the size, so cubins are compared by uses per byte.
constexpr std::string_view cubin_rows =
    "SELECT id, coalesce(uses, 0), coalesce(last_use, 0), 1, length(frame) + 512 FROM cubin JOIN image ON cubin = id "
    "LEFT JOIN usage ON source = 'cubin' AND usage.key = lower(hex(cubin.key)) ORDER BY id";

std::vector<Deletable> rows_of(Connection& connection, std::string_view sql, std::int64_t now) {
  std::vector<Deletable> rows;
  Query query = connection.query(sql);
  while (query.step()) {
    // No digest covers these numbers when they are read here, so a time before 1970 counts as never.
    const std::int64_t last_use = std::max<std::int64_t>(query.integer(2), 0);
    const double saved = weight(query.integer(1), last_use, now) * query.real(3);
    rows.push_back(
        {query.integer(0), last_use, saved / static_cast<double>(std::max<std::int64_t>(query.integer(4), 1))});
  }
  return rows;
}

/// A row of the histogram.
struct Count {
  std::string op, problem;
  std::int64_t bytes = 0;
};

/// Returns the counts of launches, the smallest first.
std::vector<Count> counts_of(Connection& connection) {
  constexpr std::int64_t beside_text = 48;  // the digest, the number and the row's header
  std::vector<Count> counts;
  Query query = connection.query("SELECT op, problem FROM histogram ORDER BY launches, op, problem");
  while (query.step()) {
    Count& count = counts.emplace_back(Count{std::string(query.text(0)), std::string(query.text(1))});
    count.bytes = static_cast<std::int64_t>(count.op.size() + count.problem.size()) + beside_text;
  }
  return counts;
}

/// Sorts the least valuable first; of equal rows, the older first. Drops rows newer than `newest`.
std::vector<Deletable> by_value(std::vector<Deletable> rows, std::int64_t newest) {
  std::erase_if(rows, [&](const Deletable& row) { return row.id > newest; });
  std::stable_sort(rows.begin(), rows.end(), [](const Deletable& a, const Deletable& b) { return a.value < b.value; });
  return rows;
}

class Pruning {
 public:
  Pruning(Connection& connection, const PruneRule& rule) : connection_(connection), rule_(rule) {}

  PruneReport run() {
    const std::int64_t before = used_bytes(connection_);
    remove_chosen();
    if (rule_.unused_seconds) remove_unused(*rule_.unused_seconds);
    if (rule_.max_bytes) shrink(*rule_.max_bytes);
    if (report_.records + report_.candidates + report_.cubins > 0) remove_traces();
    const std::int64_t after = used_bytes(connection_);
    if (rule_.max_bytes && rule_.must_reach && after > *rule_.max_bytes)
      throw Error(
          ErrorKind::bad_input,
          fmt::format("the size of {} bytes cannot be reached, so nothing is deleted: without any record, machine code "
                      "or count the file takes {} bytes",
                      *rule_.max_bytes, after));
    report_.bytes = before - after;
    return report_;
  }

 private:
  void remove_record(std::int64_t id) {
    report_.candidates += candidates_of(id);
    connection_.query("DELETE FROM record WHERE id = ?").bind(id).run();
    ++report_.records;
  }
  void remove_cubin(std::int64_t id) {
    connection_.query("DELETE FROM cubin WHERE id = ?").bind(id).run();
    ++report_.cubins;
  }
  void remove_candidates(std::int64_t id) {
    connection_.query("DELETE FROM candidate WHERE record = ?").bind(id).run();
    report_.candidates += connection_.changes();
  }
  std::int64_t candidates_of(std::int64_t id) {
    Query query = connection_.query("SELECT count(*) FROM candidate WHERE record = ?");
    return query.bind(id).step() ? query.integer(0) : 0;
  }

  void remove_chosen() {
    std::vector<std::int64_t> records, cubins;
    if (rule_.record)
      each_record(connection_, [&](std::int64_t id, const Record& record) {
        if (rule_.record(record)) records.push_back(id);
      });
    if (rule_.cubin)
      each_cubin_head(connection_, [&](std::int64_t id, const PackedCubin& cubin) {
        if (rule_.cubin(cubin)) cubins.push_back(id);
      });
    for (const std::int64_t id : cubins) remove_cubin(id);
    for (const std::int64_t id : records) remove_record(id);
  }

  void remove_unused(std::int64_t seconds) {
    const auto is_unused = [&](const Deletable& row) { return rule_.now - row.last_use > seconds; };
    for (const Deletable& row : rows_of(connection_, cubin_rows, rule_.now))
      if (is_unused(row)) remove_cubin(row.id);
    for (const Deletable& row : rows_of(connection_, record_rows, rule_.now))
      if (is_unused(row)) remove_record(row.id);
  }

  void shrink(std::int64_t bytes) {
    if (used_bytes(connection_) <= bytes) return;
    remove_usage_of_nothing();
    const auto records = by_value(rows_of(connection_, record_rows, rule_.now), rule_.newest_record);
    const auto cubins = relied_on_last(by_value(rows_of(connection_, cubin_rows, rule_.now), rule_.newest_cubin));
    remove_counts(bytes, bytes / 10);
    shrink(bytes, records, &Pruning::remove_candidates);
    shrink(bytes, cubins, &Pruning::remove_cubin);
    if (used_bytes(connection_) <= bytes || connection_.number("SELECT count(*) FROM cubin") > 0) return;
    remove_counts(bytes, 0);
    shrink(bytes, records, &Pruning::remove_record);
  }

  std::vector<Deletable> relied_on_last(std::vector<Deletable> cubins) {
    if (!rule_.is_relied_on) return cubins;
    std::unordered_set<std::int64_t> relied_on;
    each_cubin_head(connection_, [&](std::int64_t id, const PackedCubin& cubin) {
      if (rule_.is_relied_on(cubin.key)) relied_on.insert(id);
    });
    std::stable_partition(cubins.begin(), cubins.end(),
                          [&](const Deletable& row) { return !relied_on.contains(row.id); });
    return cubins;
  }

  /// Removes counts until the file takes `bytes` or the counts `share`. A count may cost more bytes than a record and
  /// saves no time.
  void remove_counts(std::int64_t bytes, std::int64_t share) {
    constexpr std::int64_t between_looks = 16;  // a page holds about as many
    const auto counts = counts_of(connection_);
    std::int64_t left = 0, removed = 0;
    for (const Count& each : counts) left += each.bytes;
    for (const Count& each : counts) {
      if (left <= share || (removed % between_looks == 0 && used_bytes(connection_) <= bytes)) break;
      connection_.query("DELETE FROM histogram WHERE op = ? AND problem = ?")
          .bind(std::string_view(each.op))
          .bind(std::string_view(each.problem))
          .run();
      left -= each.bytes;
      ++removed;
    }
    report_.counts += removed;
  }

  void shrink(std::int64_t bytes, const std::vector<Deletable>& rows, void (Pruning::*remove)(std::int64_t)) {
    for (const Deletable& row : rows) {
      if (used_bytes(connection_) <= bytes) return;
      (this->*remove)(row.id);
    }
  }

  /// Counts of use of removed rows would only grow the file.
  void remove_usage_of_nothing() {
    connection_.execute("DELETE FROM usage WHERE source = 'record' AND key NOT IN (SELECT key FROM record)");
    connection_.execute("DELETE FROM usage WHERE source = 'cubin' AND key NOT IN (SELECT lower(hex(key)) FROM cubin)");
  }
  void remove_traces() {
    remove_usage_of_nothing();
    remove_manifest(connection_);
  }

  Connection& connection_;
  const PruneRule& rule_;
  PruneReport report_;
};

}  // namespace

std::int64_t used_bytes(Connection& connection) {
  return (connection.number("PRAGMA page_count") - connection.number("PRAGMA freelist_count")) *
         connection.number("PRAGMA page_size");
}

PruneReport prune(Connection& connection, const PruneRule& rule) { return Pruning(connection, rule).run(); }

}  // namespace kiln::store
