// kiln workload --config --for torch: what kiln.torch.patch() launches, by recordings of it (python/torch/tests/test_workload.py).
#include "cli/torch_workload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/workload.hpp"
#include "kiln/error.hpp"
#include "manifest/workload_text.hpp"
#include "sample_op.hpp"

using namespace kiln;
using namespace kiln::cli;
using kiln::testing::message_of;

namespace {

namespace fs = std::filesystem;

const fs::path recordings = KILN_SOURCE_DIR "/tests/cli/models/torch";

std::string recording_text(const fs::path& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.is_open(), path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> launches_in(const std::string& text) {
  static const manifest::Catalogue ops{std::vector<fs::path>{}};
  std::set<std::string> problems;
  for (const OpBucket& each : buckets_of_workload(parse_workload(text, "w.toml"), ops))
    problems.insert(each.op->name + " " + manifest::display_text(*each.op, each.bucket));
  return problems;
}

ModelConfig recorded_config(const fs::path& path) {
  return parse_model_config(recording_text(path), path.filename().string());
}

std::vector<fs::path> recorded_models() {
  std::vector<fs::path> found;
  for (const auto& each : fs::directory_iterator(recordings))
    if (each.path().extension() == ".json") found.push_back(each.path());
  std::sort(found.begin(), found.end());
  return found;
}

std::set<std::string> recorded_launches(const fs::path& config, const char* ending) {
  return launches_in(recording_text(recordings / (config.stem().string() + ending + ".toml")));
}

std::set<std::string> launches_beyond(const std::set<std::string>& wanted, const std::set<std::string>& among) {
  std::set<std::string> left;
  std::set_difference(wanted.begin(), wanted.end(), among.begin(), among.end(), std::inserter(left, left.end()));
  return left;
}

}  // namespace

TEST_CASE("a workload for torch has all that a patched model was recorded to launch") {
  REQUIRE(recorded_models().size() >= 5);
  for (const fs::path& config : recorded_models()) {
    CAPTURE(config.string());
    for (const bool gradients : {false, true}) {
      const auto written = launches_in(torch_workload(recorded_config(config), {{1, 128}, {1, 2}, gradients}));
      const auto launched = recorded_launches(config, gradients ? "_gradients" : "");
      REQUIRE(launched.size() > 8);
      for (const std::string& each : launches_beyond(launched, written)) FAIL_CHECK(each);
    }
  }
}

TEST_CASE("of the recorded tokens, a workload for torch has little that a patched model does not launch") {
  // One length and one batch: what is left are other batches of attention, and types that a window's layers alone have.
  for (const fs::path& config : recorded_models()) {
    CAPTURE(config.string());
    for (const bool gradients : {false, true}) {
      const auto written = launches_in(torch_workload(recorded_config(config), {{80, 80}, {2, 2}, gradients}));
      for (const std::string& each : launches_beyond(written, recorded_launches(config, gradients ? "_gradients" : "")))
        if (each.find("attention") == std::string::npos) FAIL_CHECK(each);
    }
  }
}

TEST_CASE("models that kiln.torch.patch does not take are refused") {
  ModelConfig model = recorded_config(recordings / "llama.json");
  model.type = "mixtral";
  CHECK(
      message_of([&] { torch_workload(model, {}); }) ==
      "kiln.torch.patch takes models of the types llama, qwen2, qwen3 with silu, and this one is mixtral; without --for "
      "torch a workload of its ops is written");
}
