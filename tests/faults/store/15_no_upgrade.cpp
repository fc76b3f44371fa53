#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "faults/store/operations.hpp"
#include "faults/store/samples.hpp"
#include "faults/tally.hpp"
#include "store/opening.hpp"

namespace kiln::store {
namespace {

/// Listens to the statements of every connection that this process opens: each write must stand in a transaction that began
/// as one.
class Listener {
 public:
  Listener() {
    listening_ = this;
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(attach));
  }
  ~Listener() {
    sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(attach));
    listening_ = nullptr;
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  [[nodiscard]] std::int64_t writes() const { return writes_; }
  [[nodiscard]] std::string upgrades() const { return upgrades_; }

 private:
  static int attach(sqlite3* database, const char**, const void*) {
    listening_->begun_[database] = "";
    return sqlite3_trace_v2(database, SQLITE_TRACE_STMT, heard, database);
  }
  static int heard(unsigned, void* database, void* statement, void*) {
    if (listening_ != nullptr) listening_->hear(static_cast<sqlite3*>(database), static_cast<sqlite3_stmt*>(statement));
    return 0;
  }
  void hear(sqlite3* database, sqlite3_stmt* statement) {
    if (*sqlite3_db_filename(database, "main") == '\0') return;  // in memory, where nobody else is
    const std::string sql = sqlite3_sql(statement);
    std::string& begun = begun_[database];
    if (sql.starts_with("BEGIN")) begun = sql;
    if (sql == "COMMIT" || sql == "ROLLBACK") begun = "";
    if (sqlite3_stmt_readonly(statement) != 0 || sql.starts_with("PRAGMA") || sql == "VACUUM") return;
    ++writes_;
    if (begun != "BEGIN IMMEDIATE") upgrades_ += sql + " after '" + begun + "'\n";
  }

  inline static Listener* listening_ = nullptr;
  std::map<sqlite3*, std::string> begun_;
  std::int64_t writes_ = 0;
  std::string upgrades_;
};

TEST_CASE("fault 15: no operation turns a read transaction into a write transaction") {
  std::int64_t cases = 0, writes = 0;
  for (const Operation& operation : operations()) {
    const Folder folder;
    operation.prepare(folder.path());
    const Listener listener;
    Scene scene = make_scene(operation, folder.path());
    CAPTURE(operation.name);
    CHECK(run(operation, scene) == Outcome::done);
    scene.file.reset();
    CHECK(listener.upgrades() == "");
    writes += listener.writes();
    ++cases;
  }
  CHECK(writes > 50);
  faults::tally(15, cases, "operations whose every statement is heard");
}

TEST_CASE("fault 15: writers wait for a long reader, and all come through") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln");
  Connection reader = open_existing(path, Access::read_only);
  Transaction reading(reader, Transaction::Kind::read);
  Query rows = reader.query("SELECT key FROM record");
  REQUIRE(rows.step());
  constexpr int writers = 4;
  std::atomic<int> written = 0;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer)
    threads.emplace_back([&, writer] {
      const auto file = File::open(path, Access::read_write);
      if (file->find_record("key0") && refusal([&] { file->put(sample_record_at(10 + writer), nullptr); }).empty())
        ++written;
    });
  usleep(400 * 1000);
  CHECK(written == 0);  // a commit needs the file to itself
  while (rows.step()) {
  }
  reading.commit();
  for (std::thread& thread : threads) thread.join();
  CHECK(written == writers);
  CHECK(File::open(path, Access::read_only)->stats().records == 3 + writers);
  faults::tally(15, writers, "writers behind a long reader");
}

// Each finds damage while it reads, and then writes: had it kept its read lock, two of them would wait for each other.
TEST_CASE("fault 15: connections that set rows aside at once do not block each other") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", 40);
  run_sql(path, "UPDATE choice SET config = 'threads=1'");
  constexpr int readers = 4;
  std::vector<std::thread> threads;
  std::atomic<std::int64_t> failures = 0;
  for (int reader = 0; reader < readers; ++reader)
    threads.emplace_back([&] {
      const auto file = File::open(path, Access::read_write);
      for (int at = 0; at < 40; ++at)
        if (file->find_record(sample_key(at))) ++failures;
      failures += file->counters().read_failures + file->counters().write_failures;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(rows_of(path, "SELECT count(*) FROM quarantine; SELECT count(*) FROM record") == "40\n0\n");
  faults::tally(15, readers, "connections that set the same rows aside");
}

}  // namespace
}  // namespace kiln::store
