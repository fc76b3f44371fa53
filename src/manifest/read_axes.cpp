// [axes]: sizes and the policies that bucket them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "manifest/limits.hpp"
#include "manifest/manifest_parts.hpp"

namespace kiln::manifest {
namespace {

/// Reads an integer above `previous`, which may be the largest of all.
std::int64_t above(const ManifestReader& reader, const TomlValue& value, std::string_view what, std::int64_t previous) {
  if (previous == std::numeric_limits<std::int64_t>::max())
    reader.fail(value.line, fmt::format("{} as {}", value.described(), what), "none after the largest integer");
  return reader.integer(value, what, previous + 1);
}

std::vector<BucketPolicy::Step> read_steps(const ManifestReader& reader, const TomlValue& value,
                                           std::int64_t pow2_until) {
  std::vector<BucketPolicy::Step> steps;
  std::int64_t previous = pow2_until;
  for (const TomlValue& each : reader.list(value, "'steps'")) {
    reader.check_keys(each, "a step", {"until", "step"});
    const std::int64_t until = above(reader, reader.required(each, "a step", "until"), "'until'", previous);
    const std::int64_t step = reader.integer(reader.required(each, "a step", "step"), "'step'", 1);
    if (until % step != 0) {
      reader.fail(each.line, fmt::format("until = {} with step = {}", until, step), "a multiple of the step");
    }
    steps.push_back({until, step});
    previous = until;
  }
  return steps;
}

std::vector<std::int64_t> read_edges(const ManifestReader& reader, const TomlValue& value) {
  std::vector<std::int64_t> edges;
  for (const TomlValue& each : reader.list(value, "'edges'")) {
    edges.push_back(above(reader, each, "an edge (they ascend)", edges.empty() ? 0 : edges.back()));
  }
  if (edges.empty()) reader.fail(value.line, "no edge", "one or more");
  return edges;
}

BucketPolicy read_policy_table(const ManifestReader& reader, const TomlValue& value) {
  BucketPolicy policy;
  const TomlValue& name = reader.required(value, "a bucket", "policy");
  policy.kind =
      static_cast<PolicyKind>(reader.one_of(name, "a bucket policy", {"exact", "pow2", "pow2_steps", "edges"}));
  const std::string where = fmt::format("a bucket of policy '{}'", name.text);
  if (policy.kind == PolicyKind::edges) {
    reader.check_keys(value, where, {"when", "policy", "edges"});
    policy.edges = read_edges(reader, reader.required(value, where, "edges"));
    return policy;
  }
  if (policy.kind != PolicyKind::pow2_steps) {
    reader.check_keys(value, where, {"when", "policy"});
    return policy;
  }
  reader.check_keys(value, where, {"when", "policy", "pow2_until", "steps"});
  const TomlValue& until = reader.required(value, where, "pow2_until");
  policy.pow2_until = reader.integer(until, "'pow2_until'", 1);
  if (!std::has_single_bit(static_cast<std::uint64_t>(policy.pow2_until))) {
    reader.fail(until.line, until.described() + " as 'pow2_until'", "a power of two");
  }
  policy.steps = read_steps(reader, reader.required(value, where, "steps"), policy.pow2_until);
  return policy;
}

BucketPolicy read_policy(const ManifestReader& reader, const TomlValue& value) {
  if (value.kind == TomlValue::Kind::table) return read_policy_table(reader, value);
  BucketPolicy policy;
  const std::size_t word = reader.one_of(value, "a bucket policy without a table", {"exact", "pow2"});
  policy.kind = word == 0 ? PolicyKind::exact : PolicyKind::pow2;
  return policy;
}

// The value is a policy, or a list of policies of which the first whose 'when' holds applies. read_policy_conditions
// reads each 'when'.
std::vector<PolicyCase> read_policies(const ManifestReader& reader, const TomlValue& value, const std::string& where) {
  const bool one = value.kind != TomlValue::Kind::array;
  std::vector<PolicyCase> policies;
  for (const TomlValue& each : one ? std::vector<TomlValue>{value} : value.items) {
    const TomlValue* when = each.find("when");
    if (when != nullptr && one)
      reader.fail(when->line, fmt::format("'when' of the only bucket of {}", where), "a list of buckets in [ ]");
    if (when == nullptr && policies.size() + 1 < value.items.size())
      reader.fail(each.line, fmt::format("a bucket of {} without 'when' before another", where), "it last");
    policies.push_back({when != nullptr ? std::optional(Expression()) : std::nullopt, read_policy(reader, each)});
  }
  if (policies.empty() || policies.back().when)
    reader.fail(value.line, fmt::format("buckets of {} with nothing for what is left", where),
                "a last one without 'when'");
  return policies;
}

// Every upper edge must be a legal size, because the bucket is tuned there.
void check_edges(const ManifestReader& reader, const Axis& axis, const BucketPolicy& policy, const Line& line) {
  const auto check = [&](std::int64_t edge, std::string_view what) {
    if (edge % axis.multiple_of == 0) return;
    reader.fail(line,
                fmt::format("{} {} of axis '{}', which has multiple_of = {}", what, edge, axis.name, axis.multiple_of),
                "upper edges that are multiples");
  };
  check(axis.maximum, "the maximum");
  const bool powers = policy.kind == PolicyKind::pow2 || policy.kind == PolicyKind::pow2_steps;
  if (powers && !std::has_single_bit(static_cast<std::uint64_t>(axis.multiple_of))) {
    reader.fail(
        line,
        fmt::format("multiple_of = {} on axis '{}', whose upper edges are powers of two", axis.multiple_of, axis.name),
        "a power of two");
  }
  for (const BucketPolicy::Step& step : policy.steps) check(step.step, "the step");
  for (const std::int64_t edge : policy.edges) {
    check(edge, "the edge");
    if (edge > axis.maximum)
      reader.fail(line, fmt::format("the edge {} past max = {}", edge, axis.maximum), "edges up to max");
  }
}

// A length on the device may be any int32 up to its bound.
void check_on_device(const ManifestReader& reader, const Axis& axis, const Line& line) {
  if (axis.multiple_of != 1)
    reader.fail(line, fmt::format("on_device with multiple_of = {} on axis '{}'", axis.multiple_of, axis.name),
                "one of the two: a length on the device may be any number");
  if (axis.maximum > std::numeric_limits<std::int32_t>::max())
    reader.fail(line, fmt::format("on_device with max = {} on axis '{}'", axis.maximum, axis.name),
                "at most 2147483647: lengths on the device are int32");
}

/// The number of ranks: each is a bucket of its own.
Axis read_team_axis(const ManifestReader& reader, const std::string& name, const TomlValue& value) {
  const std::string where = fmt::format("axis '{}' with team = true", name);
  reader.check_keys(value, where, {"team", "min", "max"});
  Axis axis;
  axis.name = name;
  axis.team = true;
  if (const TomlValue* minimum = value.find("min")) axis.minimum = reader.integer(*minimum, "'min'", 1);
  const TomlValue& maximum = reader.required(value, where, "max");
  axis.maximum = reader.integer(maximum, "'max'", axis.minimum);
  if (axis.maximum > most_team_ranks)
    reader.fail(maximum.line, fmt::format("max = {} on the team axis '{}'", axis.maximum, name),
                fmt::format("at most {} ranks", most_team_ranks));
  return axis;
}

Axis read_axis(const ManifestReader& reader, const std::string& name, const TomlValue& value) {
  const std::string where = fmt::format("axis '{}'", name);
  if (value.kind == TomlValue::Kind::table && reader.boolean_or(value, "team", false))
    return read_team_axis(reader, name, value);
  reader.check_keys(value, where, {"bucket", "min", "max", "multiple_of", "on_device", "team"});
  Axis axis;
  axis.name = name;
  axis.policies = read_policies(reader, reader.required(value, where, "bucket"), where);
  if (const TomlValue* minimum = value.find("min")) axis.minimum = reader.integer(*minimum, "'min'", 1);
  axis.maximum = reader.integer(reader.required(value, where, "max"), "'max'", axis.minimum);
  if (const TomlValue* multiple = value.find("multiple_of"))
    axis.multiple_of = reader.integer(*multiple, "'multiple_of'", 1);
  axis.on_device = reader.boolean_or(value, "on_device", false);
  if (axis.on_device) check_on_device(reader, axis, value.line);
  for (const PolicyCase& each : axis.policies) check_edges(reader, axis, each.policy, value.line);
  return axis;
}

}  // namespace

std::vector<Axis> read_axes(const ManifestReader& reader, const TomlValue& section) {
  std::vector<Axis> axes;
  check_count(reader, section.line, section.entries.size(), max_axes, "axes");
  for (const TomlEntry& entry : reader.table(section, "[axes]")) {
    Axis axis;
    axis.name = entry.key;
    axis.maximum = axis.minimum;
    axis.team = entry.value.find("team") != nullptr;
    reader.attempt([&] { axis = read_axis(reader, entry.key, entry.value); });
    axes.push_back(std::move(axis));
    const auto other = std::ranges::find(axes, true, &Axis::team);
    if (axes.back().team && other != axes.end() - 1)
      reader.attempt([&] {
        reader.fail(entry.value.line, fmt::format("team = true on the axes '{}' and '{}'", other->name, entry.key),
                    "it on one axis");
      });
  }
  if (axes.empty()) reader.fail(section.line, "no axis", "one or more");
  return axes;
}

void read_policy_conditions(const ManifestReader& reader, const TomlValue& section, Op& op) {
  for (std::size_t i = 0; i < op.axes.size(); ++i) {
    if (op.axes[i].policies.size() == 1) continue;
    const TomlValue& bucket = *section.entries[i].value.find("bucket");
    const std::string what = fmt::format("'when' of a bucket of axis '{}'", op.axes[i].name);
    for (std::size_t each = 0; each + 1 < op.axes[i].policies.size(); ++each)
      reader.attempt([&] {
        op.axes[i].policies[each].when = read_condition(reader, *bucket.items[each].find("when"), what, "", op);
      });
  }
}

}  // namespace kiln::manifest
