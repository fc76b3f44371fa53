#include "check/spaces.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "kiln/error.hpp"

namespace kiln::check {
namespace {

using manifest::Expression;
using manifest::Implementation;
using manifest::Op;

/// Calls `visit` for each combination of the values of these parameters, the others as in `frame`. Returns how many
/// there are, or nothing, without a call, when they are too many.
template <typename Visit>
std::optional<std::int64_t> visit_values(const Op& op, const Implementation& implementation,
                                         std::span<const std::size_t> parameters, std::vector<std::int64_t>& frame,
                                         const Visit& visit) {
  std::int64_t count = 1;
  for (const std::size_t each : parameters) {
    count *= static_cast<std::int64_t>(implementation.parameters[each].values.size());
    if (count > manifest::most_search_steps) return std::nullopt;
  }
  for (std::int64_t index = 0; index < count; ++index) {
    std::int64_t rest = index;
    for (const std::size_t each : parameters) {
      const auto& values = implementation.parameters[each].values;
      const auto size = static_cast<std::int64_t>(values.size());
      frame[static_cast<std::size_t>(op.first_parameter()) + each] = values[static_cast<std::size_t>(rest % size)];
      rest /= size;
    }
    visit();
  }
  return count;
}

std::vector<std::size_t> parameters_in(const Op& op, const Implementation& implementation,
                                       const Expression& condition) {
  std::vector<std::size_t> parameters;
  for (std::size_t i = 0; i < implementation.parameters.size(); ++i)
    if (condition.uses(op.first_parameter() + static_cast<int>(i))) parameters.push_back(i);
  return parameters;
}

struct Conditions {
  const std::vector<Expression>& list;
  std::string_view table;  // "constraints" or "search"
  std::string_view what;
};

/// Counts the configs that the condition breaks, whatever the others say of them.
Removal removal_of(const Subject& subject, const Conditions& conditions, std::size_t which, std::int64_t configs,
                   Findings& findings) {
  const Implementation& implementation = subject.implementation;
  const Expression& condition = conditions.list[which];
  const Problem& problem = subject.trials.usual.front().problem;
  const auto* const all = value_at(subject.lines.of(implementation), {conditions.table, "all"});
  const manifest::Line line = line_of_item(all, which, 1);
  Removal removal{
      condition.text(), line.part ? *line.part : implementation.file, line.number, conditions.table == "search", {}};
  const manifest::Site site(subject.op, subject.target.facts);
  std::vector<std::int64_t> frame = manifest::default_of(implementation).frame(site, problem);
  const auto parameters = parameters_in(subject.op, implementation, condition);
  std::int64_t broken = 0;
  const auto visit = [&] {
    const manifest::Value value = condition.evaluate(frame);
    if (value.truth()) return;
    ++broken;
    if (value.ok()) return;
    // Another condition may rule these values out.
    for (const Expression& other : implementation.constraints)
      if (const manifest::Value its = other.evaluate(frame); its.ok() && its.number == 0) return;
    const manifest::Config config(frame.begin() + subject.op.first_parameter(), frame.end());
    findings.add({Severity::error, fmt::format("value_{}_{}", conditions.table, which), removal.file, removal.line,
                  fmt::format("{} '{}' has no value: {}", conditions.what, condition.text(), to_string(value.status)),
                  "a config without one is never legal: " + advice_for(value.status),
                  text_of(subject.op, problem, {&implementation, config}, subject.target)});
  };
  const auto tried = visit_values(subject.op, implementation, parameters, frame, visit);
  if (tried && *tried > 0) removal.removed = configs / *tried * broken;
  return removal;
}

void check_search(const Subject& subject, Space& space, Findings& findings) try {
  const Implementation& implementation = subject.implementation;
  const manifest::Site site(subject.op, subject.target.facts);
  const auto searched = [&](const Trial& at) {
    return manifest::search_space(site, implementation, at.problem).size();
  };
  space.searched = searched(subject.trials.usual.front());
  for (const auto* const list : {&subject.trials.usual, &subject.trials.edges})
    if (space.searched > 0 || std::any_of(list->begin(), list->end(), searched)) return;
  constexpr int many = 1000;  // a [search] may be for few sizes
  for (const Problem& each : guessed_sizes(site, subject.trials.usual.front().problem, many))
    if (!manifest::search_space(site, implementation, each).empty()) return;
  findings.add(
      {Severity::warning, "search", implementation.file, line_at(subject.lines.of(implementation), {"search", "all"}),
       "[search] leaves no config at any sizes that were tried, so a tune times the default alone",
       "loosen a condition of [search], or name sizes that it is for: kiln check OP axis=SIZE", subject.target.arch});
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_manifest) throw;
  findings.add({Severity::error, "search_steps", subject.implementation.file,
                line_at(subject.lines.of(subject.implementation), {"parameters"}), error.what(), "declare fewer values",
                subject.target.arch});
}

}  // namespace

Space check_space(const Subject& subject, Findings& findings) {
  const Implementation& implementation = subject.implementation;
  Space space{implementation.name,
              implementation.file,
              text_of(subject.op, subject.trials.usual.front().problem, {}, subject.target),
              1,
              0,
              0,
              {}};
  for (const manifest::Parameter& each : implementation.parameters)
    if (__builtin_mul_overflow(space.configs, static_cast<std::int64_t>(each.values.size()), &space.configs))
      space.configs = std::numeric_limits<std::int64_t>::max();
  for (const Conditions& each : {Conditions{implementation.constraints, "constraints", "the constraint"},
                                 Conditions{implementation.search, "search", "the condition of [search]"}})
    for (std::size_t i = 0; i < each.list.size(); ++i)
      space.removals.push_back(removal_of(subject, each, i, space.configs, findings));
  space.legal = subject.trials.legal.size();
  check_search(subject, space, findings);
  return space;
}

std::optional<std::size_t> impossible_constraint(const manifest::Site& site, const Implementation& implementation,
                                                 std::span<const Problem> selections) try {
  constexpr std::size_t most = 64;  // of types and choices
  std::vector<std::vector<std::int64_t>> frames;
  for (const Problem& each : selections.first(std::min(selections.size(), most)))
    for (const std::int64_t size : usual_sizes)
      frames.push_back(launch_frame(site, manifest::default_of(implementation), at_size(*site.op, each, size)));
  for (std::size_t i = 0; i < implementation.constraints.size(); ++i) {
    const Expression& condition = implementation.constraints[i];
    const auto parameters = parameters_in(*site.op, implementation, condition);
    const bool is_met = std::any_of(frames.begin(), frames.end(), [&](std::vector<std::int64_t> frame) {
      bool holds = false;
      const auto tried = visit_values(*site.op, implementation, parameters, frame,
                                      [&] { holds = holds || condition.evaluate(frame).truth(); });
      return holds || !tried;
    });
    if (!is_met) return i;
  }
  return std::nullopt;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::bad_expression) throw;
  return std::nullopt;
}

}  // namespace kiln::check
