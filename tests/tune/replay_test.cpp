// Tunes that are recorded on the fake driver and repeated from the file, where there is neither a device nor a compiler.
#include "tune/replay.hpp"

#include <fstream>
#include <functional>

#include "manifest/key.hpp"
#include "store/support.hpp"
#include "tune/op_fixture.hpp"
#include "tune/tune_bucket.hpp"

using namespace kiln;
using namespace kiln::tune;

namespace {

using Outcome = Replayed::Outcome;

struct RecordedTunes : testing::OpFixture {
  RecordedTunes() : OpFixture("tests/tune/ops/stair_scale") { search.samples = folder / "samples.jsonl"; }

  TuneResult tune(const std::string& rows) {
    const Problem bucket = problem({{"rows", rows}, {"cols", "64"}, {"dtype", "f32"}});
    TuneRequest request{.bucket = {{op, context.info().facts}, bucket},
                        .device = context.info(),
                        .arch = arch(),
                        .stop_requested = {},
                        .on_event = {}};
    request.search = search;
    TuneResult result = tune_bucket(request, cubins);
    publish(request, result, cubins);
    return result;
  }
  [[nodiscard]] std::vector<SampleJson> lines() const {
    std::vector<SampleJson> all;
    std::ifstream file(search.samples);
    for (std::string line; std::getline(file, line);) all.push_back(read_recording(line));
    return all;
  }
  /// What becomes of the tune of 64 rows once `change` has changed its line.
  Replayed replayed(const std::function<void(SampleJson&)>& change = [](SampleJson&) {}) {
    tune("64");
    SampleJson line = lines().front();
    change(line);
    return replay(line, op);
  }

  store::Folder folder;
  SearchSettings search;
};

/// The rows of one config in `list`, at so many rows where `rows` is not empty.
std::vector<SampleJson*> rows_of(SampleJson& list, const std::string& config, const std::string& rows = "") {
  std::vector<SampleJson*> found;
  for (SampleJson& row : list)
    if (row["config"] == config && row["at"].get<std::string>().starts_with("rows=" + rows)) found.push_back(&row);
  REQUIRE(!found.empty());
  return found;
}

}  // namespace

TEST_CASE("a recorded tune is repeated without a device and chooses the same") {
  RecordedTunes tunes;
  const Replayed found = tunes.replayed();
  CHECK_MESSAGE(found.outcome == Outcome::same, found.why);
  const SampleJson line = tunes.lines().front();
  CHECK(line["choices"].size() == 2);
  CHECK(line["choices"][0]["sizes"] == "rows=33..40");
}

TEST_CASE("a tune that chooses other configs by other times is told with what it chooses") {
  RecordedTunes tunes;
  const Replayed found = tunes.replayed([](SampleJson& line) {
    for (SampleJson* point : rows_of(line["points"], "tile=20", "40 "))
      for (SampleJson& ns : (*point)["ns"]) ns = 2 * ns.get<double>();
  });
  CHECK(found.outcome == Outcome::other);
  CHECK(found.why.find(R"("sizes":"rows=33..64")") != std::string::npos);
}

TEST_CASE("a tune that asks for a point or for runs that were not measured is told with them") {
  RecordedTunes tunes;
  const Replayed without_point = tunes.replayed([](SampleJson& line) {
    std::erase_if(line["points"].get_ref<SampleJson::array_t&>(), [](const SampleJson& point) {
      return point["config"] == "tile=16" && point["at"].get<std::string>().starts_with("rows=64 ");
    });
  });
  CHECK(without_point.outcome == Outcome::not_measured);
  CHECK(without_point.why.find("stairs tile=16 | rows=64 cols=64") == 0);
  const Replayed with_fewer_runs = tunes.replayed([](SampleJson& line) {
    for (SampleJson* point : rows_of(line["points"], "tile=16", "64 ")) (*point)["ns"].erase(0);
  });
  CHECK(with_fewer_runs.outcome == Outcome::not_measured);
  CHECK(with_fewer_runs.why.find("1 more runs than") != std::string::npos);
}

TEST_CASE("a candidate that was not tried is not measured, and one that was rejected stays rejected") {
  RecordedTunes tunes;
  const Replayed unknown = tunes.replayed([](SampleJson& line) {
    for (SampleJson* row : rows_of(line["admissions"], "tile=20")) (*row)["config"] = "tile=21";
  });
  CHECK(unknown.outcome == Outcome::not_measured);
  const Replayed found = tunes.replayed([](SampleJson& line) {
    for (SampleJson* row : rows_of(line["admissions"], "tile=20")) (*row)["verdict"] = "wrong_result";
  });
  CHECK(found.outcome == Outcome::other);
  CHECK(found.why.find("tile=20") == std::string::npos);
}

TEST_CASE("records near a bucket have their part in its replay") {
  RecordedTunes tunes;
  tunes.tune("64");
  tunes.tune("128");
  const std::vector<SampleJson> lines = tunes.lines();
  REQUIRE(lines.size() == 2);
  CHECK(lines[0]["near"].empty());
  CHECK(lines[1]["near"].size() == 1);
  CHECK(replay(lines[1], tunes.op).outcome == Outcome::same);
}

TEST_CASE("a tune that its time limit ended is not repeated") {
  RecordedTunes tunes;
  tunes.search.time_limit = std::chrono::milliseconds(1);
  const Replayed found = tunes.replayed();
  CHECK(found.outcome == Outcome::not_measured);
  CHECK(found.why.find("time limit") != std::string::npos);
}

TEST_CASE("a file of samples that cannot be opened fails the tune before it begins") {
  RecordedTunes tunes;
  tunes.search.samples = tunes.folder / "none" / "samples.jsonl";
  CHECK_THROWS_WITH_AS(tunes.tune("64"), doctest::Contains("cannot be written to"), Error);
  CHECK(tunes.cubins.compiled() == 0);
}

TEST_CASE("a tune is kept though its samples cannot be written") {
  RecordedTunes tunes;
  tunes.search.samples = "/dev/full";
  const TuneResult result = tunes.tune("64");
  CHECK(result.warning.find("are not in /dev/full: No space left on device") != std::string::npos);
  CHECK(tunes.layers.find_record(result.record.key));
}

TEST_CASE("lines that are no recorded tune are refused") {
  RecordedTunes tunes;
  for (const char* text : {"", "{", "[]", "{\"op\":1}"})
    CHECK_THROWS_WITH_AS(read_recording(text), doctest::Contains("a recorded tune cannot be read"), Error);
  CHECK_THROWS_WITH_AS(replay(SampleJson{{"op", "stair_scale"}, {"points", SampleJson::array()}}, tunes.op),
                       doctest::Contains("a recorded tune cannot be read"), Error);
}
