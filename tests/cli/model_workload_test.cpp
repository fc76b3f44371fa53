// kiln workload --config: what the layers of a model launch.
#include "cli/model_workload.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "cli/workload.hpp"
#include "cli/workload_entries.hpp"
#include "command.hpp"
#include "kiln/error.hpp"
#include "manifest/workload_text.hpp"
#include "sample_op.hpp"

using namespace kiln;
using namespace kiln::cli;
using kiln::testing::message_of;

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.is_open(), path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string config_text(const std::string& name) {
  return read_text(KILN_SOURCE_DIR "/tests/cli/models/" + name + ".json");
}

std::string workload_text_of(const std::string& name, ModelRun run = {}) {
  return model_workload(parse_model_config(config_text(name), name + ".json"), run);
}

const manifest::Catalogue& built_in() {
  static const manifest::Catalogue ops{std::vector<std::filesystem::path>{}};
  return ops;
}

/// The problems of the text in the form of kiln's commands: "gemm m=1024 n=4096 k=4096 dtype=bf16".
std::vector<std::string> problems_of(const std::string& text, int ranks = 0) {
  std::vector<std::string> problems;
  for (const OpBucket& each : buckets_of_workload(parse_workload(text, "w.toml"), built_in(), ranks))
    problems.push_back(each.op->name + " " + manifest::display_text(*each.op, each.bucket));
  return problems;
}

bool holds(const std::vector<std::string>& problems, const std::string& problem) {
  return std::find(problems.begin(), problems.end(), problem) != problems.end();
}

void check_holds(const std::vector<std::string>& problems, const std::vector<std::string>& expected) {
  for (const std::string& each : expected) CHECK_MESSAGE(holds(problems, each), each);
}

std::ptrdiff_t count_of(const std::vector<std::string>& problems, const std::string& beginning) {
  return std::count_if(problems.begin(), problems.end(), [&](const auto& each) { return each.starts_with(beginning); });
}

const ModelRun few{{1024, 1024}, {1, 4}};

std::string refusal(const std::string& text) {
  return message_of([&] { parse_model_config(text, "config.json"); });
}

bool tells(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a Llama launches norms, separate and joined products, rotary, attention, swiglu and the vocabulary") {
  const auto problems = problems_of(workload_text_of("llama", few));
  check_holds(problems,
              {"rms_norm rows=1024 cols=4096 dtype=bf16", "rms_norm rows=1024 cols=4096 dtype=bf16 residual=add",
               "gemm m=1024 n=4096 k=4096 dtype=bf16", "gemm m=1024 n=1024 k=4096 dtype=bf16",
               "gemm m=1024 n=6144 k=4096 dtype=bf16",
               "rotary tokens=1024 heads=32 dim=128 rotary_dim=128 dtype=bf16 index=i64",
               "rotary tokens=1024 heads=8 dim=128 rotary_dim=128 dtype=bf16 index=i64",
               "rotary tokens=1024 heads=40 dim=128 rotary_dim=128 dtype=bf16 index=i64",
               "attention_forward batch=4 queries=1024 keys=1024 heads=32 key_heads=8 head_dim=128 value_dim=128 "
               "dtype=bf16 layout=packed mask=causal",
               "gemm m=1024 n=14336 k=4096 dtype=bf16", "gemm m=1024 n=28672 k=4096 dtype=bf16 activation=swiglu",
               "swiglu rows=1024 cols=14336 dtype=bf16", "gemm m=1024 n=4096 k=14336 dtype=bf16",
               "gemm m=4 n=128256 k=4096 dtype=bf16"});
}

TEST_CASE("separate and joined projections can be had alone") {
  ModelRun run = few;
  run.projections = Projections::separate;
  CHECK_FALSE(holds(problems_of(workload_text_of("llama", run)), "gemm m=1024 n=6144 k=4096 dtype=bf16"));
  run.projections = Projections::joined;
  const auto joined = problems_of(workload_text_of("llama", run));
  CHECK_FALSE(holds(joined, "gemm m=1024 n=1024 k=4096 dtype=bf16"));
  CHECK_FALSE(holds(joined, "swiglu rows=1024 cols=14336 dtype=bf16"));
  CHECK(holds(joined, "gemm m=1024 n=6144 k=4096 dtype=bf16"));
}

