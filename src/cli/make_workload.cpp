// kiln workload: writes a workload file, from a model's configuration or from the launches that engines counted.
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "cli/commands.hpp"
#include "cli/demand.hpp"
#include "cli/installed.hpp"
#include "cli/model_workload.hpp"
#include "cli/output.hpp"
#include "cli/output_choice.hpp"
#include "cli/torch_workload.hpp"
#include "cli/units.hpp"
#include "cli/workload.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"
#include "manifest/text_file.hpp"
#include "manifest/workload_text.hpp"

namespace kiln::cli {
namespace {

constexpr std::size_t most_config_bytes = std::size_t{16} << 20;

struct WorkloadSettings {
  std::string config;
  bool from_histogram = false;
  std::string histogram;  // a file with counts; empty: the overlay
  std::string tokens = "1..16384", batch = "1..32", projections = "both", prompts = "packed", runner = "server";
  std::string keys;         // empty: by the tokens
  std::string cache_dtype;  // empty: the model's
  int ranks = 1;
  bool gradients = false;
  OutputChoice output;
};

void declare(CLI::App& command, WorkloadSettings& settings) {
  CLI::Option* config =
      command
          .add_option("--config", settings.config,
                      "The config.json of a Hugging Face model: write what its layers launch. Needs no GPU")
          ->type_name("FILE");
  command
      .add_option_function<std::vector<std::string>>(
          "--from-histogram",
          [&settings](const std::vector<std::string>& files) {
            settings.from_histogram = true;
            if (!files.empty()) settings.histogram = files.front();
          },
          "Instead of a model, write the launches that engines counted in the overlay or in this file")
      ->expected(0, 1)
      ->excludes(config)
      ->type_name("[FILE]");
  command.add_option("--tokens", settings.tokens, "The tokens of a batch")
      ->needs(config)
      ->capture_default_str()
      ->type_name("LOW..HIGH");
  command.add_option("--batch", settings.batch, "The sequences of a batch")
      ->needs(config)
      ->capture_default_str()
      ->type_name("LOW..HIGH");
  command
      .add_option("--keys", settings.keys,
                  "The keys of the longest sequence in a cache; without it, 1024 up to the most of --tokens")
      ->needs(config)
      ->type_name("LOW..HIGH");
  command
      .add_option(
          "--prompts", settings.prompts,
          "packed: whole prompts, by attention_forward; paged: prompts in chunks or after a cached prefix, whose "
          "keys lie in pages, by attention_paged. Steps of decode are paged in both")
      ->needs(config)
      ->capture_default_str()
      ->check(CLI::Validator(CLI::IsMember({"packed", "paged"})).description(""))
      ->type_name("NAME");
  command
      .add_option("--cache-dtype", settings.cache_dtype,
                  "e4m3: keys and values in a cache have this type, in place of the model's")
      ->needs(config)
      ->check(CLI::Validator(CLI::IsMember({"e4m3"})).description(""))
      ->type_name("NAME");
  command.add_option("--ranks", settings.ranks, "The GPUs that divide the model, tensor parallel")
      ->needs(config)
      ->capture_default_str()
      ->transform(whole_number_from(1, 64))
      ->type_name("N");
  command
      .add_option(
          "--projections", settings.projections,
          "Query, key and value, and gate and up: separate, as in transformers; joined, with swiglu in the product, as after patch(model, inference=True); or both")
      ->needs(config)
      ->capture_default_str()
      ->check(CLI::Validator(CLI::IsMember({"both", "separate", "joined"})).description(""))
      ->type_name("NAME");
  command
      .add_option(
          "--for", settings.runner,
          "What runs the model: server, which launches ops; torch: kiln.torch.patch(model), of Llama, Qwen 2 or Qwen 3")
      ->needs(config)
      ->capture_default_str()
      ->check(CLI::Validator(CLI::IsMember({"server", "torch"})).description(""))
      ->type_name("NAME");
  command.add_flag("--gradients", settings.gradients, "With --for torch: also what a training step launches")
      ->needs(config);
  declare_output(command, settings.output, "The file to write, instead of the standard output", "FILE.toml");
}

/// "1..16384", or one size.
manifest::SizeRange range_of(const std::string& text, const char* option) {
  manifest::SizeRange range;
  const char* const end = text.data() + text.size();
  std::from_chars_result read = std::from_chars(text.data(), end, range.low);
  range.high = range.low;
  if (read.ec == std::errc{} && end - read.ptr > 2 && read.ptr[0] == '.' && read.ptr[1] == '.')
    read = std::from_chars(read.ptr + 2, end, range.high);
  constexpr std::int64_t most = 1048576;
  if (read.ec == std::errc{} && read.ptr == end && range.low >= 1 && range.low <= range.high && range.high <= most)
    return range;
  throw Error(ErrorKind::bad_input, fmt::format("{} is {}, expected a size or a range such as 1..16384, of 1 to {}",
                                                option, manifest::quote(text), most));
}

Projections projections_of(const WorkloadSettings& settings) {
  return settings.projections == "joined"     ? Projections::joined
         : settings.projections == "separate" ? Projections::separate
                                              : Projections::both;
}

std::string by_torch(const ModelConfig& model, const WorkloadSettings& settings) {
  const char* const refused = settings.ranks > 1              ? "--ranks: kiln.torch.patch divides no model"
                              : settings.prompts == "paged"   ? "--prompts paged: its caches have no pages"
                              : !settings.keys.empty()        ? "--keys: its caches are as long as --tokens"
                              : !settings.cache_dtype.empty() ? "--cache-dtype: its caches have the model's type"
                                                              : nullptr;
  if (refused != nullptr)
    throw Error(ErrorKind::bad_input, fmt::format("--for torch takes no {}; leave one of them out", refused));
  const Projections projections = projections_of(settings);
  if (settings.gradients && projections == Projections::joined)
    throw Error(
        ErrorKind::bad_input,
        "--projections joined is what patch(model, inference=True) launches, which has no gradients of weights; "
        "leave out --gradients, or ask for separate ones");
  return torch_workload(model, {range_of(settings.tokens, "--tokens"), range_of(settings.batch, "--batch"),
                                settings.gradients, projections});
}

std::string by_server(const ModelConfig& model, const WorkloadSettings& settings) {
  if (settings.gradients) throw Error(ErrorKind::bad_input, "--gradients needs --for torch");
  ModelRun run{range_of(settings.tokens, "--tokens"), range_of(settings.batch, "--batch"), settings.ranks};
  run.projections = projections_of(settings);
  if (settings.prompts == "paged") run.prompts = Prompts::paged;
  if (!settings.keys.empty()) run.keys = range_of(settings.keys, "--keys");
  run.has_e4m3_cache = !settings.cache_dtype.empty();
  return model_workload(model, run);
}

std::string of_model(const WorkloadSettings& settings, const manifest::Catalogue& ops) {
  refuse_absent(settings.config);
  const ModelConfig model =
      parse_model_config(manifest::read_text_file(settings.config, most_config_bytes), settings.config);
  const bool is_torch = settings.runner == "torch";
  std::string text = fmt::format(
      "# Written by kiln workload: {} of type {}, {}, {} tokens and {} sequences a batch{}{}{}{}{}{}.\n",
      std::filesystem::path(settings.config).filename().string(), model.type, model.dtype, settings.tokens,
      settings.batch, settings.ranks > 1 ? fmt::format(", tensor parallel on {} ranks", settings.ranks) : std::string(),
      settings.prompts == "paged" ? ", prompts over pages" : "",
      settings.keys.empty() ? std::string() : fmt::format(", {} keys in a cache", settings.keys),
      settings.cache_dtype.empty() ? std::string() : fmt::format(", a cache in {}", settings.cache_dtype),
      is_torch ? ", by kiln.torch.patch" : "", settings.gradients ? ", with gradients" : "");
  if (model.is_gated && !model.has_swiglu) text += "# Its gate is not the op swiglu: Kiln has no op for it.\n";
  text += is_torch ? by_torch(model, settings) : by_server(model, settings);
  buckets_of_workload(parse_workload(text, settings.config), ops,
                      settings.ranks);  // each size is one that its op takes
  return text;
}

std::string of_histogram(const Globals& globals, const WorkloadSettings& settings, const manifest::Catalogue& ops) {
  const DemandSource source{.workloads = {}, .from_histogram = true, .histogram = settings.histogram};
  store::Layers layers = settings.histogram.empty() ? open_layers_to_read(globals) : open_layers(globals);
  std::int64_t unknown = 0;
  const auto buckets = counted_buckets(source, ops, layers, unknown);
  std::string text =
      fmt::format("# Written by kiln workload: {} of launches that engines counted, the most launched first.\n",
                  counted(static_cast<std::int64_t>(buckets.size()), "bucket"));
  if (unknown > 0)
    text += fmt::format("# About {} more of ops or sizes that no loaded op has.\n", counted(unknown, "launch"));
  return text + "\n" + manifest::workload_text(buckets);
}

int run(const Globals& globals, const WorkloadSettings& settings) {
  if (settings.config.empty() && !settings.from_histogram)
    throw Error(ErrorKind::bad_input, "name a model's configuration by --config, or give --from-histogram");
  check_output(settings.output, OutputKind::workload);
  const manifest::Catalogue ops = load_ops(globals);
  const std::string text = settings.from_histogram ? of_histogram(globals, settings, ops) : of_model(settings, ops);
  if (settings.output.path.empty()) {
    print(text);
    return exit_good;
  }
  write_text(settings.output, OutputKind::workload, text);
  const auto buckets = buckets_of_workload(parse_workload(text, settings.output.path), ops, settings.ranks);
  say_written(globals.json, settings.output, counted(static_cast<std::int64_t>(buckets.size()), "bucket"),
              {{"buckets", buckets.size()}});
  return exit_good;
}

}  // namespace

void add_workload(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<WorkloadSettings>(
      app, chosen, "workload", "Write the problems that a model will launch, or that engines counted, for kiln prewarm",
      declare, run, takes_layers | takes_templates);
  command->footer(
      "Examples:\n  kiln workload --config config.json --tokens 1..16384 -o model.toml\n"
      "  kiln workload --config config.json --tokens 1..8192 --ranks 2 --projections joined -o model_tp2.toml\n"
      "  kiln workload --config config.json --prompts paged --tokens 1..2048 --keys 1024..8192 -o paged.toml\n"
      "  kiln workload --config config.json --for torch --projections joined -o inference.toml\n"
      "  kiln workload --config config.json --for torch --gradients -o training.toml\n"
      "  kiln workload --from-histogram production.kiln -o production.toml");
}

}  // namespace kiln::cli
