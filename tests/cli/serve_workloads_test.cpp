// cache/workloads/serve_*.toml: what models launch, and how many of these problems the records that ship answer.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/model_workload.hpp"
#include "cli/workload.hpp"

using namespace kiln;
using namespace kiln::cli;

namespace {

namespace fs = std::filesystem;

const fs::path source_folder = KILN_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.is_open(), path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// "llama3_8b" for each serve_llama3_8b.toml.
std::vector<std::string> served_models() {
  constexpr std::string_view prefix = "serve_";
  std::vector<std::string> models;
  for (const auto& each : fs::directory_iterator(source_folder / "cache/workloads"))
    if (const std::string stem = each.path().stem().string(); stem.starts_with(prefix))
      models.push_back(stem.substr(prefix.size()));
  std::sort(models.begin(), models.end());
  return models;
}

std::string workload_of(const std::string& model) {
  return text_of(source_folder / "cache/workloads" / ("serve_" + model + ".toml"));
}

using Bucket = std::pair<std::string, std::string>;  // op, bucket

std::set<Bucket> buckets_with_record(const char* device) {
  std::ifstream lines(source_folder / "cache" / fmt::format("{}.jsonl", device));
  std::set<Bucket> found;
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line);
    found.emplace(record.at("op").get<std::string>(), record.at("bucket").get<std::string>());
  }
  return found;
}

std::int64_t counted(const std::vector<OpBucket>& buckets, const std::set<Bucket>& with_record) {
  return std::count_if(buckets.begin(), buckets.end(), [&](const OpBucket& each) {
    return with_record.count({each.op->name, manifest::to_string(*each.op, each.bucket)}) > 0;
  });
}

}  // namespace

TEST_CASE("the workloads that serve models are what kiln workload writes for their configurations") {
  REQUIRE(served_models().size() >= 8);
  for (const std::string& model : served_models()) {
    CAPTURE(model);
    const ModelConfig config =
        parse_model_config(text_of(source_folder / "tests/cli/models" / (model + ".json")), model + ".json");
    CHECK(workload_of(model).ends_with(model_workload(config, {.projections = Projections::joined})));
  }
}

TEST_CASE("the documented coverage of models is that of the records that ship") {
  const manifest::Catalogue ops{std::vector<fs::path>{}};
  const std::string document = text_of(source_folder / "docs/deployment.md");
  const auto h100 = buckets_with_record("h100"), h200 = buckets_with_record("h200");
  for (const std::string& model : served_models()) {
    const auto buckets = buckets_of_workload(parse_workload(workload_of(model), model), ops);
    const std::string row = fmt::format("| `serve_{}.toml` | {} | {} | {} |", model, buckets.size(),
                                        counted(buckets, h100), counted(buckets, h200));
    CHECK_MESSAGE(document.find(row) != std::string::npos, row);
  }
}
