// kiln workload --config --for torch: what kiln.torch.patch() launches, by recordings of it (python/torch/tests/test_workload.py).
#include "cli/torch_workload.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

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

const manifest::Catalogue& catalogue() {
  static const manifest::Catalogue ops{std::vector<fs::path>{}};
  return ops;
}

std::size_t axis_of(const manifest::Op& op, const char* name) {
  return static_cast<std::size_t>(std::ranges::find(op.axes, name, &manifest::Axis::name) - op.axes.begin());
}

std::set<std::string> launches_in(const std::string& text) {
  std::set<std::string> problems;
  for (const OpBucket& each : buckets_of_workload(parse_workload(text, "w.toml"), catalogue()))
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

void check_same(const std::set<std::string>& found, const std::set<std::string>& expected) {
  for (const std::string& each : launches_beyond(found, expected)) FAIL_CHECK("not expected: ", each);
  for (const std::string& each : launches_beyond(expected, found)) FAIL_CHECK("missing: ", each);
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

TEST_CASE("steps with padding are launched at each batch and number of keys, also where all layers have a window") {
  const TorchRun run{{1, 64}, {1, 4}, false, Projections::joined};
  std::string windows = recording_text(recordings / "qwen2.json");
  windows.replace(windows.rfind('}'), 1,
                  R"(, "sliding_window": 32, "use_sliding_window": true, "layer_types": ["sliding_attention"]})");
  for (const ModelConfig& model :
       {recorded_config(recordings / "llama.json"), parse_model_config(windows, "config.json")}) {
    std::set<std::string> found;
    for (const std::string& each : launches_in(torch_workload(model, run)))
      if (each.find("layout=indexed") != std::string::npos) found.insert(each.substr(0, each.find(" heads=")));
    std::set<std::string> expected;
    for (const int batch : {1, 2, 4})
      for (int keys = 1; keys <= (model.window == 0 ? 64 : 32); keys *= 2)
        expected.insert(fmt::format("attention_decode batch={} keys={} queries=1", batch, keys));
    check_same(found, expected);
  }
}

TEST_CASE("joined projections are those of inference, and leave out what is launched without it alone") {
  const auto products_of = [](const char* model, Projections projections) {
    std::set<std::string> found;
    const TorchRun run{{80, 80}, {1, 1}, false, projections};
    for (const std::string& each : launches_in(torch_workload(recorded_config(recordings / model), run)))
      if (!each.starts_with("attention") && !each.starts_with("rms_norm")) found.insert(each);
    return found;
  };
  using Problems = std::set<std::string>;
  const Problems always = {"gemm m=128 n=256 k=256 dtype=bf16", "gemm m=128 n=256 k=512 dtype=bf16 residual=add"},
                 rotary = {"rotary tokens=128 heads=2 dim=64 rotary_dim=64 dtype=bf16 index=i32",
                           "rotary tokens=128 heads=4 dim=64 rotary_dim=64 dtype=bf16 index=i32"};
  const auto with = [&](Problems more) {
    more.insert(always.begin(), always.end());
    return more;
  };
  check_same(products_of("llama.json", Projections::joined),
             with({"gemm m=128 n=512 k=256 dtype=bf16", "gemm m=128 n=1024 k=256 dtype=bf16 activation=swiglu",
                   "rotary tokens=128 heads=6 dim=64 rotary_dim=64 dtype=bf16 index=i32"}));
  for (const char* model : {"llama.json", "llama_mlp_bias.json", "qwen2.json", "qwen3.json"}) {
    CAPTURE(model);
    Problems of_both = products_of(model, Projections::joined);
    of_both.merge(products_of(model, Projections::separate));
    check_same(of_both, products_of(model, Projections::both));
  }
  const Problems qwen3 = products_of("qwen3.json", Projections::joined);
  CHECK(std::ranges::none_of(qwen3, [](const std::string& each) { return each.starts_with("swiglu"); }));
  CHECK(launches_beyond(rotary, qwen3).empty());  // norms of heads keep them apart
}

TEST_CASE("a step of a layer with a window sees no more keys than that, as the configuration of each layer says") {
  const auto keys_of_steps = [](const std::string& changed, const TorchRun& run) {
    std::string text = recording_text(recordings / "qwen2.json");
    text.replace(text.rfind('}'), 1, ", \"sliding_window\": 4096, " + changed + "}");
    std::set<std::int64_t> keys;
    for (const OpBucket& each : buckets_of_workload(
             parse_workload(torch_workload(parse_model_config(text, "config.json"), run), "w.toml"), catalogue()))
      if (each.op->name == "attention_decode") keys.insert(each.bucket.axes[axis_of(*each.op, "keys")]);
    return keys;
  };
  using Keys = std::set<std::int64_t>;
  const TorchRun longer{{8192, 32768}, {1, 1}, false}, shorter{{1024, 2048}, {1, 1}, false},
      across{{2048, 8192}, {1, 1}, false};
  const std::string on = R"("use_sliding_window": true, "num_hidden_layers": 4, )";
  const std::string none = R"("use_sliding_window": false, "layer_types": ["full_attention", "full_attention"])",
                    some = on + R"("max_window_layers": 2)", all = on + R"("max_window_layers": 0)";
  CHECK(keys_of_steps(some, longer) == Keys{4096, 8192, 16384, 32768});
  CHECK(keys_of_steps(some, across) == Keys{2048, 4096, 8192});
  CHECK(keys_of_steps(all, longer) == Keys{4096});
  CHECK(keys_of_steps(all, across) == Keys{2048, 4096});
  CHECK(keys_of_steps(all, shorter) == Keys{1024, 2048});
  for (const std::string& each :
       {none, on + R"("max_window_layers": 4)", on + R"("max_window_layers": 28)",
        std::string(R"("max_window_layers": 0)"),
        on + R"("max_window_layers": 0, "layer_types": ["full_attention", "full_attention"])"})
    CHECK(keys_of_steps(each, longer) == Keys{8192, 16384, 32768});
  CHECK(keys_of_steps(on + R"("max_window_layers": 28, "layer_types": ["sliding_attention", "sliding_attention"])",
                      longer) == Keys{4096});
  CHECK(keys_of_steps(on + R"("max_window_layers": 28, "layer_types": ["full_attention", "sliding_attention"])",
                      longer) == Keys{4096, 8192, 16384, 32768});
}

TEST_CASE("models that kiln.torch.patch does not take are refused") {
  ModelConfig model = recorded_config(recordings / "llama.json");
  model.type = "mixtral";
  CHECK(
      message_of([&] { torch_workload(model, {}); }) ==
      "kiln.torch.patch takes models of the types llama, qwen2, qwen3 with silu, and this one is mixtral; without --for "
      "torch a workload of its ops is written");
}