TEST_CASE("the tokens of a batch give every bucket between them") {
  const auto problems = problems_of(workload_text_of("llama", {{1, 16384}, {1, 1}}));
  for (std::int64_t m = 1; m <= 16384; m *= 2)
    CHECK(holds(problems, "gemm m=" + std::to_string(m) + " n=4096 k=14336 dtype=bf16"));
}

TEST_CASE("models with norms of heads, windows, partial rotary, experts and sinks have these") {
  check_holds(problems_of(workload_text_of("qwen3", few)),
              {"rms_norm rows=32768 cols=128 dtype=bf16", "rms_norm rows=8192 cols=128 dtype=bf16"});
  check_holds(
      problems_of(workload_text_of("mistral", few)),
      {"attention_forward batch=1 queries=1024 keys=1024 heads=32 key_heads=8 head_dim=128 value_dim=128 dtype=f16 "
       "layout=packed mask=window"});
  check_holds(problems_of(workload_text_of("phi3", few)),
              {"rotary tokens=1024 heads=24 dim=128 rotary_dim=96 dtype=bf16 index=i64"});
  check_holds(problems_of(workload_text_of("phi", few)),
              {"layer_norm rows=1024 cols=2560 dtype=f16", "gemm m=1024 n=10240 k=2560 dtype=f16",
               "rotary tokens=1024 heads=32 dim=80 rotary_dim=32 dtype=f16 index=i64"});
  check_holds(
      problems_of(workload_text_of("mixtral", few)),
      {"gemm m=1024 n=8 k=4096 dtype=bf16", "gemm_grouped m=2048 n=28672 k=4096 groups=8 dtype=bf16 activation=swiglu",
       "gemm_grouped m=2048 n=4096 k=14336 groups=8 dtype=bf16"});
  check_holds(problems_of(workload_text_of("gpt_oss", few)),
              {"gemm_grouped m=4096 n=5760 k=2880 groups=32 dtype=bf16",
               "attention_decode batch=4 keys=1024 queries=1 heads=64 key_heads=8 head_dim=64 value_dim=64 dtype=bf16 "
               "layout=paged mask=window sinks=head"});
  const std::string gemma = workload_text_of("gemma3", few);
  CHECK_FALSE(tells(gemma, "swiglu"));
  check_holds(problems_of(gemma), {"rms_norm rows=8192 cols=256 dtype=bf16", "gemm m=1024 n=20480 k=2560 dtype=bf16"});
}

TEST_CASE("paged prompts are written in place of packed ones, with the same keys as the steps of decode") {
  ModelRun run{{1024, 2048}, {1, 4}};
  run.prompts = Prompts::paged;
  run.keys = {1024, 4096};
  const auto problems = problems_of(workload_text_of("llama", run));
  CHECK(count_of(problems, "attention_forward") == 0);
  CHECK(count_of(problems, "attention_paged") == 17);  // 1024: 3 batches x 3 keys; 2048: not 1 sequence with 1024 keys
  CHECK(count_of(problems, "attention_decode") == 9);
  check_holds(problems, {"attention_paged batch=1 queries=2048 keys=4096 heads=32 key_heads=8 head_dim=128 "
                         "value_dim=128 dtype=bf16",
                         "attention_decode batch=4 keys=4096 queries=1 heads=32 key_heads=8 head_dim=128 "
                         "value_dim=128 dtype=bf16 layout=paged"});
  run.prompts = Prompts::packed;
  CHECK(count_of(problems_of(workload_text_of("llama", run)), "attention_decode") == 9);
  run.prompts = Prompts::paged;
  run.keys.reset();  // 1024 up to the tokens
  const auto by_tokens = problems_of(workload_text_of("llama", run));
  CHECK(count_of(by_tokens, "attention_paged") == 11);
  CHECK(count_of(by_tokens, "attention_decode") == 6);
}

