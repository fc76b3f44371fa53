#include "check/names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "manifest/includes.hpp"
#include "manifest/text.hpp"

namespace kiln::check {
namespace {

using manifest::TomlEntry;
using manifest::TomlValue;
using Names = std::set<std::string, std::less<>>;

/// Adds the names in all texts of `value`: expressions, arguments, placeholders of kernels.
void add_names(const TomlValue& value, Names& names) {
  for (const std::string_view each : manifest::names_in(value.text)) names.emplace(each);
  for (const TomlValue& each : value.items) add_names(each, names);
  for (const TomlEntry& each : value.entries)
    if (each.key != "summary") add_names(each.value, names);  // prose
}

/// Returns the names in these sections of a document, and in the terms that those name.
Names names_of(const TomlValue& document, std::initializer_list<std::string_view> sections) {
  Names names;
  for (const std::string_view each : sections)
    if (const TomlValue* section = document.find(each)) add_names(*section, names);
  const TomlValue* const terms = document.find("terms");
  if (terms == nullptr) return names;
  // From the last: a term names only those above it.
  for (std::size_t i = terms->entries.size(); i-- > 0;)
    if (const TomlEntry& term = terms->entries[i]; names.contains(term.key)) add_names(term.value, names);
  return names;
}

/// A pass without its model, which no launch depends on.
Names names_of_launch(const TomlValue& document) {
  TomlValue launch = document;
  for (TomlEntry& section : launch.entries)
    if (section.key == "pass")
      for (TomlValue& pass : section.value.items)
        std::erase_if(pass.entries, [](const TomlEntry& each) { return each.key == "model"; });
  return names_of(launch, {"pass", "workspace", "align", "matmul", "collective"});
}

/// Whether a comparison with a number begins the text. `<` and `>` alone may be brackets of a kernel's name.
bool compares_with_number(std::string_view text) {
  const auto trim = [&] { text.remove_prefix(std::min(text.find_first_not_of(' '), text.size())); };
  trim();
  const std::string_view operation = text.substr(0, 2);
  if (operation != "==" && operation != "!=" && operation != "<=" && operation != ">=") return false;
  text.remove_prefix(2);
  trim();
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

/// Names comparisons of a type or choice with a number, in all texts of `value` except for prose.
void check_comparisons(const manifest::Op& op, const TomlValue& value, const std::string& file, Findings& findings) {
  const std::string_view text = value.text;
  for (const std::string_view name : manifest::names_in(text)) {
    const auto selection = std::find_if(op.selections.begin(), op.selections.end(),
                                        [&](const manifest::Selection& each) { return each.name == name; });
    if (selection == op.selections.end()) continue;
    if (!compares_with_number(text.substr(static_cast<std::size_t>(name.data() - text.data()) + name.size()))) continue;
    findings.add({Severity::error,
                  "comparison",
                  file,
                  value.line,
                  fmt::format("compares '{}' with a number, and its values are words", name),
                  "expected " + manifest::one_of(selection->values),
                  {}});
  }
  for (const TomlValue& each : value.items) check_comparisons(op, each, file, findings);
  for (const TomlEntry& each : value.entries)
    if (each.key != "summary") check_comparisons(op, each.value, file, findings);
}

}  // namespace

void check_comparisons(const manifest::Op& op, const Lines& lines, Findings& findings) {
  check_comparisons(op, lines.op(), manifest::shown_file(op, manifest::op_file), findings);
  for (const manifest::Implementation& each : op.implementations)
    check_comparisons(op, lines.of(each), each.file, findings);
}

void check_names(const manifest::Implementation& implementation, const Lines& lines, Findings& findings) {
  const TomlValue& document = lines.of(implementation);
  const Names used =
      names_of(document, {"pass", "workspace", "align", "matmul", "collective", "constraints", "search", "requires"});
  const Names launched = names_of_launch(document);
  const auto each_of = [&](std::string_view section, const auto& visit) {
    const TomlValue* const table = document.find(section);
    for (const TomlEntry& each : table == nullptr ? std::vector<TomlEntry>{} : table->entries) visit(each);
  };
  const auto add = [&](Severity severity, const TomlEntry& of, std::string what, std::string remedy) {
    findings.add(
        {severity, "unused_" + of.key, implementation.file, of.value.line, std::move(what), std::move(remedy), {}});
  };
  each_of("parameters", [&](const TomlEntry& each) {
    if (launched.contains(each.key)) return;
    const bool multiplies = each.value.items.size() > 1;
    add(multiplies ? Severity::error : Severity::warning, each,
        fmt::format("the parameter '{}' changes no launch{}", each.key,
                    multiplies ? fmt::format(", and multiplies the configs by {}", each.value.items.size()) : ""),
        "name it in a pass, or remove it");
  });
  // A part's are for whoever includes it.
  each_of("terms", [&](const TomlEntry& each) {
    if (!used.contains(each.key) && !each.value.line.part)
      add(Severity::warning, each, fmt::format("the term '{}' is never used", each.key), "use it, or remove it");
  });
  each_of("workspace", [&](const TomlEntry& each) {
    if (!names_of(document, {"pass", "collective"}).contains(each.key) && !each.value.line.part)
      add(Severity::warning, each, fmt::format("no pass takes the workspace '{}'", each.key),
          "name it in 'args', or remove it");
  });
}

void check_names(const manifest::Op& op, const Lines& lines, Findings& findings) {
  const TomlValue& document = lines.op();
  Names used = names_of(document, {"op", "axes", "runtime", "tensors", "tolerance", "prepare", "reference", "cost"});
  for (const manifest::Implementation& each : op.implementations) {
    const TomlValue& own = lines.of(each);
    used.merge(
        names_of(own, {"pass", "workspace", "align", "matmul", "collective", "constraints", "search", "requires"}));
  }
  for (const manifest::Selection& each : op.selections)  // a default that follows another
    if (each.like >= 0) used.insert(op.selections[static_cast<std::size_t>(each.like)].name);
  const auto add = [&](std::string_view section, std::string_view what, const std::string& name,
                       std::string_view cost) {
    if (used.contains(name)) return;
    findings.add({Severity::warning,
                  "unused_" + name,
                  manifest::shown_file(op, manifest::op_file),
                  line_at(document, {section, name}),
                  fmt::format("{} '{}' is never used", what, name),
                  fmt::format("use it, or remove it: {}", cost),
                  {}});
  };
  for (const manifest::SourceFile& each : op.manifests) {
    const std::string file = manifest::shown_file(op, each.name);
    const auto includes = [&](const manifest::Implementation& one) {
      return std::find(one.parts.begin(), one.parts.end(), file) != one.parts.end();
    };
    if (!manifest::is_part(each.name) || std::any_of(op.implementations.begin(), op.implementations.end(), includes))
      continue;
    findings.add({Severity::warning,
                  "unused_part",
                  file,
                  1,
                  "no manifest includes this part",
                  fmt::format("include = [\"{}\"] in one, or remove it", each.name),
                  {}});
  }
  constexpr std::string_view of_key = "each of its values has buckets of its own";
  for (const manifest::Axis& each : op.axes) add("axes", "the axis", each.name, of_key);
  for (const manifest::Runtime& each : op.runtime)
    add("runtime", "the run-time value", each.name, "a launch that gives it gets the same as without");
  for (const manifest::Selection& each : op.selections)
    add(each.is_type() ? "types" : "choices", each.is_type() ? "the type" : "the choice", each.name, of_key);
}

namespace {

/// Adds the names in `args` of the passes that run in the frame.
void add_given(std::span<const manifest::Pass> passes, const TomlValue& tables, std::span<const std::int64_t> frame,
               Names& given) {
  for (std::size_t i = 0; i < passes.size() && i < tables.items.size(); ++i) {
    if (passes[i].when && !passes[i].when->evaluate(frame).truth()) continue;
    if (const TomlValue* args = tables.items[i].find("args")) add_names(*args, given);
  }
}

}  // namespace

void check_tensors(const manifest::Op& op, const manifest::Implementation& implementation, const Lines& lines,
                   const Target& target, const Trials& trials, Findings& findings) {
  const TomlValue& document = lines.of(implementation);
  const TomlValue* const passes = document.find("pass");
  if (passes == nullptr || implementation.is_library()) return;
  for (const Trial& trial : trials.usual) {
    if (trial.configs.empty()) continue;
    Names given;
    // A pass that another config runs may be the one that takes a tensor.
    for (const manifest::Config& config : trial.configs) {
      const auto frame = manifest::Variant{&implementation, config}.frame({op, target.facts}, trial.problem);
      add_given(implementation.passes, *passes, frame, given);
    }
    const auto frame = manifest::frame_of({op, target.facts}, trial.problem);
    for (const manifest::Tensor& each : op.tensors) {
      if (given.contains(each.name) || !manifest::Op::takes_part(each, frame)) continue;
      const bool must = each.output && !each.optional;
      findings.add(
          {must ? Severity::error : Severity::warning, "untaken_" + each.name, implementation.file, passes->line,
           must ? fmt::format("no pass takes the output '{}', which stays unwritten", each.name)
                : fmt::format("no pass takes '{}', so that a launch that gives it gets the same as without", each.name),
           must ? "name it in 'args'" : "name it in 'args', or rule such problems out by 'requires'",
           text_of(op, trial.problem, {}, target)});
    }
  }
}

void check_reference_tensors(const manifest::Op& op, const Lines& lines, const Target& target, Findings& findings) {
  const TomlValue* const passes = value_at(lines.op(), {"reference", "pass"});
  if (passes == nullptr) return;
  const manifest::Site site(op, target.facts);
  for (const Problem& selections : allowed_selections(op)) {
    const Problem problem = at_size(op, selections, 1024);
    const auto frame = manifest::frame_of(site, problem);
    Names given;
    add_given(op.reference, *passes, frame, given);
    for (const manifest::Tensor& each : op.tensors) {
      if (given.contains(each.name) || !manifest::Op::takes_part(each, frame)) continue;
      if (!each.output && op.is_of_team()) continue;  // it may say what only an exchange needs
      findings.add(
          {each.output ? Severity::error : Severity::warning, "unreferenced_" + each.name,
           manifest::shown_file(op, manifest::op_file), passes->line,
           each.output
               ? fmt::format("no pass of the reference takes the output '{}', so every candidate is wrong", each.name)
               : fmt::format("no pass of the reference takes '{}', so nothing verifies what kernels do with it",
                             each.name),
           "name it in 'args', and compute with it", text_of(op, problem, {}, target)});
    }
  }
}

}  // namespace kiln::check
