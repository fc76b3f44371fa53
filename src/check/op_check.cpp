#include <fmt/format.h>

#include <algorithm>

#include "check/check.hpp"
#include "check/includes.hpp"
#include "check/kernels.hpp"
#include "check/names.hpp"
#include "check/values.hpp"
#include "kiln/error.hpp"
#include "manifest/includes.hpp"

namespace kiln::check {
namespace {

/// An implementation's trials on one target.
struct Prepared {
  const Target* target;
  const manifest::Implementation* implementation;
  Trials trials;
};

std::vector<manifest::Op> whole_parts(const ReadOp& read) {
  std::vector<manifest::Op> whole;
  const auto is_wrong = [&](const std::string& file) {
    return std::any_of(read.mistakes.begin(), read.mistakes.end(),
                       [&](const manifest::Mistake& each) { return each.file == file; });
  };
  if (is_wrong(manifest::shown_file(read.op, manifest::op_file))) return whole;
  whole.push_back(read.op);
  std::erase_if(whole.front().implementations, [&](const manifest::Implementation& each) {
    return is_wrong(each.file) || is_wrong(manifest::shown_file(read.op, each.source)) ||
           std::any_of(each.parts.begin(), each.parts.end(), is_wrong);
  });
  std::erase_if(whole.front().manifests, [&](const manifest::SourceFile& each) {
    const std::string file = manifest::shown_file(read.op, each.name);
    const auto& left = whole.front().implementations;
    return file != manifest::shown_file(read.op, manifest::op_file) && !manifest::is_part(each.name) &&
           std::none_of(left.begin(), left.end(),
                        [&](const manifest::Implementation& one) { return one.file == file; });
  });
  return whole;
}

std::string archs_of(std::span<const Target> targets) {
  std::vector<std::string> archs;
  for (const Target& each : targets) archs.push_back(each.arch);
  return fmt::format("{}", fmt::join(archs, ", "));
}

/// Names the constraint that no config meets, or all of them where only together they leave none.
void add_no_config(const manifest::Op& op, const manifest::Implementation& implementation, const Lines& lines,
                   const Target& target, Findings& findings) {
  const auto* const all = value_at(lines.of(implementation), {"constraints", "all"});
  const auto alone = impossible_constraint({op, target.facts}, implementation, allowed_selections(op));
  findings.add({Severity::error, "no_config", implementation.file, line_of_item(all, alone.value_or(0), 1),
                alone ? fmt::format("no config meets the constraint '{}' at any sizes that were tried",
                                    implementation.constraints[*alone].text())
                      : "no config meets [constraints] at any sizes that were tried",
                "loosen a constraint, or name sizes at which a config is legal: kiln check OP axis=SIZE", target.arch});
}

/// Says why an implementation serves nowhere: its `requires`, or its constraints.
void check_somewhere(const manifest::Op& op, const Lines& lines, std::span<const Prepared> prepared,
                     const Settings& settings, Findings& findings) {
  for (const manifest::Implementation& each : op.implementations) {
    if (!each.has_kernels()) continue;
    bool is_required = false;
    for (const Prepared& one : prepared) {
      if (one.implementation != &each) continue;
      is_required = is_required || one.trials.is_required_somewhere;
      if (one.trials.is_required_somewhere && one.trials.usual.empty())
        add_no_config(op, each, lines, *one.target, findings);
    }
    if (!is_required)
      findings.add({Severity::warning,
                    "requires",
                    each.file,
                    line_at(lines.of(each), {"requires"}),
                    fmt::format("'requires' holds for no types and choices on {}", archs_of(settings.targets)),
                    "name an architecture that has it with --arch, or loosen it",
                    {}});
  }
}

/// Says where a default is never legal: an error where no other default serves.
void check_defaults(const manifest::Op& op, const Lines& lines, std::span<const Prepared> prepared,
                    const Target& target, Findings& findings) {
  const manifest::Site site(op, target.facts);
  std::vector<const Prepared*> without;
  bool any_serves = false;
  for (const Prepared& each : prepared) {
    if (each.target != &target || each.trials.usual.empty()) continue;
    const auto is_legal = [&](const Trial& trial) {
      return !manifest::default_of(*each.implementation).broken_constraint(site, trial.problem);
    };
    const bool serves = std::any_of(each.trials.usual.begin(), each.trials.usual.end(), is_legal) ||
                        std::any_of(each.trials.edges.begin(), each.trials.edges.end(), is_legal);
    any_serves = any_serves || serves;
    if (!serves) without.push_back(&each);
  }
  for (const Prepared* each : without) {
    const manifest::Implementation& implementation = *each->implementation;
    const manifest::Variant usual = manifest::default_of(implementation);
    const Problem& problem = each->trials.usual.front().problem;
    findings.add(
        {any_serves ? Severity::warning : Severity::error, "default_config", implementation.file,
         line_at(lines.of(implementation), {"default"}),
         fmt::format("the default breaks the constraint '{}'", usual.broken_constraint(site, problem).value_or("")),
         any_serves ? "choose a default that is legal: until a tune, others serve in its place"
                    : "choose a default that is legal: until a tune, nothing else serves",
         text_of(op, problem, usual, target)});
  }
}

/// Says where no default serves sizes that the user named. One whose expressions have no value is named elsewhere.
void check_asked(const manifest::Op& op, const Lines& lines, const Target& target, const Problem& problem,
                 Findings& findings) try {
  const manifest::Site site(op, target.facts);
  std::string reasons;
  bool any_legal = false;
  for (const manifest::Implementation& each : op.implementations) {
    if (!each.has_kernels()) continue;
    std::string why = manifest::why_not_eligible(site, each, problem).value_or("");
    if (why.empty()) {
      const auto broken = manifest::default_of(each).broken_constraint(site, problem);
      if (!broken) return;
      any_legal = true;
      why = fmt::format("its default breaks {}, and other configs are legal", *broken);
    }
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", each.name, why);
  }
  if (reasons.empty()) return;
  findings.add({Severity::warning, "asked_sizes", manifest::shown_file(op, manifest::op_file),
                line_at(lines.op(), {"axes"}), "nothing serves these sizes without a tune: " + reasons,
                any_legal ? "choose a default that is legal there"
                          : "loosen the constraint, or let the axis refuse such sizes, by 'multiple_of' or 'max'",
                text_of(op, problem, {}, target)});
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression && error.kind() != ErrorKind::bad_manifest) throw;
}

/// Names types and choices that no implementation serves on a target that the op is for.
void check_coverage(const manifest::Op& op, const Lines& lines, std::span<const Prepared> prepared,
                    const Target& target, Findings& findings) {
  std::vector<const Prepared*> here;
  for (const Prepared& each : prepared)
    if (each.target == &target && !each.trials.usual.empty()) here.push_back(&each);
  if (here.empty()) return;
  const auto serves = [](const Prepared& each, std::size_t selection, std::size_t value) {
    return std::any_of(each.trials.usual.begin(), each.trials.usual.end(),
                       [&](const Trial& trial) { return trial.problem.selections[selection] == value; });
  };
  for (std::size_t i = 0; i < op.selections.size(); ++i)
    for (std::size_t value = 0; value < op.selections[i].values.size(); ++value) {
      if (std::any_of(here.begin(), here.end(), [&](const Prepared* each) { return serves(*each, i, value); }))
        continue;
      const manifest::Selection& selection = op.selections[i];
      findings.add({Severity::warning, fmt::format("unserved_{}", selection.values[value]),
                    manifest::shown_file(op, manifest::op_file),
                    line_at(lines.op(), {selection.is_type() ? "types" : "choices", selection.name}),
                    fmt::format("no implementation serves {} = {}", selection.name, selection.values[value]),
                    "add an implementation for it, or remove the value", target.arch});
    }
}

}  // namespace

