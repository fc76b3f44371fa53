// Eight processes of eight threads at one file, doing everything at once. KILN_HAMMER_SECONDS says for how long.
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "faults/store/samples.hpp"
#include "store/transfer.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int processes = 8, threads = 8, leases = 6;
constexpr std::size_t cubin_bytes = 2000;

/// What all of them did, in memory that they share.
struct Ledger {
  std::array<std::array<std::atomic<std::int64_t>, threads>, processes> puts{};
  std::array<std::atomic<int>, leases> holders{};
  std::atomic<std::int64_t> commits = 0, look_ups = 0, launches = 0, held = 0;
  std::atomic<std::int64_t> wrong_rows = 0, lost_rows = 0, shared_leases = 0, refused = 0, failures = 0;
  std::atomic<std::int64_t> longest_ms = 0;
};

std::string name_of(int process, int thread, std::int64_t number) {
  return std::to_string(process) + "/" + std::to_string(thread) + "/" + std::to_string(number);
}

/// One thread of one process: its own rows, everybody's counts, a few leases that all of them want.
class Worker {
 public:
  Worker(File& file, Ledger& ledger, int process, int thread)
      : file_(file),
        ledger_(ledger),
        process_(process),
        thread_(thread),
        random_(static_cast<unsigned>(process * threads + thread)) {}

  void run_until(Clock::time_point end) {
    while (Clock::now() < end) {
      const auto begin = Clock::now();
      try {
        step();
      } catch (const Error&) {
        ++ledger_.refused;
      }
      const std::int64_t took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
      for (auto longest = ledger_.longest_ms.load();
           took > longest && !ledger_.longest_ms.compare_exchange_weak(longest, took);) {
      }
    }
  }

 private:
  int draw(int below) { return std::uniform_int_distribution(0, below - 1)(random_); }
  std::atomic<std::int64_t>& puts() {
    return ledger_.puts[static_cast<std::size_t>(process_)][static_cast<std::size_t>(thread_)];
  }

  void step() {
    switch (draw(8)) {
      case 0:
      case 1: return put();
      case 2: return merge();
      case 3: return lease();
      case 4: return count();
      default: return look_up();
    }
  }
  void put() {
    const auto number = puts().load();
    const auto name = name_of(process_, thread_, number);
    const auto cubin = sample_cubin(name, cubin_bytes);
    file_.put(sample_record(name, static_cast<double>(number)), &cubin);
    ++puts();
    ++ledger_.commits;
  }
  void merge() {
    const auto number = puts().load();
    const auto name = name_of(process_, thread_, number);
    const auto other = File::in_memory();
    const auto cubin = sample_cubin(name, cubin_bytes);
    other->put(sample_record(name, static_cast<double>(number)), &cubin);
    merge_into(*other, file_);
    ++puts();
    ++ledger_.commits;
  }
  void lease() {
    const auto which = static_cast<std::size_t>(draw(leases));
    const auto key = "lease" + std::to_string(which);
    const auto holder = name_of(process_, thread_, 0);
    if (!file_.acquire_lease(key, holder, 3600)) return;
    if (ledger_.holders[which]++ != 0) ++ledger_.shared_leases;
    std::this_thread::sleep_for(std::chrono::milliseconds(draw(3)));
    --ledger_.holders[which];
    ++ledger_.held;
    while (!try_release(key, holder)) ++ledger_.refused;
    ledger_.commits += 2;
  }
  bool try_release(const std::string& key, const std::string& holder) try {
    file_.release_lease(key, holder);
    return true;
  } catch (const Error&) {
    return false;
  }
  void count() {
    file_.add_to_histogram({{"op", "rows=" + std::to_string(draw(3)), 1}});
    ++ledger_.launches;
    ++ledger_.commits;
  }
  void look_up() {
    const int process = draw(processes), thread = draw(threads);
    const auto known = ledger_.puts[static_cast<std::size_t>(process)][static_cast<std::size_t>(thread)].load();
    if (known == 0) return;
    const auto number = std::uniform_int_distribution<std::int64_t>(0, known - 1)(random_);
    const auto name = name_of(process, thread, number);
    const auto record = file_.find_record(name, true);
    const auto cubin = file_.find_cubin(digest_named(name));
    if (!record || !cubin)
      ++ledger_.lost_rows;
    else if (!same(*record, sample_record(name, static_cast<double>(number))) ||
             !same(*cubin, sample_cubin(name, cubin_bytes)))
      ++ledger_.wrong_rows;
    ++ledger_.look_ups;
  }

