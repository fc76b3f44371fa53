// A program has the SQLite that it shares with Kiln share caches among connections. Kiln's files take no part in that.
#include <sqlite3.h>

#include <thread>
#include <vector>

#include "faults/engine/fixture.hpp"

using namespace kiln;
using namespace kiln::faults;

namespace {

struct SharedCaches {
  SharedCaches() { sqlite3_enable_shared_cache(1); }
  ~SharedCaches() { sqlite3_enable_shared_cache(0); }
  SharedCaches(const SharedCaches&) = delete;
  SharedCaches& operator=(const SharedCaches&) = delete;
};

/// What a connection of its own meets as it leases and reads a file, of which others do so too.
std::string met_by(const fs::path& path, const std::string& own, int times) {
  try {
    const auto file = store::File::open(path, store::Access::read_write);
    for (int i = 0; i < times; ++i) {
      if (!file->acquire_lease(own, own, 60)) return "its lease is another's";
      if (file->records({}, false).empty()) return "it has no record";
      file->release_lease(own, own);
    }
    return file->counters().read_failures > 0 ? "reads failed" : "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("fault 111: connections to one file wait for each other where SQLite shares caches") {
  constexpr int threads = 4, times = 100;
  const SharedCaches shared;
  const TemporaryFolder folder;
  const fs::path path = tuned_overlay(folder);
  std::vector<std::string> met(threads);
  {
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&, i] { met[static_cast<std::size_t>(i)] = met_by(path, std::to_string(i), times); });
  }
  for (const std::string& each : met) CHECK(each == "");
  tally(111, threads * times, "leases and reads by connections that might share a cache");
}