Checked check_op(const ReadOp& read, const Settings& settings, Findings& findings) {
  for (const manifest::Mistake& each : read.mistakes) findings.add(each);
  Checked checked{read.op.name, {}, 0};
  const std::vector<manifest::Op> whole = whole_parts(read);
  if (whole.empty()) return checked;
  const manifest::Op& op = whole.front();
  const Lines lines(op);
  check_kernels(op, lines, read.mistakes.empty(), findings);
  check_include_cycles(op, findings);
  if (read.mistakes.empty()) check_names(op, lines, findings);
  check_comparisons(op, lines, findings);
  for (const Target& target : settings.targets)
    if (!check_op_expressions(op, lines, target, findings)) return checked;
  if (!settings.targets.empty()) {
    const Target& any = settings.targets.front();
    check_reference_tensors(op, lines, any, findings);
    check_cost(op, lines, any, findings);
    check_verified(op, lines, any, findings);
  }
  const std::vector<Problem> selections = allowed_selections(op);
  std::vector<Prepared> prepared;
  for (const Target& target : settings.targets)
    for (const manifest::Implementation& each : op.implementations)
      if (each.has_kernels())
        prepared.push_back({&target, &each, trials_of({op, target.facts}, each, selections, settings.problems)});
  for (const manifest::Implementation& each : op.implementations) check_names(each, lines, findings);
  for (const Prepared& each : prepared) {
    if (each.trials.usual.empty()) continue;
    const Subject subject{op, *each.implementation, lines, *each.target, each.trials};
    check_geometry(subject, findings);
    check_tensors(op, *each.implementation, lines, *each.target, each.trials, findings);
    checked.spaces.push_back(check_space(subject, findings));
  }
  for (const Target& target : settings.targets) {
    check_defaults(op, lines, prepared, target, findings);
    if (read.mistakes.empty()) check_coverage(op, lines, prepared, target, findings);
    for (const Problem& each : settings.problems) check_asked(op, lines, target, each, findings);
  }
  check_somewhere(op, lines, prepared, settings, findings);
  if (!settings.compile) return checked;
  std::vector<Compiled> compiles;
  for (const Target& target : settings.targets) {
    compiles.push_back({target, nullptr, nullptr});
    for (const Prepared& each : prepared)
      if (each.target == &target) compiles.push_back({target, each.implementation, &each.trials});
  }
  checked.compiles = check_compiles(op, lines, compiles, settings.compiles, findings);
  return checked;
}

}  // namespace kiln::check
