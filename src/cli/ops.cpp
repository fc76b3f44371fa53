// kiln ops: lists ops, or describes one.
#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/compile_check.hpp"
#include "cli/output.hpp"
#include "cli/problem_set.hpp"
#include "cli/table.hpp"
#include "cli/target.hpp"
#include "cli/units.hpp"
#include "kiln/error.hpp"
#include "manifest/describe.hpp"
#include "manifest/variant.hpp"

namespace kiln::cli {
namespace {

struct OpsSettings {
  std::string op;
  std::vector<std::string> words;
  TargetChoice target;
  bool compile = false;
};

void declare(CLI::App& command, OpsSettings& settings) {
  command.add_option("op", settings.op, "Describe this op: axes, types, tensors, implementations, search spaces")
      ->type_name("OP");
  command
      .add_option("problem", settings.words,
                  "At these sizes (rows=512 dtype=bf16); an axis left out takes a usual size, 4096 for most")
      ->type_name("NAME=VALUE");
  command.add_flag("--compile", settings.compile,
                   "Compile each implementation's default and the reference, at these sizes; needs NVRTC, but no GPU");
  command.add_option("--arch", settings.target.arch, "For this architecture, such as sm_90a")->type_name("ARCH");
  add_device_class(command, settings.target.device_class, "For this device class, present or not");
}

std::string names(const auto& items) {
  std::vector<std::string> list;
  for (const auto& each : items) list.push_back(each.name);
  return fmt::format("{}", fmt::join(list, ", "));
}

int list(const Globals& globals, const manifest::Catalogue& ops) {
  Table table({"op", "axes", "implementations", "from", "what"});
  for (const manifest::Op& op : ops.all()) {
    if (globals.json) {
      Json json{{"op", op.name},       {"summary", op.summary}, {"revision", op.revision},
                {"folder", op.folder}, {"axes", Json::array()}, {"implementations", Json::array()}};
      for (const auto& axis : op.axes) json["axes"].push_back(axis.name);
      for (const auto& implementation : op.implementations) json["implementations"].push_back(implementation.name);
      print_json(json);
    }
    table.row({op.name, names(op.axes), names(op.implementations), op.folder, op.summary});
  }
  if (!globals.json) print(table.text());
  return exit_good;
}

std::string joined(const std::vector<manifest::Expression>& expressions) {
  std::vector<std::string> texts;
  for (const manifest::Expression& each : expressions) texts.push_back(each.text());
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string describe_output(const manifest::Tensor& tensor) {
  if (!tensor.initialised) return tensor.optional ? "optional output" : "output";
  const std::string when = tensor.initialised->text();
  return when == "1" ? "read and written" : fmt::format("output; read too when {}", when);
}

/// "optional output; when bias == "tensor""
std::string describe_use(const manifest::Tensor& tensor) {
  std::string use = tensor.output     ? describe_output(tensor)
                    : tensor.per_rank ? (tensor.optional ? "optional; each rank's own" : "each rank's own")
                    : tensor.optional ? "optional"
                                      : "";
  if (tensor.when) use += fmt::format("{}when {}", use.empty() ? "" : "; ", tensor.when->text());
  return use;
}

void print_axes(const manifest::Op& op) {
  Table axes({"axis", "bucket", "> least", "> most", "> multiple of", "length on the device"});
  for (const manifest::Axis& axis : op.axes)
    axes.row({axis.name, axis.team ? "ranks of a team" : manifest::policy_text(axis), format_count(axis.minimum),
              format_count(axis.maximum), format_count(axis.multiple_of), axis.on_device ? "may be" : "no"});
  print("\n" + axes.text());
  if (!op.selections.empty()) {
    Table selections({"type or choice", "values", "unless given"});
    for (const manifest::Selection& each : op.selections)
      selections.row({each.name, fmt::format("{}", fmt::join(each.values, ", ")), manifest::default_text(op, each)});
    print("\n" + selections.text());
  }
  if (op.allowed.empty()) return;
  Table rules({"allowed when", "because"});
  for (const manifest::Rule& each : op.allowed) rules.row({each.when.text(), each.message});
  print("\n" + rules.text());
}

void print_arguments(const manifest::Op& op) {
  if (!op.runtime.empty()) {
    Table runtime({"run-time value", "type", "default", "bounds", "verified with"});
    for (const manifest::Runtime& each : op.runtime)
      runtime.row({each.name, std::string(manifest::to_string(each.type)),
                   each.default_integer ? each.default_integer->text()
                   : each.default_real  ? each.default_real->text()
                   : each.team_rank     ? "the team's rank"
                                        : "",
                   manifest::bound_text(each),
                   each.verify_integer ? each.verify_integer->text()
                   : each.verify_real  ? each.verify_real->text()
                                       : ""});
    print("\n" + runtime.text());
  }
  Table tensors({"tensor", "type", "shape", "strides", ""});
  for (const manifest::Tensor& each : op.tensors)
    tensors.row({each.name,
                 each.selection >= 0 ? op.selections[static_cast<std::size_t>(each.selection)].name
                                     : std::string(manifest::to_string(each.dtype)),
                 joined(each.shape), joined(each.strides), describe_use(each)});
  print("\n" + tensors.text());
}

struct Space {
  const manifest::Implementation* implementation;
  std::string why_not;                 // empty: eligible
  std::size_t configs = 0;             // worth a trial of a tune
  std::optional<std::size_t> legal{};  // nothing: too many to count
  std::int64_t combinations = 1;
};

std::vector<Space> spaces_of(const manifest::Op& op, const Problem& problem, const manifest::DeviceFacts& facts) {
  std::vector<Space> spaces;
  for (const manifest::Implementation& implementation : op.implementations) {
    Space space{&implementation, manifest::why_not_eligible({op, facts}, implementation, problem).value_or("")};
    for (const manifest::Parameter& parameter : implementation.parameters)
      space.combinations *= static_cast<std::int64_t>(parameter.values.size());
    if (space.why_not.empty()) {
      space.configs = manifest::search_space({op, facts}, implementation, problem).size();
      space.legal = manifest::count_legal({op, facts}, implementation, problem);
    }
    spaces.push_back(std::move(space));
  }
  return spaces;
}

std::string what_there_is(const Space& space) {
  if (!space.implementation->has_kernels())
    return fmt::format("eligible: where the library {} is found, it proposes configs when a bucket is tuned",
                       space.implementation->library);
  const std::string legal =
      space.legal ? format_count(static_cast<std::int64_t>(*space.legal)) : "more than can be counted";
  const std::string& library = space.implementation->library;
  return fmt::format("eligible{}: {}, {} legal by [constraints], {} worth a trial{}",
                     library.empty() ? "" : fmt::format(" where the library {} is found", library),
                     counted(space.combinations, "combination"), legal,
                     format_count(static_cast<std::int64_t>(space.configs)),
                     space.implementation->search.empty() ? "" : " by [search]");
}

std::string default_text(const manifest::Implementation& implementation) {
  return implementation.is_library() ? "none: a library may be missing"
                                     : manifest::to_string(implementation, implementation.default_config);
}

void print_implementations(const std::vector<Space>& spaces) {
  for (const Space& space : spaces) {
    const manifest::Implementation& implementation = *space.implementation;
    print("\n" + wrapped_text(fmt::format("implementation {}: {}\n", implementation.name, implementation.summary), 2));
    Table facts({"", ""});
    if (!implementation.requires_text.empty()) facts.row({"requires", implementation.requires_text});
    facts.row({"here", space.why_not.empty() ? what_there_is(space) : "not eligible: " + space.why_not});
    for (const manifest::Parameter& parameter : implementation.parameters)
      if (!parameter.values.empty())
        facts.row({parameter.name, fmt::format("{}{}", fmt::join(parameter.values, " "),
                                               parameter.launch_only ? "  (of the launch, not the kernel)" : "")});
    for (const manifest::Symbols::Term& term : implementation.symbols.terms())
      facts.row({"term", fmt::format("{} = {}", term.name, term.value.text())});
    for (const manifest::Expression& constraint : implementation.constraints)
      facts.row({"constraint", constraint.text()});
    for (const manifest::Expression& condition : implementation.search) facts.row({"search", condition.text()});
    facts.row({"default", default_text(implementation)});
    print(facts.text(2));
  }
}

void print_op_json(const manifest::Op& op, const Problem& problem, const Target& target,
                   const std::vector<Space>& spaces) {
  Json json = manifest::to_json(manifest::describe({op, target.facts}, problem));
  json["problem"] = manifest::to_string(op, problem);
  json["device_class"] = target.facts.device_class();
  json["device"] = target.about;
  json["implementations"] = Json::array();
  for (const Space& space : spaces) {
    Json implementation{{"name", space.implementation->name},
                        {"requires", space.implementation->requires_text},
                        {"eligible", space.why_not.empty()},
                        {"why_not", space.why_not},
                        {"configs", space.configs},
                        {"legal", space.legal ? Json(*space.legal) : Json()},
                        {"library", space.implementation->library},
                        {"default", default_text(*space.implementation)}};
    for (const manifest::Parameter& parameter : space.implementation->parameters)
      implementation["parameters"][parameter.name] = parameter.values;
    json["implementations"].push_back(std::move(implementation));
  }
  print_json(json);
}

int run(const Globals& globals, const OpsSettings& settings) {
  const manifest::Catalogue ops = load_ops(globals, settings.op);
  if (settings.op.empty() && settings.compile)
    throw Error(ErrorKind::bad_input, "--compile needs an op: kiln ops OP --compile");
  if (settings.op.empty()) return list(globals, ops);
  const manifest::Op& op = find_op(ops, settings.op);
  const Problem problem = sample_problem(op, settings.words);
  const store::Layers none(store::LayerSettings{});  // no files: nothing here needs a record
  const Target target = choose_target(globals, settings.target, none, true);
  if (settings.compile) return check_compiles(globals, op, problem, target);
  const std::vector<Space> spaces = spaces_of(op, problem, target.facts);
  if (globals.json) {
    print_op_json(op, problem, target, spaces);
    return exit_good;
  }
  print(wrapped_text(fmt::format("{} (revision {}, {}): {}\n", op.name, op.revision, op.folder, op.summary), 2));
  if (const std::string contract = manifest::contract_of(op); !contract.empty()) print("\n" + reflowed(contract));
  print_axes(op);
  print_arguments(op);
  print("\n" + wrapped_text(fmt::format("For {} on {} ({}):\n", manifest::display_text(op, problem),
                                        target.facts.device_class(), target.about),
                            2));
  print_implementations(spaces);
  return exit_good;
}

}  // namespace

void add_ops(CLI::App& app, Chosen& chosen) {
  CLI::App* command = add_command<OpsSettings>(app, chosen, "ops", "List the ops, or describe one of them", declare,
                                               run, takes_device | takes_templates);
  command->footer(
      "Examples:\n  kiln ops\n  kiln ops softmax cols=32768\n  kiln ops my_op --templates my_ops --arch sm_90a --compile\n  kiln ops gemm m=16 --device-class A100");
}

}  // namespace kiln::cli
