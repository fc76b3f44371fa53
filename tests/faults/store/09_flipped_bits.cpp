#include "faults/store/samples.hpp"
#include "faults/tally.hpp"

namespace kiln::store {
namespace {

namespace fs = std::filesystem;

constexpr int rows = 3;

/// What was found in a damaged file, against what was put.
struct Findings {
  std::int64_t wrong = 0, quarantined = 0;

  void look_up(File& file) {
    for (int at = 0; at < rows; ++at) {
      if (const auto found = file.find_record(sample_key(at), true)) compare(*found, sample_record_at(at));
      const auto cubin = file.find_cubin(digest_named(std::to_string(at)));
      if (cubin && !same(*cubin, sample_cubin_at(at))) ++wrong;
    }
  }
  void list(File& file) {
    for (const Record& record : file.records({}, true)) {
      int at = 0;
      while (at < rows && sample_key(at) != record.key) ++at;
      if (at == rows)
        ++wrong;
      else
        compare(record, sample_record_at(at));
    }
    for (const HistogramRow& row : file.histogram())
      if (row.op != "rms_norm" || row.problem != "rows=1" || row.launches != 5) ++wrong;
  }
  /// Candidates are rows of their own: each is there as it was put, or set aside.
  void compare(Record found, const Record& wanted) {
    std::size_t matched = 0;
    for (const store::TriedCandidate& candidate : wanted.candidates)
      if (matched < found.candidates.size() && same(found.candidates[matched], candidate)) ++matched;
    if (matched != found.candidates.size()) ++wrong;
    found.candidates = wanted.candidates;
    if (!same(found, wanted)) ++wrong;
  }
};

TEST_CASE("fault 09: flipping any byte of a file gives the right rows or none, never wrong ones") {
  const Folder folder;
  const auto path = sample_file(folder / "whole.kiln", rows);
  File::open(path, Access::read_write)->add_to_histogram({{"rms_norm", "rows=1", 5}});
  const auto whole = bytes_of(path);
  const auto copy = folder / "flipped.kiln";
  constexpr std::size_t stride = 29;
  Findings findings;
  std::int64_t cases = 0, refused = 0;
  for (std::size_t at = 0; at < whole.size(); at += stride, ++cases) {
    auto flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << (cases % 8)));
    write_bytes(copy, flipped);
    CAPTURE(at);
    try {
      const auto file = File::open(copy, cases % 2 == 0 ? Access::read_only : Access::read_write);
      findings.look_up(*file);
      findings.list(*file);
      findings.quarantined += file->counters().quarantined;
    } catch (const Error& error) {
      ++refused;
      CHECK(error.kind() == ErrorKind::bad_file);
    }
  }
  CHECK(findings.wrong == 0);
  CHECK(findings.quarantined > 100);
  CHECK(refused > 10);
  faults::tally(9, cases, "bytes flipped");
}

TEST_CASE(
    "fault 09: a row whose content was changed is a miss: set aside in a file that can be written, ignored in a base") {
  const Folder folder;
  const auto path = sample_file(folder / "sample.kiln");
  run_sql(path,
          "UPDATE choice SET config = 'threads=1024 vector=8' WHERE record = 2 AND position = 1;"
          "UPDATE candidate SET cost_ns = 1 WHERE position = 0;"
          "UPDATE cubin SET lowered_names = '[\"evil\"]' WHERE id = 2");
  const auto before = bytes_of(path);
  {
    const auto base = File::open(path, Access::read_only);
    CHECK(!base->find_record("key1"));
    CHECK(base->find_record("key0", true)->candidates.size() == 1);
    CHECK(base->records().size() == 2);
    CHECK(base->cubins().size() == 2);
    CHECK(base->counters().quarantined == 4);
  }
  CHECK(bytes_of(path) == before);
  const auto overlay = File::open(path, Access::read_write);
  CHECK(!overlay->find_record("key1"));
  CHECK(overlay->records({}, true).size() == 2);
  CHECK(!overlay->find_cubin(digest_named("1")));
  CHECK(overlay->counters().quarantined == 4);
  CHECK(rows_of(path, "SELECT count(*) FROM quarantine") == "4\n");
  CHECK(overlay->stats().records == 2);
  overlay->put(sample_record("key1"), nullptr);
  CHECK(overlay->find_record("key1"));
  faults::tally(9, 8, "rows changed");
}

TEST_CASE("fault 09: a damaged lease or count does not block anyone") {
  const Folder folder;
  const auto path = sample_file(folder / "sample.kiln", 0);
  const auto file = File::open(path, Access::read_write);
  CHECK(file->acquire_lease("key", "a", 1000));
  file->add_to_histogram({{"op", "rows=1", 5}});
  run_sql(path, "UPDATE lease SET term_seconds = 1 << 60; UPDATE histogram SET launches = 1 << 60");
  CHECK(file->acquire_lease("key", "b", 1000));
  CHECK(file->histogram().empty());
  CHECK(file->counters().quarantined == 1);
  faults::tally(9, 2, "leases and counts changed");
}

}  // namespace
}  // namespace kiln::store
