#include "store/diff.hpp"

#include <cmath>
#include <map>

#include "support.hpp"

namespace kiln::store {
namespace {

struct Seen {
  std::map<std::string, RecordChange> by_key;  // without its records and choices
  DiffSummary summary;
};

Seen differences(File& before, File& after) {
  Seen seen;
  std::string last;
  seen.summary = diff(before, after, [&](const RecordChange& change) {
    const std::string key = change.either().key;
    CHECK(last < key);
    last = key;
    RecordChange copy = change;
    copy.before = copy.after = nullptr;
    copy.choices.clear();
    seen.by_key.emplace(key, std::move(copy));
  });
  return seen;
}

TEST_CASE("records are gained, lost, changed or the same") {
  const auto before = File::in_memory(), after = File::in_memory();
  before->put(sample_record("lost"), nullptr);
  after->put(sample_record("gained"), nullptr);
  for (const auto& file : {before.get(), after.get()}) file->put(sample_record("same", 1000), nullptr);
  before->put(sample_record("slower", 1000), nullptr);
  after->put(sample_record("slower", 2000), nullptr);
  before->put(sample_record("within", 1000), nullptr);  // 990 to 1010
  after->put(sample_record("within", 1015), nullptr);
  auto other = sample_record("winner", 1000);
  before->put(other, nullptr);
  other.choices[1].config = "algorithm=8";
  after->put(other, nullptr);

  const Seen seen = differences(*before, *after);
  const auto change = [&](const char* key) { return seen.by_key.at(key).change; };
  CHECK(change("lost") == Change::lost);
  CHECK(change("gained") == Change::gained);
  CHECK(change("same") == Change::same);
  CHECK(change("slower") == Change::changed);
  CHECK(change("within") == Change::same);
  CHECK(change("winner") == Change::changed);
  CHECK(seen.by_key.at("winner").other_choices);
  CHECK(seen.by_key.at("winner").intervals_overlap);
  CHECK_FALSE(seen.by_key.at("slower").other_choices);
  CHECK_FALSE(seen.by_key.at("slower").intervals_overlap);
  CHECK(seen.by_key.at("slower").cost_ratio == doctest::Approx(2));
  CHECK(seen.by_key.at("lost").cost_ratio == 0);
  CHECK(seen.summary.gained == 1);
  CHECK(seen.summary.lost == 1);
  CHECK(seen.summary.changed == 2);
  CHECK(seen.summary.same == 2);
  CHECK(seen.summary.geometric_mean_ratio == doctest::Approx(std::pow(2 * 1.015, 0.25)));
  CHECK(seen.summary.differ());
}

TEST_CASE("a file does not differ from itself, nor two empty files") {
  const auto file = File::in_memory(), empty = File::in_memory();
  for (int at = 0; at < 300; ++at) file->put(sample_record("key" + std::to_string(at)), nullptr);  // several batches
  const Seen seen = differences(*file, *file);
  CHECK(seen.summary.same == 300);
  CHECK_FALSE(seen.summary.differ());
  CHECK(seen.summary.geometric_mean_ratio == doctest::Approx(1));
  CHECK(differences(*empty, *file).summary.gained == 300);
  CHECK(differences(*file, *empty).summary.lost == 300);
  CHECK(differences(*empty, *empty).summary.geometric_mean_ratio == 0);
}

TEST_CASE("records that differ in one choice are told apart by it") {
  const auto before = sample_record("key", 1000);
  CHECK(compare(&before, &before).choices.empty());
  auto after = before;
  after.choices[0].config = "threads=128 vector=8";
  auto change = compare(&before, &after);
  CHECK(change.change == Change::changed);
  CHECK(change.other_choices);
  CHECK(change.cost_ratio == 1);
  REQUIRE(change.choices.size() == 1);
  CHECK(change.choices[0].before == &before.choices[0]);
  CHECK(change.choices[0].after == &after.choices[0]);
  CHECK(change.choices[0].other_config);
  CHECK(change.choices[0].intervals_overlap);

  after = before;
  after.choices[2] = sample_choice(Role::without_library, "rows=257..512", "vectorized", "threads=256 vector=8", 2000);
  change = compare(&before, &after);
  CHECK(change.change == Change::changed);
  CHECK_FALSE(change.other_choices);
  CHECK_FALSE(change.intervals_overlap);
  REQUIRE(change.choices.size() == 1);
  CHECK(change.choices[0].either().role == Role::without_library);

  after = before;
  after.choices[0].sizes = "rows=257..400";
  change = compare(&before, &after);
  CHECK(change.change == Change::changed);
  CHECK(change.other_choices);
  CHECK(change.intervals_overlap);  // of the choices whose sizes both records have
  REQUIRE(change.choices.size() == 2);
  CHECK(change.choices[0].after == nullptr);
  CHECK(change.choices[0].either().sizes == "rows=257..384");
  CHECK(change.choices[1].before == nullptr);
  CHECK(change.choices[1].either().sizes == "rows=257..400");

  after = before;
  after.choices.pop_back();
  CHECK(compare(&before, &after).change == Change::changed);
  CHECK(compare(&after, &before).change == Change::changed);
}

TEST_CASE("what differs in the environment is named") {
  const auto before = sample_record("key");
  auto after = before;
  after.provenance.driver_version = 13010;
  for (const std::size_t own : {0, 2}) after.choices[own].compiler = "nvrtc 13.1";
  const auto change = compare(&before, &after);
  REQUIRE(change.environment.size() == 2);
  CHECK(change.environment[0].name == "driver");
  CHECK(change.environment[0].before == "13000");
  CHECK(change.environment[0].after == "13010");
  CHECK(change.environment[1].before == "library 13.0, nvrtc 13.0");
  CHECK(change.environment[1].after == "library 13.0, nvrtc 13.1");
  CHECK(compare(&before, &before).environment.empty());
}

}  // namespace
}  // namespace kiln::store