  File& file_;
  Ledger& ledger_;
  int process_, thread_;
  std::mt19937 random_;
};

/// Half of the threads share one object, the others have one each.
bool hammer(const fs::path& path, Ledger& ledger, int process) {
  alarm(static_cast<unsigned>(hammer_time(5).count()) + 60);  // what is stuck ends by this, and fails the test
  const auto shared = File::open(path, Access::read_write);
  const auto end = Clock::now() + hammer_time(5);
  std::vector<std::thread> running;
  for (int thread = 0; thread < threads; ++thread)
    running.emplace_back([&, thread] {
      const auto own = thread % 2 == 0 ? nullptr : File::open(path, Access::read_write);
      File& file = own ? *own : *shared;
      Worker(file, ledger, process, thread).run_until(end);
      if (own) ledger.failures += own->counters().quarantined + own->counters().read_failures;
    });
  for (std::thread& thread : running) thread.join();
  ledger.failures += shared->counters().quarantined + shared->counters().read_failures;
  return true;
}

void check_nothing_is_lost(const fs::path& path, const Ledger& ledger) {
  const auto file = File::open(path, Access::read_only);
  std::int64_t puts = 0, missing = 0;
  for (int process = 0; process < processes; ++process)
    for (int thread = 0; thread < threads; ++thread) {
      const auto count = ledger.puts[static_cast<std::size_t>(process)][static_cast<std::size_t>(thread)].load();
      for (std::int64_t number = 0; number < count; ++number) {
        const auto name = name_of(process, thread, number);
        const auto record = file->find_record(name, true);
        if (!record || !same(*record, sample_record(name, static_cast<double>(number))) ||
            !file->find_cubin(digest_named(name)))
          ++missing;
      }
      puts += count;
    }
  CHECK(missing == 0);
  CHECK(file->stats().records >= puts);  // a put that was refused may have happened nevertheless
  std::int64_t launches = 0;
  for (const HistogramRow& row : file->histogram()) launches += row.launches;
  CHECK(launches == ledger.launches);
  CHECK(file->stats().leases == 0);
  CHECK(quick_check(path) == "ok\n");
}

TEST_CASE("hammer: eight processes of eight threads lose nothing and none of them is stuck") {
  const Folder folder;
  const auto path = folder / "a.kiln";
  void* const memory = mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  Ledger& ledger = *new (memory) Ledger;
  std::array<pid_t, processes> children{};
  int started = 0;
  for (pid_t& child : children) {
    const int process = started++;
    child = in_child([&] { return hammer(path, ledger, process); });
  }
  for (const pid_t child : children) CHECK(exit_status(child) == 0);
  MESSAGE(ledger.commits.load(), " commits, ", ledger.look_ups.load(), " look-ups, ", ledger.held.load(),
          " leases held, ", ledger.refused.load(), " refused, the longest step ", ledger.longest_ms.load(), " ms");
  CHECK(ledger.commits > 100);
  CHECK(ledger.wrong_rows == 0);
  CHECK(ledger.lost_rows == 0);
  CHECK(ledger.shared_leases == 0);
  CHECK(ledger.refused == 0);
  CHECK(ledger.failures == 0);
  check_nothing_is_lost(path, ledger);
  munmap(memory, sizeof(Ledger));
}

}  // namespace
}  // namespace kiln::store
