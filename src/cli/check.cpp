// kiln check: what is wrong in an op's manifests and kernels, without a device and without records.
#include "check/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "cuda/nvrtc_api.hpp"
#include "jit/specialisation.hpp"
#include "kiln/error.hpp"
#include "manifest/text.hpp"
#include "process/child.hpp"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

struct CheckSettings {
  std::string what;
  std::vector<std::string> words;
  std::vector<std::string> archs, device_classes;
  std::size_t most_compiles = 12;
  bool no_compile = false;
};

void declare(CLI::App& command, CheckSettings& settings) {
  command.add_option("op", settings.what, "An op, its folder, or a folder of ops")->type_name("OP|FOLDER")->required();
  command
      .add_option("problem", settings.words,
                  "At these sizes too (rows=512 dtype=bf16), where the usual ones are not legal; of one op")
      ->type_name("NAME=VALUE");
  command
      .add_option("--arch", settings.archs,
                  "For devices of these architectures: sm_90a,sm_80; sm_90a where nothing is named")
      ->delimiter(',')
      ->type_name("ARCH");
  command.add_option("--device-class", settings.device_classes, "For these devices: " + help_of_classes())
      ->delimiter(',')
      ->type_name("CLASS");
  command
      .add_option("--compiles", settings.most_compiles,
                  "Compile at most so many kernels of each implementation for each architecture")
      ->capture_default_str()
      ->transform(whole_number_from(1, 10000))
      ->type_name("N");
  command.add_flag("--no-compile", settings.no_compile, "Check manifests and names alone, which needs no NVRTC");
}

std::vector<fs::path> template_paths(const Globals& globals) {
  std::vector<fs::path> paths(globals.templates.begin(), globals.templates.end());
  std::ranges::copy(manifest::template_paths_of_environment(), std::back_inserter(paths));
  return paths;
}

/// Whether the word can only be a path: it has a slash, or it is "." or "..".
bool is_path(std::string_view word) { return word.find('/') != std::string_view::npos || word == "." || word == ".."; }

/// Returns the folder that the word names: a path, or an op's in one of the template folders.
std::optional<fs::path> folder_of(const std::string& word, std::span<const fs::path> paths) {
  std::error_code ignored;
  for (const fs::path& each : is_path(word) ? std::span<const fs::path>() : paths) {
    const fs::path clean = each.has_filename() ? each : each.parent_path();
    if (fs::exists(each / word / manifest::op_file, ignored)) return each / word;
    if (clean.filename() == word && fs::exists(each / manifest::op_file, ignored)) return each;
  }
  if (fs::is_directory(word, ignored)) return fs::path(word);
  return std::nullopt;
}

/// A folder by its own name, where the word is "." or ends in one, or in "..": an op is named after its folder.
fs::path by_name(const fs::path& folder) {
  const fs::path clean = folder.has_filename() ? folder : folder.parent_path();
  if (clean.filename() != "." && clean.filename() != "..") return folder;
  std::error_code failure;
  const fs::path canonical = fs::weakly_canonical(clean, failure);
  return failure ? folder : canonical;
}

/// Ops that one in `folder` hides, or that hide it: built-in ones, and those of other template folders.
std::vector<check::KnownOp> other_ops(const fs::path& folder, std::span<const fs::path> paths) {
  std::vector<check::KnownOp> ops;
  std::error_code ignored;
  const fs::path own = fs::weakly_canonical(folder, ignored);
  for (const fs::path& path : paths)
    for (fs::directory_iterator each(path, ignored), end; !ignored && each != end; each.increment(ignored)) {
      const fs::path other = fs::weakly_canonical(each->path(), ignored);
      if (fs::exists(other / manifest::op_file, ignored) && other != own && other.parent_path() != own)
        ops.push_back({other.filename().string(), other.string()});
    }
  for (const std::string_view each : manifest::built_in_names()) ops.push_back({std::string(each), "built-in"});
  return ops;
}

std::vector<check::ReadOp> ops_named(const Globals& globals, const CheckSettings& settings, check::Findings& findings) {
  const std::vector<fs::path> paths = template_paths(globals);
  if (const auto named = folder_of(settings.what, paths)) {
    const fs::path folder = by_name(*named);
    return check::read_ops(folder, other_ops(folder, paths), findings);
  }
  if (is_path(settings.what))
    throw Error(ErrorKind::bad_input, fmt::format("there is no folder {}", manifest::quote(settings.what)));
  const manifest::Catalogue ops = load_ops(globals, settings.what);
  std::vector<check::ReadOp> read;
  read.push_back({find_op(ops, settings.what, "op or folder"), {}});
  return read;
}

std::vector<check::Target> targets_of(const CheckSettings& settings) {
  std::vector<std::string> words = settings.archs;
  words.insert(words.end(), settings.device_classes.begin(), settings.device_classes.end());
  if (words.empty()) words.emplace_back("H200");
  std::vector<check::Target> targets;
  for (const std::string& each : words) {
    const Target target = assumed_target(each);
    targets.push_back({target.facts, target.arch});
  }
  return targets;
}

/// Returns why kernels cannot be compiled for these targets: NVRTC does not open, or lacks an architecture, as newer
/// releases lack old ones.
std::optional<Error> why_not_compiled(const std::vector<check::Target>& targets) try {
  const cuda::Nvrtc& nvrtc = cuda::Nvrtc::get();
  const std::vector<std::string> known = jit::supported_archs();
  for (const check::Target& target : targets) {
    const std::string plain = target.arch.substr(0, target.arch.find_last_of("0123456789") + 1);
    if (std::ranges::find(known, plain) == known.end())
      return Error(ErrorKind::compile_failed,
                   fmt::format("kernels were not compiled: {} was asked for, and NVRTC {}.{} at {} compiles for {}; "
                               "--no-compile leaves them out",
                               plain, nvrtc.major, nvrtc.minor, nvrtc.path, fmt::join(known, ", ")));
  }
  return std::nullopt;
} catch (const Error& error) {
  return Error(error.kind(),
               fmt::format("kernels were not compiled, and --no-compile leaves them out: {}", error.what()));
}