TEST_CASE("paged prompts have each bucket in which the longest sequence can have its queries as keys, and no other") {
  ModelRun run{{100, 3000}, {1, 6}};
  run.prompts = Prompts::paged;
  run.keys = {500, 5000};
  const auto bucket_of = [](std::int64_t batch, std::int64_t queries, std::int64_t keys) {
    return fmt::format(
        "attention_paged batch={} queries={} keys={} heads=32 key_heads=8 head_dim=128 value_dim=128 dtype=bf16",
        pow2_ceil(batch), pow2_ceil(queries), pow2_ceil(keys));
  };
  std::set<std::string> expected;
  for (std::int64_t queries = 100; queries <= 3000; ++queries)
    for (std::int64_t batch = 1; batch <= 6; ++batch)
      for (std::int64_t keys = std::max<std::int64_t>(500, (queries + batch - 1) / batch); keys <= 5000; keys += 100)
        expected.insert(bucket_of(batch, queries, keys));
  std::set<std::string> written;
  for (const std::string& each : problems_of(workload_text_of("llama", run)))
    if (each.starts_with("attention_paged ")) written.insert(each);
  CHECK(written == expected);
}

TEST_CASE("batches of paged prompts have at least 16 queries in the mean, or one sequence") {
  ModelRun run{{1, 64}, {1, 32}};
  run.prompts = Prompts::paged;
  const auto problems = problems_of(workload_text_of("llama", run));
  CHECK(count_of(problems, "attention_paged batch=1 ") == 7);
  CHECK(count_of(problems, "attention_paged batch=2 ") == 2);
  CHECK(count_of(problems, "attention_paged batch=4 ") == 1);
  CHECK(count_of(problems, "attention_paged batch=8 ") == 0);
}

TEST_CASE("paged prompts have the windows, sinks and soft caps of their model, and the heads of one rank") {
  ModelRun run = few;
  run.prompts = Prompts::paged;
  const std::string of_1024 = "attention_paged batch=4 queries=1024 keys=1024 ";
  const auto mistral = problems_of(workload_text_of("mistral", run));
  check_holds(mistral, {of_1024 + "heads=32 key_heads=8 head_dim=128 value_dim=128 dtype=f16 mask=window"});
  CHECK(count_of(mistral, "attention_paged") == 3);  // none causal
  for (const char* mask : {"", " mask=window"}) {
    check_holds(problems_of(workload_text_of("gpt_oss", run)),
                {of_1024 + "heads=64 key_heads=8 head_dim=64 value_dim=64 dtype=bf16" + mask + " sinks=head"});
    check_holds(problems_of(workload_text_of("gemma2", run)),
                {of_1024 + "heads=8 key_heads=4 head_dim=256 value_dim=256 dtype=bf16" + mask + " soft_cap=tanh"});
  }
  run.ranks = 2;
  check_holds(problems_of(workload_text_of("llama", run), 2),
              {of_1024 + "heads=16 key_heads=4 head_dim=128 value_dim=128 dtype=bf16"});
}

TEST_CASE("a cache in e4m3 is that of prompts over pages and of steps, and of nothing else") {
  ModelRun run = few;
  run.has_e4m3_cache = true;
  const std::string of_cache = " dtype=bf16 cache_dtype=e4m3";
  const auto packed = problems_of(workload_text_of("llama", run));
  CHECK(count_of(packed, "attention_forward") > 0);
  for (const std::string& each : packed)
    CHECK_MESSAGE(tells(each, of_cache) == each.starts_with("attention_decode"), each);
  run.prompts = Prompts::paged;
  const auto paged = problems_of(workload_text_of("llama", run));
  CHECK(count_of(paged, "attention_paged") > 0);
  for (const std::string& each : paged)
    CHECK_MESSAGE(
        tells(each, of_cache) == (each.starts_with("attention_decode") || each.starts_with("attention_paged")), each);
  run.has_e4m3_cache = false;
  CHECK(problems_of(workload_text_of("llama", run)).size() == paged.size());
}

