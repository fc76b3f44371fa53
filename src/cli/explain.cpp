// kiln explain: prints what would be launched for a problem, and why.
#include <fmt/format.h>

#include <algorithm>

#include "answer/cubins.hpp"
#include "answer/explain.hpp"
#include "cli/bench/idle.hpp"
#include "cli/commands.hpp"
#include "cli/damaged_rows.hpp"
#include "cli/next_step.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"

namespace kiln::cli {
namespace {

struct ExplainSettings {
  std::string op;
  std::vector<std::string> words;
  TargetChoice target;
};

void declare(CLI::App& command, ExplainSettings& settings) {
  command.add_option("op", settings.op, "The op, see kiln ops")->required()->type_name("OP");
  command
      .add_option("problem", settings.words,
                  "A size for each axis, words for types and choices (rows=137 cols=4096 dtype=bf16)")
      ->required()
      ->type_name("NAME=VALUE");
  command.add_option("--arch", settings.target.arch, "For this architecture; needs no GPU")->type_name("ARCH");
  add_device_class(command, settings.target.device_class, "For this device class; needs no GPU");
}

/// "16 blocks on 132 multiprocessors, so 116 have none; mma splits=128 has 128 (kiln bench records times both)". Empty
/// for a launch that occupies enough multiprocessors, or that no config of the search space spreads wider.
std::string text_of_idle(const manifest::Op& op, const Problem& problem, const Explanation& explanation,
                         const manifest::DeviceFacts& device) {
  const manifest::Implementation* const implementation = op.find(explanation.implementation);
  if (implementation == nullptr || !implementation->has_kernels()) return "";
  const auto config = manifest::parse_config(*implementation, explanation.config);
  if (!config) return "";
  const auto idle = bench::idle_launch({op, device}, {implementation, *config}, problem);
  if (!idle) return "";
  const manifest::Variant& wider = idle->wider.front();
  return fmt::format(
      "{} (kiln bench records times both)",
      bench::text_of_idle(idle->blocks, wider.name(), bench::blocks_of({op, device}, wider, problem), device));
}

Json json_of(const manifest::Op& op, const Problem& problem, const Explanation& explanation, const Target& target,
             const std::string& idle, const std::vector<NextStep>& steps) {
  Json json{{"problem", manifest::to_string(op, problem)},
            {"bucket", manifest::to_string(op, manifest::bucket_of(op, problem))},
            {"key", explanation.key},
            {"device", target.about},
            {"layers", Json::array()},
            {"origin", to_string(explanation.origin)},
            {"implementation", explanation.implementation},
            {"config", explanation.config},
            {"why", explanation.why},
            {"miss", explanation.miss.empty() ? Json() : Json(explanation.miss)},
            {"stale", explanation.stale},
            {"cubin_found", explanation.cubin_found},
            {"machine_code", explanation.machine_code},
            {"compiler", explanation.compiler.empty() ? Json() : Json(explanation.compiler)},
            {"nvrtc", explanation.nvrtc.empty() ? Json() : Json(explanation.nvrtc)},
            {"library", explanation.library},
            {"cost_ns", explanation.cost_ns},
            {"timed_at", explanation.timed_at},
            {"expected_slowdown", explanation.expected_slowdown > 0 ? Json(explanation.expected_slowdown) : Json()},
            {"slowdown_grounds", explanation.slowdown_grounds.empty() ? Json() : Json(explanation.slowdown_grounds)},
            {"passes", explanation.passes},
            {"idle", idle.empty() ? Json() : Json(idle)},
            {"next", json_of(steps)}};
  for (const LayerAnswer& layer : explanation.layers)
    json["layers"].push_back({{"layer", layer.layer},
                              {"found", layer.found},
                              {"opened", layer.opened},
                              {"trusted", layer.trusted},
                              {"trust", layer.trust}});
  return json;
}

/// "absent: no file has a record of this bucket; 1 file was not opened"
std::string text_of_miss(const Explanation& explanation) {
  const auto meaning = [&]() -> std::string_view {
    if (explanation.miss == "absent") return "no file has a record of this bucket";
    if (explanation.miss == "unusable") return "no config of its record is declared and legal here";
    if (explanation.miss == "damaged") return "its record failed its digest";
    if (explanation.miss == "unreadable") return "a file could not be read";
    return "its machine code cannot be loaded";
  };
  const auto refused = std::count_if(explanation.layers.begin(), explanation.layers.end(),
                                     [](const LayerAnswer& each) { return !each.opened; });
  return fmt::format("{}: {}{}", explanation.miss, meaning(),
                     refused > 0 ? fmt::format("; {} not opened", counted(refused, "file")) : "");
}

void print_text(const std::string& op, const Explanation& explanation, const Target& target, const std::string& idle) {
  Table question({"", ""});
  question.row({"problem", fmt::format("{} {}", op, explanation.problem)});
  question.row({"bucket", explanation.bucket});
  question.row({"key", explanation.key});
  question.row({"device", target.about});
  print(question.text());
  Table layers({"asked in this order", "found", "trusted for machine code"});
  for (const LayerAnswer& layer : explanation.layers)
    layers.row({layer.layer, layer.found, fmt::format("{}: {}", layer.trusted ? "yes" : "no", layer.trust)});
  print("\n" + layers.text() + "\n");
  Table answer({"", ""});
  answer.row({"answer", explanation.implementation.empty()
                            ? "nothing can serve"
                            : fmt::format("{} {}", explanation.implementation, explanation.config)});
  const bool fallback = is_fallback(explanation.origin);
  if (!explanation.implementation.empty())
    answer.row({"from", fmt::format("{}{}{}", to_string(explanation.origin), fallback ? ", a fallback" : "",
                                    explanation.stale ? ", stale" : "")});
  answer.row({"because", explanation.why});
  if (!explanation.miss.empty()) answer.row({"miss", text_of_miss(explanation)});
  if (explanation.cost_ns > 0)
    answer.row({"time recorded", fmt::format("{}, {}", format_time(explanation.cost_ns), explanation.timed_at)});
  if (fallback && !explanation.implementation.empty())
    answer.row({"expected", explanation.expected_slowdown > 0
                                ? fmt::format("{:.2f} times the time of a tuned config, {}",
                                              explanation.expected_slowdown, explanation.slowdown_grounds)
                                : "unknown: " + explanation.slowdown_grounds});
  if (!explanation.library.empty())
    answer.row({"library", explanation.library});
  else if (!explanation.implementation.empty())
    answer.row({"machine code", explanation.machine_code});
  for (const std::string& pass : explanation.passes) answer.row({"launches", pass});
  if (!idle.empty()) answer.row({"idle", idle});
  print(answer.text());
}

std::vector<NextStep> steps_of(const Globals& globals, const ExplainSettings& settings, const manifest::Op& op,
                               const Problem& problem, const Target& target, store::Layers& layers) {
  const answer::Resolution found = answer::resolve({op, target.facts, Regime::cold_l2}, problem, layers);
  MissingWork missing;
  const answer::Answer* answer = found.is_hit() ? found.first(problem).serves : nullptr;
  if (answer != nullptr || !found.is_hit()) add_missing(missing, {&op, found.bucket.edge}, answer, target, layers);
  return next_steps(globals, target, layers, missing,
                    {.tune = fmt::format("kiln tune {} {}", op.name, fmt::join(settings.words, " ")),
                     .compile = "kiln prewarm WORKLOAD.toml",
                     .note = "WORKLOAD.toml names this problem, in the form that docs/deployment.md describes"});
}

/// A record that other sources were timed for serves, and may no longer be the fastest.
NextStep how_to_renew(Globals globals, const ExplainSettings& settings, const manifest::Op& op, const Target& target) {
  if (wants_no_overlay(globals)) globals.overlay = "FILE.kiln";
  return {
      fmt::format("tune what is stale again, on a GPU of class {}", class_word(target.facts.device_class())),
      {fmt::format("kiln tune --stale {} {}{}", op.name, fmt::join(settings.words, " "), options_that_find(globals))}};
}

/// Of a problem with a size of 0, which no file is asked for.
int explain_nothing(const Globals& globals, const manifest::Op& op, const Problem& problem) {
  const Explanation explanation = answer::explain_nothing(op, problem);
  if (globals.json) {
    print_json({{"problem", manifest::to_string(op, problem)}, {"launched", 0}, {"why", explanation.why}});
  } else {
    Table table({"", ""});
    table.row({"problem", fmt::format("{} {}", op.name, explanation.problem)});
    table.row({"answer", "nothing is launched"});
    table.row({"because", explanation.why});
    print(table.text());
  }
  return exit_good;
}

int run(const Globals& globals, const ExplainSettings& settings) {
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  const manifest::Op& op = find_op(ops, settings.op);
  const Problem problem = parse_problem(op, settings.words, manifest::Zeros::taken);
  if (manifest::is_empty(op, problem)) return explain_nothing(globals, op, problem);
  store::Layers layers(layer_settings(globals));  // a base that is refused is part of the explanation
  require_readable_overlay(globals, layers);
  say_warnings(globals, layers);
  const Target target = choose_target(globals, settings.target, layers, true);
  jit::CompilePool pool(1);
  answer::Cubins cubins(layers, pool);
  const Explanation explanation =
      answer::explain({op, target.facts, Regime::cold_l2}, problem, target.arch, layers, cubins);
  std::vector<NextStep> steps = steps_of(globals, settings, op, problem, target, layers);
  if (explanation.stale && !is_fallback(explanation.origin))
    steps.insert(steps.begin(), how_to_renew(globals, settings, op, target));
  const std::string idle = text_of_idle(op, problem, explanation, target.facts);
  if (globals.json) {
    print_json(json_of(op, problem, explanation, target, idle, steps));
  } else {
    print_text(op.name, explanation, target, idle);
    print_next_steps(steps);
  }
  say_damaged(globals, layers);
  return explanation.implementation.empty() ? exit_wrong : exit_good;
}

}  // namespace

void add_explain(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<ExplainSettings>(
      app, chosen, "explain", "Show bucket, key, each file's answer and what would be launched; launches nothing",
      declare, run, takes_all);
  command->footer(
      "Example:\n  kiln explain rms_norm rows=137 cols=4096 dtype=bf16 --base h200.kiln\n"
      "Exit status 1: nothing can serve the problem.");
}

}  // namespace kiln::cli
