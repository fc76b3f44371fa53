// cache/workloads/serve_*.toml: what models launch, and how many of these problems the records that ship answer.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "answer/resolver.hpp"
#include "cli/demand.hpp"
#include "cli/model_workload.hpp"
#include "cli/target.hpp"
#include "cli/torch_workload.hpp"
#include "cli/workload.hpp"
#include "command.hpp"

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

ModelConfig config_of(const std::string& model) {
  return parse_model_config(text_of(source_folder / "tests/cli/models" / (model + ".json")), model + ".json");
}

/// What the records that ship for a device answer of workloads, as kiln coverage counts it.
class Shipped {
 public:
  explicit Shipped(const std::string& device) : globals_(these_alone(device)), layers_(open_layers(globals_)) {
    TargetChoice named;
    named.device_class = device_class_named(device == "h100" ? "H100" : "H200");
    facts_ = choose_target(globals_, named, layers_, false).facts;
  }

  struct Covered {
    std::size_t buckets = 0, hits = 0;
    double time = 0;
  };
  Covered of(const std::string& file) {
    DemandSource source;
    source.workloads = {file};
    const Demands demands = read_demands(source, ops_, facts_, layers_);
    Covered covered{.buckets = demands.buckets.size()};
    for (const CountedBucket& each : demands.buckets)
      if (answer::resolve({*each.of.op, facts_, Regime::cold_l2}, each.of.bucket, layers_, false).is_hit()) {
        ++covered.hits;
        covered.time += demands.time_share(each);
      }
    return covered;
  }

 private:
  static Globals these_alone(const std::string& device) {
    Globals globals;
    globals.overlay = "";
    globals.bases = {source_folder / "cache" / fmt::format("{}.jsonl", device)};
    return globals;
  }
  Globals globals_;
  manifest::Catalogue ops_{std::vector<fs::path>{}};
  store::Layers layers_;
  manifest::DeviceFacts facts_;
};

/// "231 | 223 | 92 | 67.6 % | 68.4 %": buckets, those with a record on each device, and their shares of the time.
std::string cells_of(Shipped& h100, Shipped& h200, const std::string& file) {
  const Shipped::Covered first = h100.of(file), second = h200.of(file);
  return fmt::format("{} | {} | {} | {} | {}", first.buckets, first.hits, second.hits, format_share(first.time),
                     format_share(second.time));
}

}  // namespace

TEST_CASE("the workloads that serve models are what kiln workload writes for their configurations") {
  REQUIRE(served_models().size() >= 8);
  for (const std::string& model : served_models()) {
    CAPTURE(model);
    CHECK(workload_of(model).ends_with(model_workload(config_of(model), {.projections = Projections::joined})));
  }
}

TEST_CASE("the documented coverage of models is that of the records that ship") {
  const std::string document = text_of(source_folder / "docs/deployment.md");
  Shipped h100{"h100"}, h200{"h200"};
  for (const std::string& model : served_models()) {
    const std::string file = source_folder / "cache/workloads" / fmt::format("serve_{}.toml", model);
    const std::string row = fmt::format("| `serve_{}.toml` | {} |", model, cells_of(h100, h200, file));
    CHECK_MESSAGE(document.find(row) != std::string::npos, row);
  }
  const kiln::testing::Command folder;
  for (const auto& each : {std::pair{"llama3_8b", "Llama 3 8B"}, std::pair{"llama3_70b", "Llama 3 70B"},
                           std::pair{"qwen3_8b", "Qwen 3 8B"}, std::pair{"qwen3_32b", "Qwen 3 32B"}}) {
    const char *const model = each.first, *const name = each.second;  // clang 14 captures no structured binding
    const auto cells = [&](bool gradients) {
      const std::string text = torch_workload(config_of(model), {.gradients = gradients});
      return cells_of(h100, h200, folder.path(fmt::format("{}_{}.toml", model, gradients), text));
    };
    const std::string row = fmt::format("| {} | {} | {} |", name, cells(false), cells(true));
    CHECK_MESSAGE(document.find(row) != std::string::npos, row);
  }
}