TEST_CASE("paged prompts that are all longer than the keys of a cache are refused") {
  ModelRun run{{8192, 16384}, {1, 2}};
  run.prompts = Prompts::paged;
  run.keys = {1024, 4095};
  CHECK(
      tells(message_of([&] { workload_text_of("llama", run); }),
            "prompts of 8192 tokens or more, in 2 sequences at most, have more than 4095 keys each; raise the most of "
            "--keys"));
  run.keys = {1024, 4096};
  CHECK(count_of(problems_of(workload_text_of("llama", run)), "attention_paged batch=2 queries=8192 keys=4096") == 1);
}

TEST_CASE("the documented numbers of buckets of paged prompts are those that are written") {
  struct Written {
    manifest::SizeRange tokens, batch, keys;
  };
  const std::string document = read_text(KILN_SOURCE_DIR "/docs/deployment.md");
  for (const Written& each : {Written{{1, 8192}, {1, 32}, {1024, 8192}}, Written{{1, 2048}, {1, 8}, {1024, 8192}},
                              Written{{128, 8192}, {1, 8}, {1024, 8192}}}) {
    ModelRun run{each.tokens, each.batch};
    run.prompts = Prompts::paged;
    run.keys = each.keys;
    const auto text_of = [](const manifest::SizeRange& range) { return fmt::format("{}..{}", range.low, range.high); };
    const std::string row =
        fmt::format("| {} | {} | {} | {} |\n", text_of(each.tokens), text_of(each.batch), text_of(each.keys),
                    count_of(problems_of(workload_text_of("llama3_8b", run)), "attention_paged"));
    CHECK_MESSAGE(tells(document, row), row);
  }
}

TEST_CASE("a model without a cache refuses paged prompts, and keys and types of a cache") {
  ModelRun paged = few, with_keys = few, of_bytes = few;
  paged.prompts = Prompts::paged;
  of_bytes.has_e4m3_cache = true;
  with_keys.keys = {1024, 2048};
  for (const char* model : {"vit", "flux", "whisper"})
    for (const ModelRun& run : {paged, with_keys, of_bytes})
      CHECK(tells(message_of([&] { workload_text_of(model, run); }),
                  "has no cache of keys; leave out --prompts paged, --keys and --cache-dtype"));
}

TEST_CASE("one command writes prompts and steps over pages, and says so in the file") {
  const kiln::testing::Command command;
  const std::string config = " --config " + command.path("config.json", config_text("llama"));
  const std::string paged = "workload" + config + " --tokens 1024 --batch 1..4 --prompts paged --keys 1024..2048";
  const auto ran = command.run(paged);
  CHECK(
      tells(ran.output, ", 1024 tokens and 1..4 sequences a batch, prompts over pages, 1024..2048 keys in a cache.\n"));
  CHECK(count_of(problems_of(ran.output), "attention_paged") == 6);
  CHECK(count_of(problems_of(ran.output), "attention_decode") == 6);
  CHECK(tells(command.run("workload" + config).output, "layout = \"packed\""));
  const std::string of_bytes = command.run(paged + " --cache-dtype e4m3").output;
  CHECK(tells(of_bytes, "1024..2048 keys in a cache, a cache in e4m3.\n"));
  CHECK(count_of(problems_of(of_bytes), "attention_paged") == 6);
  const auto refused = [&](const std::string& more, const std::string& sentence) {
    kiln::testing::check_refused(command.run("workload" + config + more), 2, sentence);
  };
  refused(" --prompts pages", "pages not in {packed,paged}");
  refused(" --keys 2048..1024", "--keys is '2048..1024', expected a size or a range");
  refused(" --for torch --prompts paged", "--for torch takes no --prompts paged: its caches have no pages");
  refused(" --for torch --gradients --projections joined", "which has no gradients of weights; leave out --gradients");
  refused(" --for torch --keys 2048", "--for torch takes no --keys");
  refused(" --cache-dtype e5m2", "e5m2 not in {e4m3}");
  refused(" --for torch --cache-dtype e4m3", "--for torch takes no --cache-dtype: its caches have the model's type");
}

