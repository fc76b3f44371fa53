// A file that counts of launches keep large, and a size that they would have cost the records.
#include <ctime>

#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

constexpr int records = 40, counts = 3000;

std::string problem_at(int at) { return "rows=" + std::to_string(at) + " " + std::string(150, 'x'); }

void add_counts(File& file) {
  std::vector<HistogramRow> rows;
  for (int at = 0; at < counts; ++at) rows.push_back({"rms_norm", problem_at(at), 1 + at});
  file.add_to_histogram(rows);
}

PruneRule down_to(std::int64_t bytes) {
  PruneRule rule;
  rule.max_bytes = bytes;
  rule.now = std::time(nullptr);
  rule.must_reach = true;
  return rule;
}

std::int64_t used(File& file) { return file.stats().file_bytes - file.stats().free_bytes; }

TEST_CASE("fault 90: a size that only counts stand in the way of costs counts, the smallest first, and nothing else") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", records, 60);
  const auto file = File::open(path, Access::read_write);
  const std::int64_t without = used(*file);
  add_counts(*file);
  REQUIRE(used(*file) > 3 * without);
  const auto report = file->prune(down_to(2 * without));
  CHECK(used(*file) <= 2 * without);
  CHECK(report.counts > 0);
  CHECK(report.records + report.candidates + report.cubins == 0);
  CHECK(file->stats().records == records);
  CHECK(file->stats().candidates == 2 * records);
  const auto left = file->histogram();
  REQUIRE(!left.empty());
  CHECK(static_cast<std::int64_t>(left.size()) == counts - report.counts);
  CHECK(left.front().problem == problem_at(counts - 1));
  faults::tally(90, 1, "files that counts keep large");
}

TEST_CASE("fault 90: every count goes before the first record") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", records, 60);
  const auto file = File::open(path, Access::read_write);
  add_counts(*file);
  std::int64_t cases = 0;
  for (std::int64_t size = used(*file); size > 120000; size = size * 3 / 4, ++cases) {
    (void)file->prune(down_to(size));
    CHECK(used(*file) <= size);
    const FileStats stats = file->stats();
    CHECK((stats.records == records || (stats.histogram_rows == 0 && stats.cubins == 0)));
  }
  CHECK(cases > 4);
  faults::tally(90, cases, "sizes of a file with counts");
}

TEST_CASE("fault 90: a size that cannot be reached is refused, and nothing is deleted") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", records, 60);
  const auto before = bytes_of(path);
  const auto file = File::open(path, Access::read_write);
  for (const std::int64_t size : {0, 1, 4096, 40000}) {
    const auto said = refusal([&] { (void)file->prune(down_to(size)); });
    CHECK_MESSAGE(contains(said, "bad_input: the size of " + std::to_string(size) + " bytes cannot be reached"), said);
  }
  CHECK(bytes_of(path) == before);
  faults::tally(90, 4, "sizes that cannot be reached");
}

TEST_CASE("fault 90: an overlay at its limit loses counts before records") {
  const Folder folder;
  const auto path = sample_file(folder / "a.kiln", records, 60);
  const auto file = File::open(path, Access::read_write, 400000);
  add_counts(*file);
  REQUIRE(used(*file) > 400000);
  file->put(sample_record("one more"), nullptr);
  CHECK(used(*file) <= 400000);
  CHECK(file->stats().records == records + 1);
  CHECK(file->stats().cubins == records);
  faults::tally(90, 1, "overlays at their limit with counts");
}

}  // namespace
}  // namespace kiln::store
