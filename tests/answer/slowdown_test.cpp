// How much slower than tuned configs the model's choices were in the benchmark whose rows are stored.
#include "answer/slowdown.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "answer/near_fixture.hpp"
#include "manifest/catalogue.hpp"
#include "store/transfer.hpp"

using namespace kiln;
using namespace kiln::answer;
using namespace kiln::answer::testing;

namespace {

const std::filesystem::path source = KILN_SOURCE_DIR;

/// Of "m=64 n=64 k=64 dtype=bf16".
Problem problem_of(const manifest::Op& op, const std::string& text) {
  std::vector<manifest::Setting> settings;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    settings.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return manifest::make_problem(op, settings);
}

struct TimedChoice {
  double distance, slowdown;
};

double nearest(const manifest::Bucket& bucket, const std::vector<store::Record>& records) {
  double least = std::numeric_limits<double>::infinity();
  for (const store::Record& each : records)
    if (const auto other = manifest::parse_bucket(*bucket.op, each.bucket))
      if (other->selections == bucket.edge.selections)
        least = std::min(least, axis_distance(*bucket.op, *other, bucket.edge));
  return least;
}

/// The model's choices in bench/results/tuner-DEVICE, each with its distance from the device's shipped records.
void add_timed(std::vector<TimedChoice>& all, const manifest::Op& op, const std::string& device,
               const std::string& dtype) {
  const auto records = store::read_text(source / "cache" / (device + ".jsonl"))->records(op.name);
  const auto facts = manifest::DeviceFacts::from_device_class(records.front().device_class);
  std::ifstream rows(source / "bench/results" / ("tuner-" + device) / ("pairs_" + dtype + ".json"));
  for (std::string line; std::getline(rows, line);) {
    const auto row = nlohmann::json::parse(line);
    if (row.value("stand_in_origin", "") != "model") continue;
    const Problem edge = manifest::bucket_of(op, problem_of(op, row.at("problem")));
    all.push_back({nearest({{op, *facts}, edge}, records), row.at("stand_in_over_kiln")});
  }
}

/// As bench/evidence/table.py has it.
double quantile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

}  // namespace

TEST_CASE("what is expected of the model's choice for a product is what the stored benchmark found") {
  const manifest::Catalogue ops({});
  const manifest::Op& op = *ops.op("gemm");
  std::vector<TimedChoice> timed;
  for (const char* dtype : {"bf16", "f16", "e4m3"}) add_timed(timed, op, "h100", dtype);
  add_timed(timed, op, "h200", "bf16");
  const manifest::Bucket any({op, h200()}, problem_of(op, "m=64 n=64 k=64"));
  for (const auto& range : {std::pair(-1.0, 2.0), std::pair(2.0, 3.5)}) {
    const double above = range.first, distance = range.second;  // clang 14 captures no structured binding
    CAPTURE(distance);
    std::vector<double> slowdowns;
    for (const TimedChoice& each : timed)
      if (each.distance > above && each.distance <= distance) slowdowns.push_back(each.slowdown);
    std::ranges::sort(slowdowns);
    const auto said = benchmarked_slowdown(any, distance);
    REQUIRE(said);
    CHECK(said->problems == static_cast<int>(slowdowns.size()));
    CHECK(said->median == doctest::Approx(quantile(slowdowns, 0.5)).epsilon(0.002));
    CHECK(said->most == doctest::Approx(quantile(slowdowns, 0.95)).epsilon(0.005));
  }
  CHECK(std::ranges::max(timed, {}, &TimedChoice::distance).distance <= 3.5);
}

TEST_CASE("the benchmark speaks of its own op, architecture and distances alone") {
  const manifest::Catalogue ops({});
  const manifest::Op& op = *ops.op("gemm");
  const Problem problem = problem_of(op, "m=64 n=64 k=64");
  CHECK(benchmarked_slowdown({{op, h200()}, problem}, 1));
  CHECK_FALSE(benchmarked_slowdown({{op, h200()}, problem}, 3.6));
  CHECK_FALSE(benchmarked_slowdown({{op, device_of(a100_class)}, problem}, 1));
  const manifest::Op own = rows_op();
  CHECK_FALSE(benchmarked_slowdown({{own, h200()}, sized(64, 4096)}, 1));
}