TEST_CASE("an encoder's sequences are all as long, and see each other without a mask") {
  check_holds(
      problems_of(workload_text_of("vit", few)),
      {"attention_forward batch=4 queries=256 keys=256 heads=12 key_heads=12 head_dim=64 value_dim=64 dtype=bf16",
       "gemm m=1024 n=3072 k=768 dtype=bf16 activation=gelu"});
  check_holds(problems_of(workload_text_of("siglip", few)),
              {"gemm m=1024 n=4304 k=1152 dtype=bf16", "layer_norm rows=1024 cols=1152 dtype=bf16 residual=add"});
  check_holds(
      problems_of(workload_text_of("whisper", few)),
      {"attention_forward batch=1 queries=2048 keys=2048 heads=20 key_heads=20 head_dim=64 value_dim=64 dtype=f16"});
}

TEST_CASE("the tokens of images see each other whole, and those of Wan the text too") {
  const ModelRun images{{1024, 4096}, {1, 2}};
  const auto flux = problems_of(workload_text_of("flux", images));
  check_holds(flux,
              {"attention_forward batch=1 queries=4096 keys=4096 heads=24 key_heads=24 head_dim=128 value_dim=128 "
               "dtype=bf16",
               "attention_forward batch=2 queries=2048 keys=2048 heads=24 key_heads=24 head_dim=128 "
               "value_dim=128 dtype=bf16",
               "layer_norm rows=4096 cols=3072 dtype=bf16", "rms_norm rows=131072 cols=128 dtype=bf16",
               "rotary tokens=4096 heads=48 dim=128 rotary_dim=128 dtype=bf16 index=i64 layout=interleaved",
               "gemm m=4096 n=12288 k=3072 dtype=bf16", "gemm m=4096 n=3072 k=15360 dtype=bf16"});
  // Two images of 4096 tokens are more than a batch has.
  CHECK_FALSE(holds(flux,
                    "attention_forward batch=2 queries=4096 keys=4096 heads=24 key_heads=24 head_dim=128 "
                    "value_dim=128 dtype=bf16"));
  CHECK(
      std::none_of(flux.begin(), flux.end(), [](const std::string& each) { return tells(each, "attention_decode"); }));
  check_holds(problems_of(workload_text_of("wan", images)),
              {"attention_forward batch=1 queries=4096 keys=512 heads=40 key_heads=40 head_dim=128 value_dim=128 "
               "dtype=bf16",
               "rms_norm rows=4096 cols=5120 dtype=bf16", "gemm m=1024 n=10240 k=5120 dtype=bf16",
               "gemm m=4096 n=13824 k=5120 dtype=bf16"});
}

TEST_CASE("a million tokens of a model, times its heads or experts, are rows that its ops take") {
  for (const char* model : {"flux", "gemma3_12b", "gpt_oss", "llama", "mixtral", "phi4", "qwen3_32b", "wan"}) {
    CAPTURE(model);
    CHECK_NOTHROW(problems_of(workload_text_of(model, {{1, 1048576}, {1, 4}})));
  }
}

TEST_CASE("on several ranks each has a part of the heads and of the products, which a team computes") {
  ModelRun run = few;
  run.ranks = 2;
  const std::string text = workload_text_of("llama", run);
  check_holds(problems_of(text, 2), {"gemm m=1024 n=3072 k=4096 dtype=bf16",
                                     "gemm_all_reduce rows=1024 n=4096 k=7168 world=2 dtype=bf16 ranks=alike",
                                     "all_gather_gemm rows=512 n=3072 k=4096 world=2 dtype=bf16 ranks=alike",
                                     "gemm_reduce_scatter rows=512 n=4096 k=2048 world=2 dtype=bf16 ranks=alike",
                                     "rotary tokens=1024 heads=20 dim=128 rotary_dim=128 dtype=bf16 index=i64"});
  run.ranks = 3;
  CHECK(tells(message_of([&] { workload_text_of("llama", run); }), "3 ranks do not divide the 32 attention heads"));
}