void print_finding(const Globals& globals, const check::Finding& finding) {
  if (!globals.json) return print(check::to_string(finding) + "\n");
  print_json({{"event", "finding"},
              {"severity", check::to_string(finding.severity)},
              {"kind", finding.kind},
              {"file", finding.file},
              {"line", finding.line.number},
              {"what", finding.what},
              {"remedy", finding.remedy},
              {"at", finding.at}});
}

std::string legal_text(const check::Space& space) {
  return fmt::format("{}{}", space.legal >= check::most_legal ? "at least " : "",
                     format_count(static_cast<std::int64_t>(space.legal)));
}

/// Long conditions are found by their line.
std::string cut(std::string condition) {
  constexpr std::size_t most = 96;
  if (condition.size() > most) condition.replace(most - 3, std::string::npos, "...");
  return condition;
}

void print_space(const Globals& globals, const std::string& op, const check::Space& space) {
  if (globals.json) {
    Json json{{"event", "space"},
              {"op", op},
              {"implementation", space.implementation},
              {"at", space.problem},
              {"configs", space.configs},
              {"legal", space.legal},
              {"searched", space.searched},
              {"conditions", Json::array()}};
    for (const check::Removal& each : space.removals)
      json["conditions"].push_back({{"condition", each.condition},
                                    {"file", each.file},
                                    {"line", each.line},
                                    {"search", each.is_search},
                                    {"removed", each.removed ? Json(*each.removed) : Json()}});
    return print_json(json);
  }
  print(fmt::format("{} at {}: {}, {} legal, {} tried by a tune\n", space.implementation, space.problem,
                    counted(space.configs, "config"), legal_text(space),
                    format_count(static_cast<std::int64_t>(space.searched))));
  if (space.removals.empty()) return;
  Table table({"line", "condition", "> removes"});
  const auto place_of = [&](const check::Removal& each) {
    return each.file == space.file ? fmt::format("{}", each.line) : fmt::format("{}:{}", each.file, each.line);
  };
  for (const check::Removal& each : space.removals)
    table.row({place_of(each), cut((each.is_search ? "search: " : "") + each.condition),
               each.removed ? format_count(*each.removed) : "?"});
  print(table.text(2));
}

void print_end(const Globals& globals, std::span<const check::Checked> checked, const check::Findings& findings,
               bool compiled) {
  const std::size_t errors = findings.count(check::Severity::error);
  const std::size_t warnings = findings.count(check::Severity::warning);
  std::size_t compiles = 0;
  for (const check::Checked& each : checked) compiles += each.compiles;
  if (globals.json)
    return print_json({{"event", "checked"},
                       {"ops", checked.size()},
                       {"errors", errors},
                       {"warnings", warnings},
                       {"compiles", compiles}});
  print(fmt::format("{}: {}, {}; {}\n",
                    checked.size() == 1 ? checked.front().op : counted(static_cast<std::int64_t>(checked.size()), "op"),
                    counted(static_cast<std::int64_t>(errors), "error"),
                    counted(static_cast<std::int64_t>(warnings), "warning"),
                    compiled ? counted(static_cast<std::int64_t>(compiles), "compile") : "nothing was compiled"));
}

int run(const Globals& globals, const CheckSettings& settings) {
  check::Findings findings;
  const std::vector<check::ReadOp> ops = ops_named(globals, settings, findings);
  check::Settings how{targets_of(settings), {}, !settings.no_compile, {}};
  const auto obstacle = how.compile ? why_not_compiled(how.targets) : std::nullopt;
  if (obstacle) how.compile = false;
  how.compiles = {process::find_worker({}), settings.most_compiles, {}};
  StatusLine progress(is_terminal() && !globals.quiet && !globals.json);
  how.compiles.on_compile = [&](const std::string& label) { progress.show("compiling " + label); };
  if (!settings.words.empty() && (ops.size() != 1 || !ops.front().mistakes.empty()))
    throw Error(ErrorKind::bad_input, "sizes are of one op that can be read; leave them out");
  if (!settings.words.empty()) how.problems.push_back(sample_problem(ops.front().op, settings.words));
  std::vector<check::Checked> checked;
  for (const check::ReadOp& each : ops) checked.push_back(check::check_op(each, how, findings));
  progress.clear();
  for (const check::Finding& each : findings.sorted()) print_finding(globals, each);
  if (checked.size() == 1 || globals.json)
    for (const check::Checked& each : checked)
      for (const check::Space& space : each.spaces) print_space(globals, each.op, space);
  print_end(globals, checked, findings, how.compile);
  if (findings.count(check::Severity::error) > 0) return exit_wrong;
  if (obstacle) throw *obstacle;
  return exit_good;
}

}  // namespace

void add_check(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<CheckSettings>(
      app, chosen, "check", "Name every mistake in an op, with file, line and remedy; needs no GPU and no records",
      declare, run, takes_templates);
  command->footer(
      "Exit status 1 on an error, 0 with warnings alone.\n\nExamples:\n  kiln check my_ops                         each op in the folder\n  kiln check rms_norm --arch sm_90a,sm_80   a built-in op, or one of --templates\n  kiln check my_ops/scale rows=100 --device-class A100,4090\n  kiln check my_ops --no-compile            manifests alone, in milliseconds");
}

}  // namespace kiln::cli
