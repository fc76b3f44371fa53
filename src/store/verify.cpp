#include "store/verify.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <array>
#include <iterator>

#include "store/columns.hpp"
#include "store/custody.hpp"
#include "store/opening.hpp"
#include "store/tables.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 11> tables = {"meta",  "record", "choice",    "candidate", "cubin",     "image",
                                                "lease", "usage",  "histogram", "manifest",  "quarantine"};

void check_meta(Connection& connection, Flaws& flaws) {
  Query query = connection.query("SELECT name, value, digest FROM meta ORDER BY name");
  while (query.step()) {
    const auto digest =
        manifest::Hasher().field(std::string_view("meta")).field(query.text(0)).field(query.text(1)).finish();
    if (!same_bytes(query.blob(2), digest))
      flaws.push_back({"meta", std::string(query.text(0)), std::string(digest_mismatch), {}});
  }
}

/// One pass over a file. A table that SQLite cannot read to its end counts as one flaw, and the pass goes on with the
/// next.
class Verifying {
 public:
  Verifying(const fs::path& path, std::size_t most, const Format& format)
      : path_(path), most_(most), format_(format), rows_(open_existing(path, Access::read_only, nullptr, format)) {}

  Verification run() {
    // Of a file of an earlier version, `rows_` is a migrated copy in memory. Else one connection reads all: a second
    // one would wait for a writer that waits for the first.
    Connection original;
    if (rows_.is_in_memory()) original = Connection::open(path_.native(), OpenMode::read_only);
    Connection& raw = original.is_open() ? original : rows_;
    const Transaction transaction(raw, Transaction::Kind::read);
    result_.version = version_of(raw);
    attempt("file", [&] { check_structure(raw); });
    attempt("manifest", [&] { check_seal(raw); });
    if (result_.version != format_.version) take_migration_flaws(raw);
    check_rows();
    attempt("file", [&] { note_contents(); });
    note_custody();
    return std::move(result_);
  }

 private:
  void add(std::string table, std::string key, std::string reason) {
    ++result_.flaws;
    if (result_.first.size() < most_) result_.first.push_back({std::move(table), std::move(key), std::move(reason)});
  }
  void add(Flaws& flaws) {
    for (Flaw& flaw : flaws) add(std::move(flaw.source), std::move(flaw.key), std::move(flaw.reason));
    flaws.clear();
  }

  template <class Work>
  void attempt(const std::string& table, Work&& work) {
    try {
      work();
    } catch (const SqliteFailure& failure) {
      if (!failure.damaged() && !failure.too_big()) throw to_error(path_, "read", failure);
      add(table, "", fmt::format("it cannot be read to its end: {}", failure.what()));
    }
  }

  void check_structure(Connection& raw) {
    {
      Query query = raw.query("PRAGMA integrity_check");  // unlike quick_check, also compares indexes with tables
      while (query.step())
        if (query.text(0) != "ok") add("file", "", std::string(query.text(0)));
    }
    Query query = raw.query("PRAGMA foreign_key_check");
    while (query.step())
      add(std::string(query.text(0)), query.text(1).empty() ? "" : fmt::format("row {}", query.text(1)),
          fmt::format("it belongs to no {}", query.text(2)));
  }

  void check_seal(Connection& raw) {
    result_.seal = read_seal(raw);
    if (result_.seal.flaw.empty()) result_.seal.flaw = content_flaw(raw, SealedTables::all, result_.seal);
    if (!result_.seal.flaw.empty()) add("manifest", "", result_.seal.flaw);
  }

  /// Rows that failed in the migration follow the file's own in the quarantine table in memory.
  void take_migration_flaws(Connection& raw) {
    const std::int64_t known = raw.number("SELECT coalesce(max(id), 0) FROM quarantine");
    Query query = rows_.query("SELECT source, key, reason FROM quarantine WHERE id > ? ORDER BY id");
    query.bind(known);
    while (query.step()) add(std::string(query.text(0)), std::string(query.text(1)), std::string(query.text(2)));
    result_.notes.push_back(
        fmt::format("its format is version {}, the present one is {}; it is brought there when it is next written",
                    result_.version, format_.version));
  }

  /// A damaged index may loop, hence the second condition of each loop. A short batch is the last one: another would
  /// count the flaws after it again.
  void check_rows() {
    constexpr std::int64_t batch = 64;
    Flaws flaws;
    attempt("meta", [&] { check_meta(rows_, flaws); });
    attempt("record", [&] {
      std::string last;
      for (bool goes_on = true; goes_on;) {
        const auto records = list_records_after(rows_, last, batch, flaws);
        add(flaws);
        goes_on = std::ssize(records) == batch && last < records.back().key;
        if (goes_on) last = records.back().key;
      }
    });
    attempt("cubin", [&] {
      manifest::Digest last{};
      std::span<const std::byte> after;  // empty comes before any key
      for (bool goes_on = true; goes_on;) {
        const auto cubins = list_cubins_after(rows_, after, batch, flaws);
        add(flaws);
        goes_on = std::ssize(cubins) == batch && last < cubins.back().key;
        if (goes_on) last = cubins.back().key;
        after = last;
      }
    });
    attempt("lease", [&] { check_leases(rows_, flaws); });
    attempt("usage", [&] { list_usage(rows_, flaws); });
    attempt("histogram", [&] { list_histogram(rows_, flaws); });
    add(flaws);
  }

  void note_count(std::int64_t count, std::string_view what) {
    if (count > 0) result_.notes.push_back(fmt::format("{} {}", count, what));
  }

  void note_contents() {
    for (const char* table : tables)
      result_.tables.push_back({table, rows_.number(fmt::format("SELECT count(*) FROM {}", table))});
    note_count(rows_.number("SELECT count(*) FROM quarantine"),
               "rows were set aside earlier because they did not hold");
    note_count(rows_.number("SELECT count(*) FROM cubin WHERE op <> '' AND op NOT IN (SELECT op FROM record)"),
               "cubins are of ops of which it holds no record");
    note_count(
        rows_.number("SELECT count(*) FROM usage WHERE (source = 'record' AND key NOT IN (SELECT key FROM record)) OR "
                     "(source = 'cubin' AND key NOT IN (SELECT lower(hex(key)) FROM cubin))"),
        "counts of use are of rows that are gone");
    if (result_.seal.manifest.empty() && result_.seal.flaw.empty())
      result_.notes.emplace_back("it is not sealed, so that a row that is missing is not noticed");
  }

  void note_custody() {
    if (const auto objection = file_objection(path_); !objection.empty())
      result_.notes.push_back(fmt::format("it would not be written to: {}", objection));
    const Trust owner = owner_trust(path_);
    if (!owner.trusted)
      result_.notes.push_back(fmt::format("the policy `owner` takes no machine code from it: {}", owner.why));
  }

  const fs::path& path_;
  const std::size_t most_;
  const Format& format_;
  Connection rows_;
  Verification result_;
};

}  // namespace

Verification verify(const fs::path& path, std::size_t most_flaws, const Format& format) {
  const fs::path resolved = readable_path(path);
  try {
    return Verifying(resolved, most_flaws, format).run();
  } catch (const SqliteFailure& failure) {
    throw to_error(resolved, "read", failure);
  }
}

}  // namespace kiln::store