TEST_CASE("a configuration that cannot be read is refused in a sentence that names the key") {
  CHECK(tells(refusal("{\"model_type\": \"llama\"}"),
              "config.json: a model of type 'llama' needs the key \"hidden_size\", which is missing"));
  CHECK(tells(refusal("{\"model_type\": \"lama\"}"), "\"model_type\" is 'lama', which kiln workload does not know"));
  CHECK(tells(refusal("{\"model_type\": \"lama\"}"), "did you mean 'llama'?"));
  CHECK(tells(refusal("{\"_class_name\": \"WanTransformer2DModel\"}"),
              "\"_class_name\" is 'WanTransformer2DModel', which kiln workload does not know (did you mean "
              "'WanTransformer3DModel'?"));
  CHECK(tells(refusal("{}"), "the key \"model_type\" is missing"));
  CHECK(tells(refusal("[1]"), "no JSON object"));
  CHECK(tells(refusal("{"), "no JSON object"));
  CHECK(tells(refusal("{\"model_type\": \"gemma3\"}"), "needs the table \"text_config\""));
  CHECK(tells(refusal("{\"model_type\": \"llama\", \"hidden_size\": \"big\"}"),
              "\"hidden_size\" is '\"big\"', expected a whole number"));
  CHECK(tells(
      refusal("{\"model_type\": \"llama\", \"hidden_size\": 64, \"vocab_size\": 100, \"num_attention_heads\": 128}"),
      "fewer than \"num_attention_heads\""));
}

TEST_CASE("a model of quantised weights is refused, and so is one of a type that its ops do not take") {
  const auto with = [](const std::string& more, std::string name = "llama") {
    std::string text = config_text(name);
    return text.insert(text.rfind('}'), ", " + more);
  };
  for (const char* method : {"awq", "gptq", "fp8", "compressed-tensors", "bitsandbytes", "mxfp4"}) {
    const std::string said =
        refusal(with("\"quantization_config\": {\"quant_method\": \"" + std::string(method) + "\", \"bits\": 4}"));
    CHECK_MESSAGE(tells(said, "config.json: \"quantization_config\" says that the weights are quantised by '" +
                                  std::string(method) + "', and kiln workload writes products of 16-bit weights alone"),
                  said);
    CHECK(tells(said, "remove the key from a copy of the file"));
    CHECK(tells(said, "kiln ops gemm") == (method == std::string("fp8")));
  }
  CHECK(tells(refusal(with("\"compression_config\": {\"bits\": 4}")), "says that the weights are quantised, and"));
  CHECK(tells(refusal(with("\"quantization_config\": {\"quant_method\": \"fp8\"}", "gemma3")), "quantised by 'fp8'"));
  CHECK(parse_model_config(with("\"quantization_config\": null"), "config.json").dtype == "bf16");

  for (const char* dtype : {"float8_e4m3fn", "int8", "float64", "fp16"})
    CHECK(tells(refusal(with("\"dtype\": \"" + std::string(dtype) + "\"")),
                "config.json: \"dtype\" is '" + std::string(dtype) + "', expected bfloat16, float16 or float32"));
  CHECK(parse_model_config(with("\"dtype\": \"float16\""), "config.json").dtype == "f16");
  CHECK(parse_model_config(with("\"dtype\": \"float32\""), "config.json").dtype == "bf16");
}

TEST_CASE("a model whose layers stand in a table of its configuration has the type that the configuration names") {
  std::string text = config_text("gemma3");
  text.replace(text.find("bfloat16"), 8, "float16");
  CHECK(parse_model_config(text, "config.json").dtype == "f16");
  text.insert(text.find('{', 1) + 1, "\"torch_dtype\": \"bfloat16\", ");
  CHECK(parse_model_config(text, "config.json").dtype == "bf16");
}

TEST_CASE("the text of buckets names the same buckets again") {
  const auto buckets_in = [](const std::string& text) {
    auto problems = problems_of(text);
    std::sort(problems.begin(), problems.end());
    return problems;
  };
  for (const char* name : {"llama", "gpt_oss", "whisper"}) {
    const std::string text = workload_text_of(name, {{1, 300}, {1, 4}});
    const auto buckets = buckets_of_workload(parse_workload(text, "w.toml"), built_in());
    CHECK(buckets_in(manifest::workload_text(buckets)) == buckets_in(text));
  }
}
